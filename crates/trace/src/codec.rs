//! Codecs: trace files in and out.
//!
//! Invariants: what a file is, its content says, never its name; a reader's memory is bounded by
//! [`Limits`] and the size of its input; whatever is wrong with a file is a [`ReadError`] that
//! names the file, the place and the problem in one line; nothing in a file is ever executed.

pub mod csv;
mod detect;
pub(crate) mod error;
pub(crate) mod graph;
mod json;
mod limits;
pub(crate) mod pickle;
mod rmm;

pub use detect::{read, read_path};
pub use error::{Place, Problem, ReadError};
use limits::MAX_SNAPSHOT_BYTES;
pub use limits::{Limits, MAX_REQUEST_BYTES};
