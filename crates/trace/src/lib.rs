//! Allocation traces: the model, codecs for the formats they come in, the replay engine, metrics.
//!
//! Lives here: everything that knows a file format. Depends on no other crate of Drystone, so that
//! any allocator can be replayed: it implements [`replay::Replayed`].
#![forbid(unsafe_code)]

mod builder;
mod check;
pub mod codec;
pub mod metrics;
pub mod model;
pub mod replay;
pub mod snapshot;

pub use check::Broken;
