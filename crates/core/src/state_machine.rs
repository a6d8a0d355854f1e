//! [`StateMachine`]: what a [`Heap`] and [`AsyncPools`] have in common.
//!
//! Each method is the one of that name of both, where it is documented.

use crate::async_pool::AsyncPools;
use crate::broken::Broken;
use crate::error::{FreeError, RecordStreamError, RequestError, StreamError};
use crate::fence::Fence;
use crate::heap::{Committed, Heap};
use crate::id::{PoolId, StreamId};
use crate::plan::Plan;
use crate::policy::{PLAIN_UNIT_BYTES, SegmentKind};
use crate::pool_stream_stats::PoolStreamStats;
use crate::size::QUANTUM;
use crate::snapshot::{BlockView, SegmentView};
use crate::stats::Stats;

/// Makes the trait of methods that both have, and implements it by them.
macro_rules! state_machine {
    (
        $(#[$doc:meta])*
        asked { $($(#[$asked_doc:meta])*
            fn $asked:ident($($asked_arg:ident: $asked_of:ty),*) -> $answer:ty;)* }
        told { $($(#[$told_doc:meta])*
            fn $told:ident($($told_arg:ident: $told_of:ty),*) $(-> $outcome:ty)?;)* }
    ) => {
        $(#[$doc])*
        pub trait StateMachine {
            $($(#[$asked_doc])* fn $asked(&self, $($asked_arg: $asked_of),*) -> $answer;)*
            $($(#[$told_doc])* fn $told(&mut self, $($told_arg: $told_of),*) $(-> $outcome)?;)*
        }

        impl StateMachine for Heap {
            $(fn $asked(&self, $($asked_arg: $asked_of),*) -> $answer {
                Heap::$asked(self, $($asked_arg),*)
            })*
            $(fn $told(&mut self, $($told_arg: $told_of),*) $(-> $outcome)? {
                Heap::$told(self, $($told_arg),*)
            })*
        }

        impl StateMachine for AsyncPools {
            $(fn $asked(&self, $($asked_arg: $asked_of),*) -> $answer {
                AsyncPools::$asked(self, $($asked_arg),*)
            })*
            $(fn $told(&mut self, $($told_arg: $told_of),*) $(-> $outcome)? {
                AsyncPools::$told(self, $($told_arg),*)
            })*
        }
    };
}

state_machine! {
    /// What decides for a device, whether it keeps the memory itself or the driver's pools do.
    asked {
        /// Statistics at this moment.
        fn stats() -> &Stats;
        /// What each pool, class and stream has.
        fn pool_stream_stats() -> Vec<PoolStreamStats>;
        /// What is held.
        fn snapshot() -> Vec<SegmentView>;
        /// The live block that starts at an address.
        fn block_at(address: u64) -> Result<BlockView, FreeError>;
        /// Proves every invariant.
        fn check() -> Result<(), Broken>;
        /// The limit of reserved bytes.
        fn limit_bytes() -> u64;
        /// The largest free block, in bytes; 0 where the driver keeps them.
        fn largest_free_bytes() -> u64;
        /// Unused bytes that serve requests of any size.
        fn unused_bytes() -> u64;
        /// The unit in which memory is taken from the device, in bytes.
        fn unit_bytes() -> u64;
        /// Size of a granule of a pool's memory; `None` where it comes in plain allocations.
        fn granule_bytes(pool: PoolId) -> Option<u64>;
    }
    told {
        /// Adds a stream.
        fn add_stream() -> StreamId;
        /// Retires a stream, and plans its last fence.
        fn retire_stream(stream: StreamId) -> Result<Plan, StreamError>;
        /// Adds a private pool.
        fn add_pool() -> PoolId;
        /// Releases a private pool.
        fn release_pool(pool: PoolId) -> Result<(), RequestError>;
        /// Releases every pool, for teardown.
        fn release_all_pools();
        /// Notes that a live block is also used on another stream.
        fn record_stream(address: u64, stream: StreamId) -> Result<(), RecordStreamError>;
        /// The device has passed a fence.
        fn fence_passed(fence: Fence);
        /// Plans to wait until the device is idle.
        fn plan_synchronize() -> Plan;
        /// Takes back a plan that is done, with the address that one of its steps gave.
        fn commit(plan: Plan, address: u64) -> Committed;
        /// Takes back a plan that failed, with the number of leading steps still in effect.
        fn abandon(plan: Plan, in_effect: usize);
        /// Changes the limit of reserved bytes.
        fn set_limit(limit_bytes: u64);
        /// Sets every peak to its current value.
        fn reset_peaks();
    }
}

impl Heap {
    /// The limit of reserved bytes.
    pub const fn limit_bytes(&self) -> u64 {
        self.config().limit_bytes
    }

    /// The unit in which memory is taken from the device, in bytes.
    pub const fn unit_bytes(&self) -> u64 {
        match self.config().kind {
            SegmentKind::Mapped => self.config().granule_bytes,
            SegmentKind::Plain => PLAIN_UNIT_BYTES,
        }
    }

    /// Size of a granule of a pool's memory; `None` where it comes in plain allocations.
    pub fn granule_bytes(&self, pool: PoolId) -> Option<u64> {
        let is_mapped = self.kind_of(pool) == Ok(SegmentKind::Mapped);
        is_mapped.then_some(self.config().granule_bytes)
    }
}

impl AsyncPools {
    /// 0: the driver does not tell.
    pub const fn largest_free_bytes(&self) -> u64 {
        0
    }

    /// What the driver's pools hold beside blocks, as last observed.
    pub const fn unused_bytes(&self) -> u64 {
        let all = &self.stats().all;
        all.reserved_bytes.current - all.active_bytes.current
    }

    /// The unit in which memory is taken from the device, in bytes, as far as the driver tells.
    pub const fn unit_bytes(&self) -> u64 {
        QUANTUM
    }

    /// `None`: there are no granules.
    pub const fn granule_bytes(&self, _: PoolId) -> Option<u64> {
        None
    }
}
