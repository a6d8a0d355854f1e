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
//! order of the others is written in `engine`.
//!
//! Modules, bottom first; a module uses only those above it: `catch_panic`, `observers`, `tag`,
//! `error`, `options`, `build_error`, `budget`, `memory_provider`, `neighbours`, `share`, `record`
//! (plain types), `telemetry` (what others may watch) · `state_lock` (a panic under it poisons) ·
//! `address_calls` (what no move may meet), `streams` (who they are) · `executor` (carries plans
//! out, and joins names of the heap with handles of the driver) · `backend` (who decides, behind
//! its lock) · `engine` (streams, waiting, trimming, the way of a miss) · `allocation` ·
//! `allocator` (the public handle) · `growable`.
#![forbid(unsafe_code)]

pub mod address_calls;
mod allocation;
mod allocator;
mod backend;
mod budget;
mod build_error;
mod catch_panic;
mod engine;
mod error;
mod executor;
mod growable;
mod memory_provider;
mod neighbours;
mod observers;
mod options;
mod out_of_memory;
mod record;
mod share;
mod state_lock;
mod streams;
mod tag;
mod telemetry;

pub use allocation::Allocation;
pub use allocator::{Allocator, Imported, PinError};
pub use budget::Budget;
pub use build_error::BuildError;
pub use drystone_core::{
    BlockState, BlockView, Broken, Choices, CrossStream, Fence, FreeError, Gauge, Granted, Points,
    Poisoned, PoolId, PoolStreamStats, Prefer, RecordStreamError, RemapStats, RequestError,
    SegmentKind, SegmentView, Shared, SharedBy, SizeClass, SizeClassStats, SizeError, Stats,
    StreamError, StreamId,
};
pub use drystone_driver as driver;
pub use engine::OutOfMemoryCallback;
pub use engine::compact::Compacted;
pub use engine::giving_back::Effort;
pub use error::{AllocateError, PeerError, TrimError};
pub use executor::observe::{MappingChange, RemapCallback};
pub use growable::{Growable, ReserveError};
pub use memory_provider::MemoryProvider;
pub use neighbours::{Gift, LooseHandle, Neighbour, Neighbours};
pub use options::{Backend, Options, OptionsError, PoolOptions};
pub use out_of_memory::{Cause, OutOfMemory, Stays};
pub use record::Recording;
pub use share::{Behind, Exported, ExportedHandle, ShareError};
pub use streams::{OtherStreams, StreamEnd};
#[doc(hidden)]
pub use streams::{Served, seen};
pub use tag::{Held, Tag, TagStats};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/use/rust.md")]
struct Guide;
