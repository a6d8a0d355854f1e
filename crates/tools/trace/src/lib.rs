//! Allocation traces: the model, codecs for the formats they come in, the replay engine, metrics.
//!
//! Lives here: everything that knows a file format. Depends on no other crate of Drystone, so that
//! any allocator can be replayed: it implements `replay::Replayed`. Without the feature `analysis`
//! snapshots can be built and written, and nothing else is there.
//!
//! The modules stand bottom first: each uses only those above it.
#![forbid(unsafe_code)]

pub mod snapshot;

#[cfg(feature = "analysis")]
pub mod model;

#[cfg(feature = "analysis")]
mod check;

pub mod codec;

#[cfg(feature = "analysis")]
pub mod metrics;

#[cfg(feature = "analysis")]
pub mod replay;

#[cfg(feature = "analysis")]
pub use check::Broken;
