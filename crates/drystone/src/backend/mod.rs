//! Backends: the state machine that decides, behind its lock, and what differs when it acts.
//!
//! `heap`: segments of this allocator's own making, in virtual memory or plain allocations.
//! `async_pools`: memory pools of the driver's, which do the caching. Everything around them is the
//! same for both: streams and events, recovery, waiting, the end.

pub(crate) mod async_pools;
pub(crate) mod heap;

use std::ops::Deref;

use drystone_core::{
    AsyncPools, Heap, RemapStats, SegmentView, SnapshotBuffer, StateMachine, StreamId,
};
use drystone_driver::DriverError;

use self::async_pools::PoolsDevice;
use crate::error::TrimError;
use crate::executor::Executor;
use crate::state_lock::StateLock;

/// Who decides.
#[expect(clippy::large_enum_variant, reason = "one for each allocator; a hit follows no pointer")]
pub(crate) enum BackendState {
    /// Backends `vmm` and `malloc`.
    Heap(StateLock<Heap>),
    /// Backend `async`.
    AsyncPools(StateLock<AsyncPools>),
}

impl BackendState {
    /// What is the same for both.
    pub(crate) fn state(&self) -> &StateLock<dyn StateMachine> {
        match self {
            BackendState::Heap(heap) => heap,
            BackendState::AsyncPools(pools) => pools,
        }
    }

    /// To look at, poisoned or not.
    pub(crate) fn read(&self) -> impl Deref<Target = dyn StateMachine> {
        self.state().read()
    }

    /// What is held at one moment. The copy's memory is made ready, and the copy is told, with no
    /// lock held.
    pub(crate) fn snapshot(&self) -> Vec<SegmentView> {
        let mut blocks = 0;
        loop {
            let buffer = SnapshotBuffer::for_blocks(blocks);
            let copied = self.read().copy(buffer);
            match copied {
                Ok(copy) => return copy.views(),
                Err(missing) => blocks = missing,
            }
        }
    }

    /// What is mapped away from home and pinned; nothing where the driver does the caching.
    pub(crate) fn remap_stats(&self) -> RemapStats {
        match self {
            BackendState::Heap(heap) => heap.read().remap_stats(),
            BackendState::AsyncPools(_) => RemapStats::default(),
        }
    }

    /// Gives freed blocks that waited for what has passed meanwhile back to the driver. True if any
    /// went. A freed block of a heap is the heap's again.
    ///
    /// Errors: no driver call can succeed any more, and no further one was tried.
    pub(crate) fn free_deferred(
        &self,
        executor: &Executor,
        brought: Option<StreamId>,
    ) -> Result<bool, DriverError> {
        match self {
            BackendState::Heap(_) => Ok(false),
            BackendState::AsyncPools(pools) => {
                PoolsDevice { executor, pools }.free_deferred(brought)
            }
        }
    }

    /// Whether freed blocks wait to go back to the driver, and for no fence.
    pub(crate) fn has_deferred(&self) -> bool {
        match self {
            BackendState::Heap(_) => false,
            BackendState::AsyncPools(pools) => pools.read().has_deferred(),
        }
    }

    /// Gives back what can be given back without waiting. Returns the bytes. Refused while a stream
    /// is captured.
    pub(crate) fn trim(&self, executor: &Executor) -> Result<u64, TrimError> {
        match self {
            BackendState::Heap(heap) => heap::trim(executor, heap, Heap::plan_trim),
            BackendState::AsyncPools(pools) => PoolsDevice { executor, pools }.trim(),
        }
    }

    /// The same of released pools alone; of the driver's pools, all.
    pub(crate) fn trim_released(&self, executor: &Executor) -> Result<u64, TrimError> {
        match self {
            BackendState::Heap(heap) => heap::trim(executor, heap, Heap::plan_trim_released),
            BackendState::AsyncPools(pools) => PoolsDevice { executor, pools }.trim(),
        }
    }

    /// The end, after everything unused was given back.
    pub(crate) fn close(&self, executor: &Executor) -> Result<(), DriverError> {
        match self {
            BackendState::Heap(_) => Ok(()),
            BackendState::AsyncPools(pools) => PoolsDevice { executor, pools }.close(),
        }
    }
}
