//! Drystone: a CUDA caching allocator that holds almost nothing but what is in use.
//!
//! ```
//! use std::sync::Arc;
//! use drystone::{Allocator, Options};
//! use drystone_driver::Stream;
//! use drystone_sim::{SimConfig, SimDevice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Arc::new(SimDevice::new(SimConfig::default()));
//! let allocator = Allocator::new(device, &Options::default())?;
//! let stream = allocator.add_stream(Stream::DEFAULT)?;
//!
//! let weights = allocator.allocate(stream, 96 << 20)?;
//! assert!(weights.bytes() >= 96 << 20);
//! drop(weights); // back into the pool, in stream order: no driver call
//!
//! let again = allocator.allocate(stream, 64 << 20)?;
//! assert_eq!(allocator.stats().all.allocations.current, 1);
//! # drop(again);
//! # Ok(())
//! # }
//! ```
//!
//! `drystone-core` decides, this crate acts, an implementation of [`drystone_driver::Driver`]
//! carries out. The heap's lock is taken for a decision and never held across a driver call; the
//! order of the others is written in `device`.
#![forbid(unsafe_code)]

mod allocation;
mod allocator;
mod announcer;
mod backing;
mod budget;
mod capture;
mod device;
#[cfg(feature = "cudarc")]
pub mod embed;
mod error;
mod events;
mod execute;
mod grow;
mod lookup;
mod options;
mod room;
mod source;
mod supply;

pub use allocation::Allocation;
pub use allocator::Allocator;
pub use announcer::{MappingChange, RemapCallback};
pub use backing::PinError;
pub use budget::Budget;
pub use device::OutOfMemoryCallback;
pub use drystone_core::{
    BlockState, BlockView, Broken, CrossStream, FreeError, Gauge, Granted, PoolId, PoolStreamStats,
    RecordStreamError, RemapStats, RequestError, SegmentKind, SegmentView, SizeClass,
    SizeClassStats, SizeError, Stats, StreamError, StreamId,
};
pub use drystone_driver as driver;
pub use error::{AllocateError, BuildError, OutOfMemory, PeerError, TrimError};
pub use options::{Backend, Options, OptionsError};
pub use room::PoolOptions;
pub use supply::MemoryProvider;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
