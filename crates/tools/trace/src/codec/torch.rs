//! PyTorch's memory snapshots: a file's values into a snapshot and that into traces, and back.
//!
//! Below it, bottom first: `fault` (where in a file something is wrong), `plain` and `reader`
//! (looking at values), `stacks`, `segments`, `entries` (the parts of a snapshot), `schema` (the
//! whole), `convert` (into traces); `write` by itself.

#[cfg(feature = "analysis")]
mod convert;
#[cfg(feature = "analysis")]
mod entries;
#[cfg(feature = "analysis")]
mod fault;
#[cfg(feature = "analysis")]
mod plain;
#[cfg(feature = "analysis")]
mod reader;
#[cfg(feature = "analysis")]
mod schema;
#[cfg(feature = "analysis")]
mod segments;
#[cfg(feature = "analysis")]
mod stacks;
mod write;

#[cfg(feature = "analysis")]
pub(super) use convert::traces;
#[cfg(feature = "analysis")]
pub(super) use schema::read;
