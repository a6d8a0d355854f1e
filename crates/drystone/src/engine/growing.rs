//! Blocks that grow in place: their room, the way of a growth, and of what is given up.
//!
//! Invariant: whoever calls these has the block to himself. What it gave up and other streams still
//! use is waited for before it is grown into again.

use drystone_core::{FreeError, Freed, Granted, Heap, PoolId, RequestError, StreamId};

use super::Engine;
use crate::backend::BackendState;
use crate::build_error::{BuildError, check_virtual_memory};
use crate::error::AllocateError;
use crate::growable::ReserveError;
use crate::options::Backend;
use crate::state_lock::StateLock;

impl Engine {
    /// A pool for a block that grows, with its addresses reserved, and the size of a granule.
    pub(crate) fn reserve(
        &self,
        stream: StreamId,
        room_bytes: u64,
    ) -> Result<(PoolId, Granted, u64), ReserveError> {
        let heap = self.mapping_heap()?;
        let failed = |error| AllocateError::Driver { error, bytes: room_bytes };
        self.refuse_at_the_end().map_err(failed)?;
        let pool = heap.change(|heap| heap.add_growing_pool(room_bytes));
        let pool = pool.map_err(AllocateError::from)?.map_err(RequestError::from)?;
        let reserved = heap.change(|heap| heap.plan_room(pool, stream));
        let reserved = reserved.map_err(AllocateError::from)?.map_err(AllocateError::from);
        let reserved = reserved.and_then(|plan| self.perform(plan).map_err(failed));
        let granule_bytes = heap.read().config().granule_bytes;
        match reserved.and_then(|()| Ok(heap.read().room_of(pool)?)) {
            Ok(room) => Ok((pool, room, granule_bytes)),
            Err(error) => {
                self.give_up_room(pool);
                Err(error.into())
            }
        }
    }

    /// Memory for so many bytes more of the block of a growing pool, whole granules, right behind
    /// it: a live block of its own, if `block` is none, or else part of it.
    pub(crate) fn extend(
        &self,
        pool: PoolId,
        stream: StreamId,
        block: Option<u64>,
        bytes: u64,
    ) -> Result<(), AllocateError> {
        let waits: [&dyn Fn() -> bool; 2] =
            [&|| self.await_pending(), &|| self.synchronize().is_ok()];
        let mut granted = self.allocate_slowly(pool, stream, bytes);
        for wait in waits {
            let is_used =
                matches!(granted, Err(AllocateError::Request(RequestError::StillUsed { .. })));
            // A captured stream's thread waits for nothing.
            if !is_used || self.executor.is_captured(Some(pool), stream).unwrap_or(true) {
                break;
            }
            wait();
            granted = self.allocate_slowly(pool, stream, bytes);
        }
        let granted = granted?;
        if let (Some(address), BackendState::Heap(heap)) = (block, &self.backend)
            && heap.change(|heap| heap.join_live(address, granted.address))?.is_err()
        {
            // Nobody else knows of it.
            let _ = self.free(granted.address);
            return Err(RequestError::Freed { address }.into());
        }
        Ok(())
    }

    /// The block at an address keeps so many bytes, whole granules, and gives up the rest.
    pub(crate) fn give_up(&self, address: u64, bytes: u64) -> Result<(), FreeError> {
        let BackendState::Heap(heap) = &self.backend else { return Ok(()) };
        let freed = heap.change(|heap| {
            let rest = if bytes > 0 { heap.cut_live(address, bytes)? } else { address };
            heap.free(rest)
        })??;
        if let Freed::Plan(plan) = freed {
            self.finish(*plan);
        }
        Ok(())
    }

    /// The block is freed and the pool serves nobody more: a trim gives its addresses back.
    pub(crate) fn give_up_room(&self, pool: PoolId) {
        // It was added, and is released here alone.
        let _ = self.backend.state().change(|state| state.release_pool(pool));
    }

    /// The heap, if it can map memory.
    fn mapping_heap(&self) -> Result<&StateLock<Heap>, BuildError> {
        let BackendState::Heap(heap) = &self.backend else {
            let (pool, allocator) = (Backend::Vmm, Backend::Async);
            return Err(BuildError::OtherBackend { pool, allocator });
        };
        let granule_bytes = heap.read().config().granule_bytes;
        check_virtual_memory(&self.executor.driver.info(), granule_bytes)?;
        Ok(heap)
    }
}
