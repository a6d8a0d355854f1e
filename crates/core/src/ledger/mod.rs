//! The ledger: what the driver's own memory pools have handed out, as a state machine. It stands
//! where the heap does when the driver pools by itself (source `async`), and is as pure.
//!
//! A block is one stream-ordered allocation. The ledger never reuses one: it decides when a freed
//! block may go back to the driver, and in the order of which stream. Until then the block is
//! pending. `malloc`: the way of a malloc; `free`: the way of a free; `account`: what each pool and
//! stream has. This file: the state, streams and pools. What a graph owns is counted as reserved as
//! long as it is live here.

mod account;
mod check;
mod free;
mod malloc;
#[cfg(test)]
mod tests;

pub use free::{DeferredFree, FreeOrder, FreeOutcome};
pub use malloc::{DriverAlloc, PendingAlloc};

use std::collections::BTreeMap;

use crate::account::PoolStreamStats;
use crate::block::{BlockIndex, BlockState};
use crate::error::{FreeError, RecordStreamError, RequestError, StreamError};
use crate::fence::{Fence, Streams};
use crate::heap::Committed;
use crate::id::{PoolId, StreamId};
use crate::plan::{Intent, Plan, Step};
use crate::policy::{self, SegmentKind};
use crate::snapshot::{BlockView, SegmentView};
use crate::stats::Stats;

/// What a block is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the program's hands.
    Live,
    /// Freed; waits for the last use on other streams, or on one that is retired.
    Waiting,
    /// Freed; may go back to the driver.
    Ready,
    /// Being given back.
    FreeOutcome,
    /// Freed, but its last use could not be recorded: stays until the device was idle.
    Quarantined,
}

#[derive(Debug)]
struct Entry {
    address: u64,
    bytes: u64,
    requested: u64,
    pool: u32,
    stream: StreamId,
    /// Position of its account.
    account: u32,
    /// Live: the other streams that use it. Waiting: the streams it waits for.
    uses: Vec<StreamId>,
    state: State,
    /// Allocated in a capture: the graph owns the memory.
    is_graphs: bool,
    /// The host knows that every use is complete.
    is_complete: bool,
    /// A block that was refused after all is in no statistics.
    is_counted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    generation: u32,
    is_released: bool,
    /// What the driver's memory pool holds, as last observed.
    reserved_bytes: u64,
    /// Of it in blocks.
    active_bytes: u64,
    /// Blocks, those of graphs included, and orders under way.
    entries: u64,
}

/// What the driver's memory pools have handed out. See the top of this file.
#[derive(Debug)]
pub struct AsyncPools {
    limit_bytes: u64,
    /// The limit, or what was reserved above it when it was lowered, as far as it still is.
    ceiling_bytes: u64,
    streams: Streams,
    pools: Vec<Pool>,
    table: Vec<Option<Entry>>,
    spare: Vec<u32>,
    /// All blocks but those that are leaving: the driver may give their addresses out again.
    by_address: BTreeMap<u64, u32>,
    ready: Vec<u32>,
    quarantine: Vec<u32>,
    /// In blocks that graphs own.
    graph_bytes: u64,
    stats: Stats,
    accounts: Vec<PoolStreamStats>,
}

impl AsyncPools {
    /// An empty ledger with its default pool and no stream.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            ceiling_bytes: limit_bytes,
            streams: Streams::default(),
            pools: vec![Pool::default()],
            table: Vec::new(),
            spare: Vec::new(),
            by_address: BTreeMap::new(),
            ready: Vec::new(),
            quarantine: Vec::new(),
            graph_bytes: 0,
            stats: Stats::default(),
            accounts: Vec::new(),
        }
    }

    /// The limit of reserved bytes.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Changes the limit of reserved bytes. What is reserved above it stays until trimmed.
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.ceiling_bytes = limit_bytes.max(self.stats.all.reserved_bytes.current);
    }

    /// Statistics at this moment. The driver's pool serves both classes: of what is reserved, a
    /// class has what its blocks hold, and the rest belongs to none.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Statistics, to count a retry or reset totals.
    pub const fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// The driver says how much a memory pool holds.
    pub fn observe(&mut self, pool: usize, reserved_bytes: u64) {
        if let Some(pool) = self.pools.get_mut(pool) {
            // Blocks handed out since it was asked are not missing from what it holds.
            pool.reserved_bytes = reserved_bytes.max(pool.active_bytes);
        }
        self.count_reserved();
    }

    /// What the memory pool of a pool holds, as last observed, in bytes.
    pub fn reserved_bytes_of(&self, pool: usize) -> u64 {
        self.pools.get(pool).map_or(0, |pool| pool.reserved_bytes)
    }

    fn count_reserved(&mut self) {
        let now = self.pools.iter().map(|pool| pool.reserved_bytes).sum::<u64>() + self.graph_bytes;
        let gauge = &mut self.stats.all.reserved_bytes;
        gauge.add(now.saturating_sub(gauge.current));
        gauge.take(gauge.current.saturating_sub(now));
        self.ceiling_bytes = self.limit_bytes.max(self.ceiling_bytes.min(now));
    }

    // Streams and pools.

    /// Adds a stream. It may succeed a retired stream whose work is complete.
    pub fn add_stream(&mut self) -> StreamId {
        let stream = self.streams.add();
        self.succeed_stream(stream);
        stream
    }

    /// Retires a stream that is about to be destroyed, and plans its last fence. Its blocks stay
    /// valid.
    ///
    /// # Errors
    /// The stream is unknown.
    pub fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        let fence = self.streams.retire(stream)?;
        Ok(Plan { steps: vec![Step::Record { fence }], intent: Intent::Retire { fence } })
    }

    /// The device has passed a fence: blocks that waited for it may go back to the driver.
    pub fn fence_passed(&mut self, fence: Fence) {
        let Some(stream) = self.streams.of_fence(fence) else {
            return;
        };
        stream.passed = stream.passed.max(fence.point);
        while let Some(index) = self.streams.at_mut(fence.stream.index).dequeue() {
            self.pass_use(index.0, fence.stream);
        }
    }

    /// Plans to wait until the device is idle. Afterwards every block freed before may go back to
    /// the driver in the order of any stream.
    pub fn plan_synchronize(&mut self) -> Plan {
        let fences = self.streams.fences_when_idle();
        let held = self.quarantine.drain(..).chain(self.ready.drain(..));
        let quarantined = held.map(BlockIndex).collect();
        let intent = Intent::Synchronize { fences, quarantined, pools: Vec::new() };
        Plan { steps: vec![Step::SynchronizeDevice], intent }
    }

    /// Adds a private pool: a memory pool of the driver's of its own.
    pub fn add_pool(&mut self) -> PoolId {
        let is_ended = |pool: &Pool| pool.is_released && pool.entries == 0;
        let ended = self.pools.iter().skip(1).position(|p| is_ended(p) && p.reserved_bytes == 0);
        if let Some(at) = ended {
            let pool = &mut self.pools[at + 1];
            *pool = Pool { generation: pool.generation + 1, ..Pool::default() };
            let id = PoolId { index: at as u32 + 1, generation: pool.generation };
            self.succeed_pool(id);
            return id;
        }
        self.pools.push(Pool::default());
        PoolId { index: self.pools.len() as u32 - 1, generation: 0 }
    }

    /// Releases a private pool: it serves no further request, and a trim gives its memory back.
    /// Its live blocks stay valid.
    ///
    /// # Errors
    /// The pool is unknown or the default pool.
    pub fn release_pool(&mut self, pool: PoolId) -> Result<(), RequestError> {
        self.live_pool(pool)?;
        if pool == PoolId::DEFAULT {
            return Err(RequestError::UnknownPool { pool });
        }
        self.pools[pool.index()].is_released = true;
        Ok(())
    }

    /// Releases every pool: for teardown, when nobody can make a request any more.
    pub fn release_all_pools(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.is_released = true);
    }

    /// The positions of the pools that a trim may take from: the default pool, and those released.
    /// With each, whether it has ended: released, and without a block.
    pub fn trimmable_pools(&self) -> Vec<(usize, bool)> {
        let pools = self.pools.iter().enumerate();
        let open = pools.filter(|&(at, pool)| at == 0 || pool.is_released);
        open.map(|(at, pool)| (at, pool.is_released && pool.entries == 0)).collect()
    }

    fn live_pool(&self, id: PoolId) -> Result<(), RequestError> {
        match self.pools.get(id.index()) {
            Some(pool) if pool.generation == id.generation && !pool.is_released => Ok(()),
            _ => Err(RequestError::UnknownPool { pool: id }),
        }
    }

    // Plans.

    /// Takes back a plan whose steps are all done.
    pub fn commit(&mut self, plan: Plan) -> Committed {
        match plan.intent {
            Intent::Free { block, fences } => self.wait_for(block.0, &fences),
            Intent::Synchronize { fences, quarantined, .. } => {
                for fence in fences {
                    self.fence_passed(fence);
                }
                for index in quarantined {
                    self.release_from_quarantine(index.0, true);
                }
            }
            _ => {}
        }
        Committed::Done
    }

    /// Takes back a plan that failed.
    pub fn abandon(&mut self, plan: Plan) {
        match plan.intent {
            Intent::Free { block, .. } => self.quarantine(block.0),
            Intent::Synchronize { quarantined, .. } => {
                for index in quarantined {
                    self.release_from_quarantine(index.0, false);
                }
            }
            _ => {}
        }
    }

    // Blocks.

    fn entry(&self, index: u32) -> Option<&Entry> {
        self.table.get(index as usize)?.as_ref()
    }

    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.table.get_mut(index as usize)?.as_mut()
    }

    /// The live block that starts at an address.
    fn find_live(&self, address: u64) -> Result<u32, FreeError> {
        let below = self.by_address.range(..=address).next_back();
        let Some((index, entry)) = below.and_then(|(_, &i)| Some((i, self.entry(i)?))) else {
            return Err(FreeError::Unknown { address });
        };
        if address == entry.address {
            let is_live = entry.state == State::Live;
            return if is_live { Ok(index) } else { Err(FreeError::AlreadyFree { address }) };
        }
        let (block_address, block_bytes) = (entry.address, entry.bytes);
        if address - block_address < block_bytes {
            return Err(FreeError::Interior { address, block_address, block_bytes });
        }
        Err(FreeError::Unknown { address })
    }

    /// Notes that a live block is also used on another stream than its own.
    ///
    /// # Errors
    /// The address is not that of a live block, or the stream is unknown.
    pub fn record_stream(
        &mut self,
        address: u64,
        stream: StreamId,
    ) -> Result<(), RecordStreamError> {
        let index = self.find_live(address)?;
        self.streams.live(stream)?;
        if let Some(entry) = self.entry_mut(index)
            && entry.stream != stream
            && !entry.uses.contains(&stream)
        {
            entry.uses.push(stream);
        }
        Ok(())
    }

    /// What the driver has handed out, in address order: each block a plain segment of its own.
    /// Where its pools lie, and what they hold unused, the driver does not tell.
    pub fn snapshot(&self) -> Vec<SegmentView> {
        let entries = self.by_address.values().filter_map(|&index| self.entry(index));
        let segment = |entry: &Entry| SegmentView {
            address: entry.address,
            bytes: entry.bytes,
            kind: SegmentKind::Plain,
            class: policy::class(entry.bytes),
            pool: entry.pool as usize,
            stream: entry.stream.index(),
            blocks: vec![entry.view()],
        };
        entries.map(segment).collect()
    }

    /// The live block that starts at an address.
    ///
    /// # Errors
    /// There is none.
    pub fn block_at(&self, address: u64) -> Result<BlockView, FreeError> {
        let entry = self.entry(self.find_live(address)?);
        entry.map(Entry::view).ok_or(FreeError::Unknown { address })
    }
}

impl Entry {
    fn view(&self) -> BlockView {
        let state = match self.state {
            State::Live => BlockState::Live,
            State::Quarantined => BlockState::Quarantined,
            State::Waiting | State::Ready | State::FreeOutcome => BlockState::Pending,
        };
        let is_requested = state != BlockState::Quarantined;
        BlockView {
            address: self.address,
            bytes: self.bytes,
            requested_bytes: if is_requested { self.requested } else { 0 },
            state,
            stream: self.stream.index(),
        }
    }
}
