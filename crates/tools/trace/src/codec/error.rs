//! Why a file could not be read: what is wrong, and where.
//!
//! Invariant: an error prints as one line, `NAME: PLACE: PROBLEM`, and quotes at most a few bytes
//! of the input, escaped.

use std::fmt;
use std::io;

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {place}{problem}")]
pub struct ReadError {
    /// The file, as its reader was told.
    pub name: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong there.
    #[source]
    pub problem: Problem,
}

impl ReadError {
    pub(super) fn new(name: &str, place: Place, problem: impl Into<Problem>) -> Self {
        Self { name: name.to_owned(), place, problem: problem.into() }
    }
}

/// A place in a file. Displays with a trailing `: ` unless it is the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line, counted from 1.
    Line(u64),
    /// A byte of the (decompressed) file, counted from 0.
    Byte(u64),
    /// A value inside a snapshot, as a path such as `device_traces[0][17].size`.
    Item(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::Line(line) => write!(f, "line {line}: "),
            Self::Byte(byte) => write!(f, "byte {byte}: "),
            Self::Item(path) => write!(f, "{path}: "),
        }
    }
}

/// What is wrong with a file. Texts of the file are shortened; `wants` is what a field should be.
#[expect(missing_docs, reason = "the text of a problem says what each of its figures is")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("unknown format; expected a trace (.csv, .csv.zst), an RMM log or a PyTorch snapshot")]
    UnknownFormat,
    /// What `drystone convert` and dry runs write for other programs.
    #[error("a Parquet table is written and not read: give the trace or snapshot beside it")]
    Parquet,
    /// Larger than [`Limits::decoded_bytes`](super::Limits::decoded_bytes) once decompressed.
    #[error("more than {limit} bytes when decompressed")]
    TooLarge { limit: u64 },
    /// More than [`Limits::events`](super::Limits::events).
    #[error("more than {limit} events")]
    TooManyEvents { limit: u64 },
    /// More streams, pools or blocks than the model can number.
    #[error("more than {limit} {what}")]
    TooMany { what: &'static str, limit: u64 },
    #[error("expected the header `{wants}`, found `{found}`")]
    Header { wants: &'static str, found: String },
    #[error("line longer than {limit} bytes")]
    LongLine { limit: usize },
    #[error("{found} fields, expected {wants}")]
    Fields { found: usize, wants: usize },
    #[error("field `{field}` is `{found}`, expected {wants}")]
    Field { field: &'static str, found: String, wants: &'static str },
    #[error("unknown operation `{found}`")]
    UnknownOp { found: String },
    /// A request of no bytes, or of more than
    /// [`MAX_REQUEST_BYTES`](super::MAX_REQUEST_BYTES).
    #[error("a request of {bytes} bytes; sizes are positive and at most 2^48")]
    Size { bytes: u64 },
    #[error("id {id} is not live here")]
    UnknownBlock { id: u64 },
    #[error("no block is live at address {address:#x} here")]
    UnknownAddress { address: u64 },
    #[error("address {address:#x} is given out again while it is live")]
    DuplicateAddress { address: u64 },
    #[error("id {id} is allocated again while it is live")]
    DuplicateBlock { id: u64 },
    /// An id so far off that the smallest free one cannot have been taken.
    #[error("id {id} leaves ids out; the next new one is {next}")]
    SparseBlock { id: u64, next: u64 },
    /// A capture begins where none can: on the default stream, or on one that is captured.
    #[error("stream {stream} cannot be captured here: it is, or is the default stream")]
    Capture { stream: u64 },
    #[error("stream {stream} is not captured here")]
    NoCapture { stream: u64 },
    /// A free or other use whose size or stream differs from its allocation's.
    #[error("{field} {found} differs from the block's allocation ({wants})")]
    Mismatch { field: &'static str, found: u64, wants: u64 },
    #[error("time goes back from {before_ns} ns to {time_ns} ns")]
    TimeBack { before_ns: u64, time_ns: u64 },
    #[error("the file ends here, in the middle of a value")]
    Truncated,
    #[error("a length of {claimed} bytes, but only {left} are left in the file")]
    Length { claimed: u64, left: u64 },
    #[error("{left} bytes follow the end of the pickle")]
    Trailing { left: u64 },
    #[error("nested more than {limit} deep")]
    Nesting { limit: usize },
    /// A pickle opcode that imports, calls or builds something other than plain data.
    #[error("pickle opcode {name} is not plain data and is never carried out")]
    PickleRefused { name: &'static str },
    #[error("{opcode:#04x} is not a pickle opcode")]
    PickleUnknown { opcode: u8 },
    #[error("pickle protocol {version} is not known; the newest is 5")]
    PickleProtocol { version: u8 },
    #[error("the pickle takes a value from an empty stack")]
    PickleUnderflow,
    #[error("the pickle has no memo entry {index}")]
    PickleMemo { index: u64 },
    #[error("the pickle adds items to a value that cannot hold them")]
    PickleTarget,
    #[error("the pickle gives a dictionary a key without a value")]
    PickleOdd,
    #[error("not a number of at most 64 bits")]
    PickleNumber,
    #[error("malformed text")]
    PickleText,
    #[error("{}", without_line(.0))]
    Json(serde_json::Error),
    #[error("{found}, expected {wants}")]
    Value { found: String, wants: &'static str },
    #[error("the same values are repeated so often that they would unfold beyond all bounds")]
    Unfolds,
    #[error("the snapshot holds neither segments nor trace entries")]
    NothingRecorded,
}

/// The parser's words with the column alone: the line is the error's place.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&end) {
        Some(reason) => format!("{reason} at column {}", error.column()),
        None => text,
    }
}

/// Quotes at most 40 bytes of input, escaped, for an error message.
pub(super) fn quote(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let mut text = bytes[..bytes.len().min(MOST)].escape_ascii().to_string();
    if bytes.len() > MOST {
        text.push_str("...");
    }
    text
}
