//! What a heap has in common with the driver's pools: streams and pools that come and go, and what
//! is told of it.

use super::{Heap, check};
use crate::broken::Broken;
use crate::counters::Count;
use crate::error::{FreeError, RecordStreamError, RequestError, StreamError};
use crate::fence::Fence;
use crate::id::{PoolId, PoolIx, StreamId};
use crate::plan::{Committed, Plan};
use crate::policy::{self, SegmentKind};
use crate::pool_stream_stats::PoolStreamStats;
use crate::snapshot::{BlockView, SnapshotBuffer, SnapshotCopy};
use crate::space::free_list::FreeList;
use crate::state_machine::StateMachine;
use crate::stats::Stats;

impl StateMachine for Heap {
    fn stats(&self) -> Stats {
        Stats { on_host_bytes: self.vm.figures().on_host_bytes, ..self.stats.read() }
    }

    fn pool_stream_stats(&self) -> Vec<PoolStreamStats> {
        let mut all = self.space.pool_stream_stats();
        for one in &mut all {
            one.is_growing = self.pools.at(PoolIx(one.pool as u32)).room_bytes > 0;
        }
        all
    }

    fn copy(&self, buffer: SnapshotBuffer) -> Result<SnapshotCopy, usize> {
        self.space.copy(buffer)
    }

    fn block_at(&self, address: u64) -> Result<BlockView, FreeError> {
        let index = self.space.find_live(address)?;
        Ok(self.space.blocks[index].view(self.space.list_of(index).stream))
    }

    fn check(&self) -> Result<(), Broken> {
        check::check(self)
    }

    fn limit_bytes(&self) -> u64 {
        self.config().limit_bytes
    }

    fn largest_free_bytes(&self) -> u64 {
        self.space.largest_free_bytes()
    }

    fn unused_bytes(&self) -> u64 {
        let unit_bytes =
            |list: &FreeList| policy::unit_bytes(list.kind, self.config().granule_bytes);
        let open = self.space.lists().iter().filter(|list| self.pools.gives_back(list));
        let free = open.flat_map(|list| {
            self.space.free_of(list, unit_bytes(list)).map(|block| match list.kind {
                SegmentKind::Mapped => self.vm.under(&block).unpinned_bytes(),
                // Only as a whole.
                SegmentKind::Plain if block.bytes < self.space.segments[block.segment].bytes => 0,
                SegmentKind::Plain => block.bytes,
            })
        });
        self.vm.figures().idle_bytes + free.sum::<u64>()
    }

    fn unit_bytes(&self) -> u64 {
        policy::unit_bytes(self.config().kind, self.config().granule_bytes)
    }

    fn granule_bytes(&self, pool: PoolId) -> Option<u64> {
        let is_mapped = self.kind_of(pool) == Ok(SegmentKind::Mapped);
        is_mapped.then_some(self.config().granule_bytes)
    }

    fn add_stream(&mut self) -> StreamId {
        let stream = self.streams.add();
        // What was in use at most before was its predecessor's.
        let inherited =
            self.space.lists_mut().iter_mut().filter(|list| list.stream == stream.index);
        inherited.for_each(|list| list.active_bytes.reset_peak());
        stream
    }

    fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        self.streams.plan_retire(stream)
    }

    fn add_pool(&mut self) -> PoolId {
        self.add_pool_of(self.config().kind, true)
    }

    fn release_pool(&mut self, pool: PoolId) -> Result<(), RequestError> {
        self.pools.release(pool)
    }

    fn release_all_pools(&mut self) {
        self.pools.release_all();
    }

    fn record_stream(&mut self, address: u64, stream: StreamId) -> Result<(), RecordStreamError> {
        let index = self.space.find_live(address)?;
        self.streams.live(stream)?;
        if self.space.list_of(index).stream != stream.index {
            let block = &mut self.space.blocks[index];
            self.streams.uses.add(&mut block.uses, stream);
        }
        Ok(())
    }

    fn part_of(&self, fence: Fence) -> Fence {
        self.streams.part_of(fence)
    }

    fn fence_passed(&mut self, fence: Fence) {
        while let Some(block) = self.streams.pass(fence) {
            if self.streams.uses.remove(&mut self.space.blocks[block].uses, fence.stream) {
                self.space.end_leaving(block);
                self.finish_free(block);
            }
        }
    }

    fn plan_synchronize(&mut self) -> Plan {
        let quarantined = std::mem::take(&mut self.quarantine);
        self.streams.plan_idle(quarantined, self.pools.open_when_idle())
    }

    fn commit(&mut self, plan: Plan, address: u64) -> Committed {
        Heap::commit(self, plan, address)
    }

    fn abandon(&mut self, plan: Plan, in_effect: usize) {
        Heap::abandon(self, plan, in_effect);
    }

    fn set_limit(&mut self, limit_bytes: u64) {
        self.headroom.config.limit_bytes = limit_bytes;
    }

    fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
        self.space.lists_mut().iter_mut().for_each(|list| list.active_bytes.reset_peak());
    }
}
