//! A CUDA caching allocator as a pure state machine.
//!
//! [`Heap`] answers every request with an address or with a [`Plan`]: plain data that says what to
//! do to the device. Whoever holds the heap carries the plan out and hands it back, done or undone.
//! The heap itself knows no lock, no driver, no clock and no randomness: the same calls always
//! give the same answers, so every run can be replayed.
//!
//! Modules, bottom first; a module uses only those above it:
//! `size` `bin` `id` `error` `policy` `stats` `block` `lead` `granule` `segment` `free_list`
//! `address_map` `fence` `pool` `pin` `plan` `scarcity` `heap` (with the way of a malloc and of a
//! free), `account`, `snapshot`, `check`; beside the heap `ledger`, for a driver that pools by
//! itself; over both `recovery` (what to try next for a request that misses) and `state_machine`
//! (what they have in common).
#![forbid(unsafe_code)]

mod account;
mod address_map;
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
mod ledger;
mod pin;
mod plan;
mod policy;
mod pool;
mod recovery;
mod scarcity;
mod segment;
pub mod size;
mod snapshot;
mod state_machine;
mod stats;

pub use account::PoolStreamStats;
pub use block::BlockState;
pub use check::Broken;
pub use error::{FreeError, RecordStreamError, RequestError, StreamError};
pub use fence::Fence;
pub use granule::GranuleId;
pub use heap::{Committed, Config, Freed, Granted, Heap, Outcome, Reuse};
pub use id::{PoolId, StreamId};
pub use ledger::{AsyncPools, DeferredFree, DriverAlloc, FreeOrder, FreeOutcome, PendingAlloc};
pub use plan::{Plan, Step};
pub use policy::{CrossStream, HELD_PER_HANDLE, SegmentKind, SizeClass};
pub use recovery::{Captured, Failure, Miss, Next, Refusal};
pub use size::SizeError;
pub use snapshot::{BlockView, SegmentView};
pub use state_machine::StateMachine;
pub use stats::{Gauge, RemapStats, SizeClassStats, Stats};
