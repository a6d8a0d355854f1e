//! PyTorch's memory snapshots: a file's values into a snapshot and that into traces, and back.

#[cfg(feature = "analysis")]
mod convert;
#[cfg(feature = "analysis")]
mod read;
mod write;

#[cfg(feature = "analysis")]
pub(super) use convert::traces;
#[cfg(feature = "analysis")]
pub(super) use read::read;
