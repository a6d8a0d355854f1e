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
    pub(crate) fn new(name: &str, place: Place, problem: impl Into<Problem>) -> Self {
        Self {
            name: name.to_owned(),
            place,
            problem: problem.into(),
        }
    }
}

/// A place in a file. Displays with a trailing `: ` unless it is the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line, counted from 1.
    Line(u64),
    /// A byte of the (decompressed) file, counted from 0.
    Byte(u64),
    /// An entry of a snapshot's list of trace entries, counted from 0.
    Entry {
        /// Index of the device.
        device: usize,
        /// Index in that device's list.
        index: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::Line(line) => write!(f, "line {line}: "),
            Self::Byte(byte) => write!(f, "byte {byte}: "),
            Self::Entry { device, index } => write!(f, "device {device}, trace entry {index}: "),
        }
    }
}

/// What is wrong with a file.
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
    /// Larger than [`Limits::decoded_bytes`](super::Limits::decoded_bytes) once decompressed.
    #[error("more than {limit} bytes when decompressed")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// More than [`Limits::events`](super::Limits::events).
    #[error("more than {limit} events")]
    TooManyEvents {
        /// The limit.
        limit: u64,
    },
    /// More streams, pools or blocks than the model can number.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The header line is missing or another one.
    #[error("expected the header `{wants}`, found `{found}`")]
    Header {
        /// The header of the format.
        wants: &'static str,
        /// The line found, shortened.
        found: String,
    },
    /// A line that no format has.
    #[error("line longer than {limit} bytes")]
    LongLine {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A line with too few or too many fields.
    #[error("{found} fields, expected {wants}")]
    Fields {
        /// Fields found.
        found: usize,
        /// Fields of the format.
        wants: usize,
    },
    /// A field that is not what it should be.
    #[error("field `{field}` is `{found}`, expected {wants}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its text, shortened.
        found: String,
        /// What it should be.
        wants: &'static str,
    },
    /// An operation that no version of the format has.
    #[error("unknown operation `{found}`")]
    UnknownOp {
        /// Its text, shortened.
        found: String,
    },
    /// A request of no bytes, or of more than
    /// [`MAX_REQUEST_BYTES`](super::MAX_REQUEST_BYTES).
    #[error("a request of {bytes} bytes; sizes are positive and at most 2^48")]
    Size {
        /// The size, in bytes.
        bytes: u64,
    },
    /// A free or other use of a block that is not live.
    #[error("id {id} is not live here")]
    UnknownBlock {
        /// Its id in the file.
        id: u64,
    },
    /// An allocation as a block that is live.
    #[error("id {id} is allocated again while it is live")]
    DuplicateBlock {
        /// Its id in the file.
        id: u64,
    },
    /// An id so far off that the smallest free one cannot have been taken.
    #[error("id {id} leaves ids out; the next new one is {next}")]
    SparseBlock {
        /// The id in the file.
        id: u64,
        /// The largest id that would be accepted.
        next: u64,
    },
    /// A free or other use whose size or stream differs from its allocation's.
    #[error("{field} {found} differs from the block's allocation ({wants})")]
    Mismatch {
        /// `bytes` or `stream`.
        field: &'static str,
        /// What the line says.
        found: u64,
        /// What the allocation said.
        wants: u64,
    },
    /// Time goes back.
    #[error("time goes back from {before_ns} ns to {time_ns} ns")]
    TimeBack {
        /// Time of the event before.
        before_ns: u64,
        /// Time here.
        time_ns: u64,
    },
}

/// Quotes at most 40 bytes of input, escaped, for an error message.
pub(crate) fn quote(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let mut text = bytes[..bytes.len().min(MOST)].escape_ascii().to_string();
    if bytes.len() > MOST {
        text.push_str("...");
    }
    text
}
