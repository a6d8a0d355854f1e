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
    /// The file could not be opened or read, or its compression is damaged.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// None of the known formats.
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
    /// The header line is missing or another one.
    #[error("expected the header `{wants}`, found `{found}`")]
    Header { wants: &'static str, found: String },
    /// A line that no format has.
    #[error("line longer than {limit} bytes")]
    LongLine { limit: usize },
    /// A line with too few or too many fields.
    #[error("{found} fields, expected {wants}")]
    Fields { found: usize, wants: usize },
    /// A field that is not what it should be.
    #[error("field `{field}` is `{found}`, expected {wants}")]
    Field { field: &'static str, found: String, wants: &'static str },
    /// An operation that no version of the format has.
    #[error("unknown operation `{found}`")]
    UnknownOp { found: String },
    /// A request of no bytes, or of more than
    /// [`MAX_REQUEST_BYTES`](super::MAX_REQUEST_BYTES).
    #[error("a request of {bytes} bytes; sizes are positive and at most 2^48")]
    Size { bytes: u64 },
    /// A free or other use of a block that is not live.
    #[error("id {id} is not live here")]
    UnknownBlock { id: u64 },
    /// A free of an address at which no block is live.
    #[error("no block is live at address {address:#x} here")]
    UnknownAddress { address: u64 },
    /// An address that is given out again without having been freed.
    #[error("address {address:#x} is given out again while it is live")]
    DuplicateAddress { address: u64 },
    /// An allocation as a block that is live.
    #[error("id {id} is allocated again while it is live")]
    DuplicateBlock { id: u64 },
    /// An id so far off that the smallest free one cannot have been taken.
    #[error("id {id} leaves ids out; the next new one is {next}")]
    SparseBlock { id: u64, next: u64 },
    /// A capture begins where none can: on the default stream, or on one that is captured.
    #[error("stream {stream} cannot be captured here: it is, or is the default stream")]
    Capture { stream: u64 },
    /// A capture ends that has not begun.
    #[error("stream {stream} is not captured here")]
    NoCapture { stream: u64 },
    /// A free or other use whose size or stream differs from its allocation's.
    #[error("{field} {found} differs from the block's allocation ({wants})")]
    Mismatch { field: &'static str, found: u64, wants: u64 },
    /// Time goes back.
    #[error("time goes back from {before_ns} ns to {time_ns} ns")]
    TimeBack { before_ns: u64, time_ns: u64 },
    /// The file ends in the middle of something.
    #[error("the file ends here, in the middle of a value")]
    Truncated,
    /// A length that reaches beyond the end of the file.
    #[error("a length of {claimed} bytes, but only {left} are left in the file")]
    Length { claimed: u64, left: u64 },
    /// Something follows the end of the pickle.
    #[error("{left} bytes follow the end of the pickle")]
    Trailing { left: u64 },
    /// Nested too deeply.
    #[error("nested more than {limit} deep")]
    Nesting { limit: usize },
    /// A pickle opcode that imports, calls or builds something other than plain data.
    #[error("pickle opcode {name} is not plain data and is never carried out")]
    PickleRefused { name: &'static str },
    /// Not a pickle opcode.
    #[error("{opcode:#04x} is not a pickle opcode")]
    PickleUnknown { opcode: u8 },
    /// A pickle protocol that does not exist yet.
    #[error("pickle protocol {version} is not known; the newest is 5")]
    PickleProtocol { version: u8 },
    /// A pickle opcode finds too few values on the stack.
    #[error("the pickle takes a value from an empty stack")]
    PickleUnderflow,
    /// A pickle refers to, or would fill, a memo entry that it cannot have.
    #[error("the pickle has no memo entry {index}")]
    PickleMemo { index: u64 },
    /// A pickle appends to what is no list, or sets items of what is no dictionary.
    #[error("the pickle adds items to a value that cannot hold them")]
    PickleTarget,
    /// A dictionary with a key but no value.
    #[error("the pickle gives a dictionary a key without a value")]
    PickleOdd,
    /// A number that cannot be read, or needs more than 64 bits.
    #[error("not a number of at most 64 bits")]
    PickleNumber,
    /// A text with a malformed escape or without its quotes.
    #[error("malformed text")]
    PickleText,
    /// Not JSON.
    #[error("{}", without_line(.0))]
    Json(serde_json::Error),
    /// A value that is missing or of another kind.
    #[error("{found}, expected {wants}")]
    Value { found: String, wants: &'static str },
    /// A snapshot that refers to the same values so often that it would unfold without bounds.
    #[error("the same values are repeated so often that they would unfold beyond all bounds")]
    Unfolds,
    /// A snapshot with neither segments nor trace entries.
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
