//! A CUDA caching allocator as a pure state machine.
//!
//! [`Heap`] answers every request with an address or with a [`Plan`]: plain data that says what to
//! do to the device. Whoever holds the heap carries the plan out and hands it back, done or undone.
//! The heap itself knows no lock, no driver, no clock and no randomness: the same calls always
//! give the same answers, so every run can be replayed.
//!
//! Modules, bottom first; a module uses only those above it:
//! `size` `bin` `id` `error` `policy` `stats` `block` `lead` `granule` `segment` `free_list`
//! `address_map` `fence` `pool` `pin` `plan` `heap` (with the way of a malloc and of a free),
//! `account`, `snapshot`, `check`, and beside the heap `ledger`, for a driver that pools by itself.
#![forbid(unsafe_code)]

mod account;
mod broken;
mod check;
mod error;
mod fence;
mod heap;
mod id;
mod ledger;
mod plan;
mod policy;
mod pool;
pub mod size;
mod snapshot;
mod space;
mod stats;
mod vm;

pub use account::PoolStreamStats;
pub use broken::Broken;
pub use error::{FreeError, RecordStreamError, RequestError, StreamError};
pub use fence::Fence;
pub use heap::{Committed, Config, Freed, Heap, Outcome, Reuse};
pub use id::{PoolId, StreamId};
pub use ledger::{AsyncPools, DeferredFree, DriverAlloc, FreeOrder, FreeOutcome, PendingAlloc};
pub use plan::{Plan, Step};
pub use policy::{CrossStream, HELD_PER_HANDLE, SegmentKind, SizeClass};
pub use size::SizeError;
pub use snapshot::{BlockView, SegmentView};
pub use space::block::BlockState;
pub use space::free_list::ListIx;
pub use space::{Granted, Space};
pub use stats::{Gauge, RemapStats, SizeClassStats, Stats};
pub use vm::granule::GranuleId;
