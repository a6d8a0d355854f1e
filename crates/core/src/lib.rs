//! A CUDA caching allocator as a pure state machine.
//!
//! [`Heap`] answers every request with an address or with a [`Plan`]: plain data that says what to
//! do to the device. Whoever holds the heap carries the plan out and hands it back, done or undone.
//! The heap itself knows no lock, no driver, no clock and no randomness: the same calls always
//! give the same answers, so every run can be replayed.
//!
//! Modules, bottom first; a module uses only those above it:
//! `size` `bin` `id` `error` `policy` `stats` `block` `lead` `granule` `segment` `free_list`
//! `address_map` `fence` `pool` `pin` `plan` `order` `heap` (with the way of a malloc and of a
//! free), `pool_stream_stats`, `snapshot`, `check`, and beside the heap `async_pool`, for a driver
//! that pools by itself.
#![forbid(unsafe_code)]

mod address_map;
mod async_pool;
mod bin;
mod block;
mod check;
mod error;
mod fence;
mod free_list;
mod granule;
mod heap;
mod id;
mod lead;
mod order;
mod pin;
mod plan;
mod policy;
mod pool;
mod pool_stream_stats;
mod segment;
pub mod size;
mod snapshot;
mod stats;

pub use async_pool::{AsyncPools, DeferredFree, DriverAlloc, FreeOrder, FreeOutcome, PendingAlloc};
pub use block::BlockState;
pub use check::Broken;
pub use error::{FreeError, RecordStreamError, RequestError, StreamError};
pub use fence::Fence;
pub use granule::GranuleId;
pub use heap::{Committed, Config, Freed, Granted, Heap, Outcome, Reuse};
pub use id::{PoolId, StreamId};
pub use plan::{Plan, Step};
pub use policy::{CrossStream, HELD_PER_HANDLE, SegmentKind, SizeClass};
pub use pool_stream_stats::PoolStreamStats;
pub use size::SizeError;
pub use snapshot::{BlockView, SegmentView};
pub use stats::{Gauge, RemapStats, SizeClassStats, Stats};
