//! gpu-alloc-trace v1: one CSV line per event, plain or compressed with zstd.
//!
//! The columns are `op,id,bytes,stream,time_ns`. Two additions, written only by traces that need
//! them, so that all other files are plain v1: a sixth column `pool`, and the operation `o` for an
//! allocation that failed when recorded.
//!
//! The lines are parsed by hand, not with the csv crate: they are unquoted ASCII numbers, and
//! parsing them where they lie in the buffer reads half a million events three to four times as
//! fast as splitting them into fields first.

mod read;
mod write;

pub(super) use read::read;
pub use write::{write, write_zst};

/// The header line.
const HEADER: &str = "op,id,bytes,stream,time_ns";
/// The header line of traces with several pools.
const HEADER_POOLS: &str = "op,id,bytes,stream,time_ns,pool";
/// How a file starts that has a comment before its header.
const TITLE: &str = "# gpu-alloc-trace v1";

#[cfg(test)]
mod tests;
