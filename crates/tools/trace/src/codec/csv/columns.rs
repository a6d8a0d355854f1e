//! The lines that every file of the format begins with.

pub(super) const HEADER: &str = "op,id,bytes,stream,time_ns";
/// The header line of traces with several pools.
pub(super) const HEADER_POOLS: &str = "op,id,bytes,stream,time_ns,pool";
/// How a file starts that has a comment before its header.
pub(super) const TITLE: &str = "# gpu-alloc-trace v1";
