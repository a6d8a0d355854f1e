//! [`AsyncPools`]: what the driver's own memory pools (`cudaMallocAsync`) have handed out, as a
//! state machine. It stands where the heap does with backend `async`, and is as pure.
//!
//! A block is one stream-ordered allocation, and never reused here: the driver does that. What is
//! decided is when a freed block may go back to the driver, and in whose order. A block is in the
//! table from its allocation until its free is finished, and found by its address until the free
//! begins, since the driver may give the address out again before the free is known to be done.
//!
//! `alloc`: pending allocations. `free`: frees, and those that are deferred. Here: the state,
//! streams, pools and what can be asked.

mod alloc;
mod check;
mod free;
#[cfg(test)]
mod tests;

pub use alloc::{DriverAlloc, PendingAlloc};
pub use free::{DeferredFree, FreeOrder, FreeOutcome};

use std::collections::BTreeMap;

use crate::broken::Broken;
use crate::counters::{Count, Counters};
use crate::error::{FreeError, RecordStreamError, RequestError, StreamError};
use crate::fence::{Fence, Streams};
use crate::id::{PoolId, PoolIx, StreamId};
use crate::plan::{Committed, Intent, Plan};
use crate::policy::{self, SegmentKind, SizeClass};
use crate::pool::Pools;
use crate::pool_stream_stats::PoolStreamStats;
use crate::size::QUANTUM;
use crate::snapshot::{BlockView, SegmentView, SnapshotBuffer, SnapshotCopy};
use crate::space::block::{BlockIndex, BlockState};
use crate::state_machine::StateMachine;
use crate::stats::Stats;

/// What a block is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the program's hands.
    Live,
    /// Freed: its uses are being recorded, or it is going back to the driver.
    Freeing,
    /// Freed: waits for its uses on other streams.
    Waiting,
    /// Freed, and no other stream uses it: may go back in its own stream's order.
    Ready,
    /// Freed, and the device was idle since: may go back in any stream's order.
    Complete,
    /// Freed, but its uses could not be recorded: stays until the device was idle.
    Quarantined,
    /// Not a block any more: its place in the table is spare.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    address: u64,
    bytes: u64,
    requested: u64,
    pool: PoolIx,
    stream: StreamId,
    /// Index of the uses on other streams, as recorded or as waited for.
    uses: u32,
    state: State,
    /// Allocated in a capture: the graph owns the memory.
    is_graphs: bool,
    /// Whether the program got it. A block that went back at once is in no statistics.
    is_counted: bool,
}

/// A pool of the driver's.
#[derive(Debug, Default)]
struct MemoryPool {
    /// What it holds, as last observed.
    reserved_bytes: u64,
    /// Of it in blocks.
    active_bytes: u64,
    /// Blocks, those of graphs included, and pending allocations.
    blocks: u64,
}

/// What the driver's memory pools have handed out. See the top of this file.
#[derive(Debug)]
pub struct AsyncPools {
    limit_bytes: u64,
    /// The limit, or what was reserved above it when it was lowered, as far as it still is.
    ceiling_bytes: u64,
    streams: Streams,
    pools: Pools<MemoryPool>,
    /// By index. The places of those that are gone are spare.
    blocks: Vec<Block>,
    spare: Vec<BlockIndex>,
    by_address: BTreeMap<u64, u32>,
    /// Blocks that are ready, complete or quarantined. A synchronisation under way has taken them.
    deferred: Vec<BlockIndex>,
    /// In blocks that graphs own.
    graph_bytes: u64,
    pub(crate) stats: Counters,
    /// One for each pool, class and stream that had a block. They are few.
    pool_streams: Vec<PoolStreamStats>,
}

impl AsyncPools {
    /// A default pool, no stream and no block.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            ceiling_bytes: limit_bytes,
            streams: Streams::default(),
            pools: Pools::new(MemoryPool::default()),
            blocks: Vec::new(),
            spare: Vec::new(),
            by_address: BTreeMap::new(),
            deferred: Vec::new(),
            graph_bytes: 0,
            stats: Counters::default(),
            pool_streams: Vec::new(),
        }
    }

    /// The driver says how much a memory pool holds.
    pub fn observe(&mut self, pool: usize, reserved_bytes: u64) {
        let pool = self.pools.at_mut(PoolIx(pool as u32));
        // Blocks handed out since it was asked are not missing from what it holds.
        pool.reserved_bytes = reserved_bytes.max(pool.active_bytes);
        self.count_reserved();
    }

    /// What the memory pool of a pool holds, as last observed, in bytes.
    pub fn reserved_bytes_of(&self, pool: usize) -> u64 {
        self.pools.at(PoolIx(pool as u32)).reserved_bytes
    }

    fn count_reserved(&mut self) {
        let held: u64 = self.pools.iter().map(|(.., pool)| pool.reserved_bytes).sum();
        let now = held + self.graph_bytes;
        let gauge = &mut self.stats.all.reserved_bytes;
        gauge.add(now.saturating_sub(gauge.current));
        gauge.take(gauge.current.saturating_sub(now));
        self.ceiling_bytes = self.limit_bytes.max(self.ceiling_bytes.min(now));
    }

    // Streams and pools.

    /// The positions of the pools that a trim may take from: the default pool, and those released.
    /// With each, whether it has ended: released, and without a block.
    pub fn trimmable_pools(&self) -> Vec<(usize, bool)> {
        let trimmable = |&(id, is_released, _): &_| id == PoolId::DEFAULT || is_released;
        let pools = self.pools.iter().filter(trimmable);
        pools.map(|(id, is_released, pool)| (id.index(), is_released && pool.blocks == 0)).collect()
    }

    /// The live block that starts at an address.
    fn find_live(&self, address: u64) -> Result<BlockIndex, FreeError> {
        let unknown = FreeError::Unknown { address };
        let (_, &index) = self.by_address.range(..=address).next_back().ok_or(unknown)?;
        let index = BlockIndex(index);
        let Block { address: block_address, bytes: block_bytes, state, .. } =
            self.blocks[index.slot()];
        match address - block_address {
            0 if state == State::Live => Ok(index),
            0 => Err(FreeError::AlreadyFree { address }),
            offset if offset < block_bytes => {
                Err(FreeError::Interior { address, block_address, block_bytes })
            }
            _ => Err(unknown),
        }
    }
}

impl StateMachine for AsyncPools {
    fn stats(&self) -> Stats {
        let mut stats = self.stats.read();
        // Each block is a segment of its own, and all that its class is known to have reserved.
        stats.all.segments = stats.all.active_blocks;
        for class in &mut stats.classes {
            (class.segments, class.reserved_bytes) = (class.active_blocks, class.active_bytes);
        }
        stats
    }

    fn pool_stream_stats(&self) -> Vec<PoolStreamStats> {
        self.pool_streams.iter().copied().filter(PoolStreamStats::is_used).collect()
    }

    fn copy(&self, _: SnapshotBuffer) -> Result<SnapshotCopy, usize> {
        let blocks = self.by_address.values().map(|&index| &self.blocks[BlockIndex(index).slot()]);
        let segment = |block: &Block| SegmentView {
            address: block.address,
            bytes: block.bytes,
            kind: SegmentKind::Plain,
            class: block.class(),
            pool: block.pool.index(),
            stream: block.stream.index(),
            blocks: vec![block.view()],
        };
        Ok(SnapshotCopy::of_views(blocks.map(segment).collect()))
    }

    fn block_at(&self, address: u64) -> Result<BlockView, FreeError> {
        Ok(self.blocks[self.find_live(address)?.slot()].view())
    }

    fn check(&self) -> Result<(), Broken> {
        self.check_all()
    }

    fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    fn largest_free_bytes(&self) -> u64 {
        0
    }

    fn unused_bytes(&self) -> u64 {
        let all = &self.stats.all;
        all.reserved_bytes.current - all.active_bytes.current()
    }

    fn unit_bytes(&self) -> u64 {
        QUANTUM
    }

    fn granule_bytes(&self, _: PoolId) -> Option<u64> {
        None
    }

    fn add_stream(&mut self) -> StreamId {
        let stream = self.streams.add();
        // What was in use at most before was its predecessor's.
        let inherited = self.pool_streams.iter_mut().filter(|one| one.stream == stream.index());
        inherited.for_each(|one| one.active_bytes.reset_peak());
        stream
    }

    fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        self.streams.plan_retire(stream)
    }

    fn add_pool(&mut self) -> PoolId {
        let has_ended = |_, pool: &MemoryPool| pool.blocks == 0 && pool.reserved_bytes == 0;
        let id = self.pools.add(MemoryPool::default(), has_ended);
        self.pool_streams.retain(|one| one.pool != id.index());
        id
    }

    fn release_pool(&mut self, pool: PoolId) -> Result<(), RequestError> {
        self.pools.release(pool)
    }

    fn release_all_pools(&mut self) {
        self.pools.release_all();
    }

    fn record_stream(&mut self, address: u64, stream: StreamId) -> Result<(), RecordStreamError> {
        let index = self.find_live(address)?;
        self.streams.live(stream)?;
        let block = &mut self.blocks[index.slot()];
        if block.stream != stream {
            self.streams.uses.add(&mut block.uses, stream);
        }
        Ok(())
    }

    fn part_of(&self, fence: Fence) -> Fence {
        self.streams.part_of(fence)
    }

    fn fence_passed(&mut self, fence: Fence) {
        while let Some(index) = self.streams.pass(fence) {
            let block = &mut self.blocks[index.slot()];
            let is_waiting = block.state == State::Waiting;
            assert!(is_waiting, "a fence is waited for by a block that was not freed");
            if self.streams.uses.remove(&mut block.uses, fence.stream) {
                block.state = State::Ready;
                self.deferred.push(index);
            }
        }
    }

    fn plan_synchronize(&mut self) -> Plan {
        self.streams.plan_idle(std::mem::take(&mut self.deferred), Vec::new())
    }

    fn commit(&mut self, plan: Plan, _: u64) -> Committed {
        match plan.intent {
            Intent::Free { block, fences } => self.wait_for(block, &fences),
            Intent::Synchronize { fences, quarantined: deferred, .. } => {
                fences.into_iter().for_each(|fence| self.fence_passed(fence));
                deferred.into_iter().for_each(|index| self.complete(index));
            }
            // The last fence of a stream: the event is what tells of it.
            _ => {}
        }
        Committed::Done
    }

    fn abandon(&mut self, plan: Plan, _: usize) {
        match plan.intent {
            Intent::Free { block, .. } => self.quarantine(block),
            Intent::Synchronize { quarantined: deferred, .. } => self.deferred.extend(deferred),
            // The stream's last fence was never recorded: only an idle device frees its blocks.
            _ => {}
        }
    }

    fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.ceiling_bytes = limit_bytes.max(self.stats.all.reserved_bytes.current);
    }

    fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
        self.pool_streams.iter_mut().for_each(|one| one.active_bytes.reset_peak());
    }
}

impl Block {
    const fn class(&self) -> SizeClass {
        policy::size_class(self.bytes)
    }

    fn counts_for(&self, stats: &PoolStreamStats) -> bool {
        let (pool, stream) = (self.pool.index(), self.stream.index());
        (stats.pool, stats.class, stats.stream) == (pool, self.class(), stream)
    }

    fn view(&self) -> BlockView {
        let (state, requested_bytes) = match self.state {
            State::Live => (BlockState::Live, self.requested),
            State::Quarantined => (BlockState::Quarantined, 0),
            _ => (BlockState::Pending, self.requested),
        };
        let (Block { address, bytes, .. }, stream) = (*self, self.stream.index());
        BlockView { address, bytes, requested_bytes, state, stream }
    }
}

impl BlockIndex {
    const fn slot(self) -> usize {
        self.0 as usize
    }
}
