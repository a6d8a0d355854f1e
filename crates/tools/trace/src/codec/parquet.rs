//! Traces as Parquet, where this build has the feature `parquet`.
//!
//! The writer is `table`. It stands apart because the crate behind it takes as long to compile as
//! all of Drystone.

use std::io::{self, Write};

use crate::model::Trace;

#[cfg(feature = "parquet")]
mod table;

/// Writes a trace.
/// Errors: what the output refuses; without the feature `parquet`, [`io::ErrorKind::Unsupported`].
#[cfg(feature = "parquet")]
pub fn write(trace: &Trace, output: impl Write + Send) -> io::Result<()> {
    table::write(trace, output)
}

/// Writes a trace.
/// Errors: [`io::ErrorKind::Unsupported`]: the feature `parquet` is off in this build.
#[cfg(not(feature = "parquet"))]
pub fn write(_trace: &Trace, _output: impl Write + Send) -> io::Result<()> {
    let message = "this build writes no Parquet: build it with `--features parquet`";
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}
