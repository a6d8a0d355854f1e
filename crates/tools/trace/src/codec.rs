//! Codecs: trace files in and out.
//!
//! Invariants: what a file is, its content says, never its name; a reader's memory is bounded by
//! [`Limits`] and the size of its input; whatever is wrong with a file is a [`ReadError`] that
//! names the file, the place and the problem in one line; nothing in a file is ever executed.
//!
//! ```
//! use drystone_trace::codec::{self, Limits};
//!
//! let file = b"op,id,bytes,stream,time_ns\na,0,512,0,0\nf,0,512,0,9000\n";
//! let traces = codec::read(&file[..], "tiny.csv", &Limits::default())?;
//! assert_eq!(traces[0].events.len(), 2);
//!
//! let wrong = b"op,id,bytes,stream,time_ns\nf,3,512,0,0\n";
//! let error = codec::read(&wrong[..], "wrong.csv", &Limits::default()).unwrap_err();
//! assert_eq!(error.to_string(), "wrong.csv: line 2: id 3 is not live here");
//! # Ok::<(), codec::ReadError>(())
//! ```

#[cfg(feature = "analysis")]
mod builder;
#[cfg(feature = "analysis")]
pub mod csv;
#[cfg(feature = "analysis")]
mod detect;
mod emit;
#[cfg(feature = "analysis")]
mod error;
#[cfg(feature = "analysis")]
mod graph;
mod json;
#[cfg(feature = "analysis")]
mod limits;
#[cfg(feature = "analysis")]
pub mod parquet;
mod pickle;
#[cfg(feature = "analysis")]
mod rmm;
mod torch;

#[cfg(feature = "analysis")]
pub use detect::{read, read_path};
#[cfg(feature = "analysis")]
pub use error::{Place, Problem, ReadError};
#[cfg(feature = "analysis")]
pub use limits::{Limits, MAX_REQUEST_BYTES};
