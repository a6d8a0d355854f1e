//! A CUDA caching allocator as a pure state machine.
//!
//! [`Heap`] answers every request with an address or with a [`Plan`]: plain data that says what to
//! do to the device. Whoever holds the heap carries the plan out and hands it back, done or undone.
//! The heap itself knows no lock, no driver, no clock and no randomness: the same calls always
//! give the same answers, so every run can be replayed.
//!
//! ```
//! use drystone_core::{Committed, Config, Freed, Heap, Outcome};
//! use drystone_core::{PoolId, Prefer, Reuse, SegmentKind, StateMachine};
//!
//! let config = Config::new(SegmentKind::Mapped, 2 << 20, 1 << 30);
//! let mut heap = Heap::new(config.with_prefer(Prefer::Memory)); // hold as little as possible
//! let stream = heap.add_stream();
//! let block = loop {
//!     match heap.request(PoolId::DEFAULT, stream, 3 << 20, Reuse::MayWait)? {
//!         Outcome::Granted(block) => break block,
//!         Outcome::Plan(plan) => {
//!             // First to reserve addresses, then to create and map two granules. Who holds the
//!             // heap does `plan.steps()` to the device, and says where the addresses are.
//!             assert!(!plan.steps().is_empty());
//!             if let Committed::Granted(block) = heap.commit(plan, 0x7000_0000_0000) {
//!                 break block;
//!             }
//!         }
//!     }
//! };
//! assert_eq!((block.address, block.bytes), (0x7000_0000_0000, 3 << 20));
//! assert!(matches!(heap.free(block.address)?, Freed::Done));
//! assert_eq!(heap.stats().all.reserved_bytes.current, 4 << 20); // held for the next request
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Modules, bottom first; a module uses only those above it:
//! `size` `id` `error` `broken` `policy` `reservation` `config` `stats` `headroom` (what may be
//! asked of the device) `space` (blocks and addresses) `uses` `fence` (streams) `plan` `order`
//! `pool` `vm` (the page table) `pool_stream_stats` `snapshot` `check` `state_machine` (what the
//! next two share) `heap` (joins them); beside it `async_pool`, for a driver that pools by itself;
//! over both `recovery` (what to try next for a request that misses).
#![forbid(unsafe_code)]

mod async_pool;
mod broken;
mod check;
mod config;
mod counters;
mod error;
mod fence;
mod headroom;
mod heap;
mod id;
mod order;
mod plan;
mod policy;
mod pool;
mod pool_stream_stats;
mod recovery;
mod reservation;
mod shared;
pub mod size;
mod snapshot;
mod space;
mod state_machine;
mod stats;
mod uses;
mod vm;

pub use async_pool::{AsyncPools, DeferredFree, DriverAlloc, FreeOrder, FreeOutcome, PendingAlloc};
pub use broken::Broken;
pub use config::Config;
pub use error::{FreeError, Poisoned, RecordStreamError, RequestError, StreamError};
pub use fence::{Fence, Points};
pub use heap::{Freed, Giving, Heap, Outcome, Whole};
pub use id::{GranuleId, PoolId, StreamId};
pub use plan::{Committed, Place, Plan, Reuse, Step};
pub use policy::{CrossStream, Prefer, SPARE_SHARE, SegmentKind, SizeClass};
pub use pool_stream_stats::PoolStreamStats;
pub use recovery::{Captured, Failure, Miss, Next, Refusal};
pub use shared::{Shared, SharedBy};
pub use size::SizeError;
pub use snapshot::{BlockView, SegmentView, SnapshotBuffer, SnapshotCopy};
pub use space::Granted;
pub use space::block::BlockState;
pub use state_machine::StateMachine;
pub use stats::{Choices, Gauge, RemapStats, SizeClassStats, Stats};
pub use vm::handles::HandleAt;
pub use vm::pins::PinKey;
