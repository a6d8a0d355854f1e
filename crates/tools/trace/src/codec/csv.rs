//! gpu-alloc-trace v1: one CSV line per event, plain or compressed with zstd.
//!
//! The columns are `op,id,bytes,stream,time_ns`. Two additions, written only by traces that need
//! them, so that all other files are plain v1: a sixth column `pool`, and the operation `o` for an
//! allocation that failed when recorded.
//!
//! The lines are parsed by hand, not with the csv crate: they are unquoted ASCII numbers, and
//! parsing them where they lie in the buffer reads half a million events three to four times as
//! fast as splitting them into fields first.

mod columns;
mod read;
mod write;

pub(super) use read::read;
pub use write::{write, write_zst};

#[cfg(test)]
mod tests;
