//! The heap: all pools of one device, and the operations on them.
//!
//! `request`, `grow`, `site`, `handle`, `harvest`, `berth`, `lead`, `loan` and `alias`: the way of
//! a malloc. `place`: a block at an address that is named. `free` and `home`: the way of a free.
//! `pin`: what stays. `commit`: what becomes of a plan. `trim`: giving memory back. `stream`:
//! streams, fences and pools. Here: the state, and the two moves everything is made of: filing a
//! free block, and occupying one.
//! Invariants are numbered I1.. and proved by [`Heap::check`].

mod alias;
mod berth;
mod commit;
mod free;
mod grow;
mod handle;
mod harvest;
mod home;
mod lead;
mod loan;
mod pin;
mod place;
mod request;
mod site;
mod stream;
mod trim;

use std::collections::VecDeque;

pub use commit::Committed;
pub use free::Freed;
pub use request::{Granted, Outcome, Reuse};

use crate::address_map::AddressMap;
use crate::block::{BlockIndex, BlockState, Blocks, NO_USES};
use crate::fence::Streams;
use crate::free_list::FreeList;
use crate::granule::Granules;
use crate::id::{PoolId, StreamId};
use crate::pin::Pins;
use crate::plan::Wanted;
use crate::policy::{self, CrossStream, SegmentKind, SizeClass};
use crate::pool::Pools;
use crate::segment::Segments;
use crate::stats::Stats;
use home::Return;

/// How a heap behaves. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How segments of the default pool are obtained, and of others that do not say.
    pub kind: SegmentKind,
    /// Size of a granule: a power of two, at least the device's granularity.
    pub granule_bytes: u64,
    /// The device's physical memory: how many addresses a mapped segment gets.
    pub device_bytes: u64,
    /// Reserved bytes never pass this.
    pub limit_bytes: u64,
    /// When a free block serves another stream.
    pub cross_stream: CrossStream,
    /// How many times the granules of a handle must be held before any is made so large:
    /// [`HELD_PER_HANDLE`](crate::HELD_PER_HANDLE) but in tests.
    pub held_per_handle: u64,
}

/// All pools of one device, as a state machine. See the [crate] documentation.
#[derive(Debug)]
pub struct Heap {
    pub(crate) config: Config,
    pub(crate) blocks: Blocks,
    pub(crate) lists: Vec<FreeList>,
    pub(crate) map: AddressMap,
    pub(crate) segments: Segments,
    pub(crate) granules: Granules,
    pub(crate) streams: Streams,
    pub(crate) pools: Pools,
    pub(crate) uses: UseTable,
    pub(crate) pins: Pins,
    pub(crate) quarantine: Vec<BlockIndex>,
    pub(crate) stats: Stats,
    /// Bytes that plans under way will add to the reserved bytes.
    pub(crate) planned_bytes: u64,
    /// Berths with the numbers they had when they became empty, oldest first; some are used again.
    pub(crate) oldest_berths: VecDeque<(BlockIndex, u64)>,
    /// How often a berth became empty.
    pub(crate) berths_emptied: u64,
    /// Granules that back another place than their home.
    pub(crate) remapped_granules: u64,
    /// What goes home with the block that is being freed. Kept for its memory alone.
    returns: Vec<Return>,
    /// The device refused a generous reservation, and none was given back since: ask for no more
    /// addresses than needed.
    pub(crate) addresses_are_scarce: bool,
    /// A growth in large handles failed, none in single granules did after it, and no memory was
    /// given back since: create no more than needed.
    pub(crate) memory_is_scarce: bool,
}

impl Heap {
    /// An empty heap with its default pool and no stream.
    pub fn new(config: Config) -> Self {
        debug_assert!(config.granule_bytes.is_power_of_two());
        Self {
            config,
            blocks: Blocks::default(),
            lists: Vec::new(),
            map: AddressMap::new(),
            segments: Segments::default(),
            granules: Granules::default(),
            streams: Streams::default(),
            pools: Pools::new(config.kind),
            uses: UseTable::default(),
            pins: Pins::default(),
            quarantine: Vec::new(),
            stats: Stats::default(),
            planned_bytes: 0,
            oldest_berths: VecDeque::new(),
            berths_emptied: 0,
            remapped_granules: 0,
            returns: Vec::new(),
            addresses_are_scarce: false,
            memory_is_scarce: false,
        }
    }

    /// How the heap behaves.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the limit of reserved bytes. What is reserved above it stays until trimmed.
    pub const fn set_limit(&mut self, limit_bytes: u64) {
        self.config.limit_bytes = limit_bytes;
    }

    /// Statistics at this moment.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Sets every peak to its current value: those of the statistics, and of the accounts.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
        self.lists.iter_mut().for_each(|list| list.active_bytes.reset_peak());
    }

    /// Statistics, to count a retry or reset totals.
    pub const fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// The free list of a request, made if there is none yet.
    #[inline]
    fn list_of(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
    ) -> Result<u32, crate::RequestError> {
        let class = policy::class(bytes);
        self.pools.live(pool)?;
        self.streams.live(stream)?;
        Ok(self.list_in(pool.index, class, stream.index))
    }

    /// The free list of a pool, class and stream, made if there is none yet.
    #[inline]
    fn list_in(&mut self, pool: u32, class: SizeClass, stream: u32) -> u32 {
        let of = self.pools.at(pool);
        if let Some(list) = of.list(class, stream) {
            return list;
        }
        self.lists.push(FreeList::new(pool, of.kind, class, stream));
        let list = (self.lists.len() - 1) as u32;
        self.pools.at_mut(pool).set_list(class, stream, list);
        list
    }

    #[inline]
    pub(crate) fn list(&self, index: u32) -> &FreeList {
        &self.lists[index as usize]
    }

    /// Files an unfiled block as free in its list, joined with the free blocks around it (I2).
    #[inline]
    fn file(&mut self, index: BlockIndex) {
        let mut index = index;
        let block = self.blocks[index];
        let list = block.list;
        self.blocks[index].state = BlockState::Free;
        if let Some(next) = block.next.some()
            && self.blocks[next].state == BlockState::Free
            && self.blocks[next].list == list
        {
            self.lists[list as usize].remove(&mut self.blocks, next);
            self.blocks.absorb_next(index);
        }
        if let Some(previous) = block.previous.some()
            && self.blocks[previous].state == BlockState::Free
            && self.blocks[previous].list == list
        {
            self.lists[list as usize].remove(&mut self.blocks, previous);
            self.blocks.absorb_next(previous);
            index = previous;
        }
        self.insert_free(index);
        if block.is_loan {
            self.send_home(index, block.address..block.end());
        }
    }

    /// Puts a free block into its bin.
    #[inline]
    fn insert_free(&mut self, index: BlockIndex) {
        let list = self.blocks[index].list;
        self.lists[list as usize].insert(&mut self.blocks, index);
    }

    /// Takes a free block out of its bin.
    #[inline]
    fn remove_free(&mut self, index: BlockIndex) {
        let list = self.blocks[index].list;
        self.lists[list as usize].remove(&mut self.blocks, index);
    }

    /// Makes an unfiled block live for a request. What it has too much is cut off and filed as
    /// free in the list the block belonged to.
    #[inline]
    fn occupy(&mut self, index: BlockIndex, wanted: Wanted) -> Granted {
        let FreeList { kind, class, .. } = *self.list(wanted.list);
        if policy::splits(kind, class, self.blocks[index].bytes - wanted.bytes) {
            let rest = self.blocks.cut(index, wanted.bytes);
            self.blocks[index].state = BlockState::Live;
            self.file(rest);
        }
        self.make_live(index, wanted)
    }

    /// Takes a block out of its bin and makes it live. What it has too much stays free: joined
    /// with its neighbours it was already (I2).
    #[inline]
    fn occupy_free(&mut self, index: BlockIndex, wanted: Wanted) -> Granted {
        self.remove_free(index);
        let FreeList { kind, class, .. } = *self.list(wanted.list);
        if policy::splits(kind, class, self.blocks[index].bytes - wanted.bytes) {
            let rest = self.blocks.cut(index, wanted.bytes);
            self.insert_free(rest);
        }
        self.make_live(index, wanted)
    }

    #[inline]
    fn make_live(&mut self, index: BlockIndex, wanted: Wanted) -> Granted {
        let block = &mut self.blocks[index];
        block.state = BlockState::Live;
        block.list = wanted.list;
        block.requested = wanted.requested;
        block.uses = NO_USES;
        let grant = Granted { address: block.address, bytes: block.bytes };
        self.map.insert(&mut self.blocks, index, grant.address);
        let list = &mut self.lists[wanted.list as usize];
        list.active_bytes.add(grant.bytes);
        self.stats.allocate(list.class as usize, wanted.requested, grant.bytes);
        grant
    }
}

/// The streams that use a block beside its own, for the few blocks that have such uses.
#[derive(Debug, Default)]
pub(crate) struct UseTable {
    table: Vec<Vec<StreamId>>,
    spare: Vec<u32>,
}

impl UseTable {
    /// Streams recorded under an index; none for [`NO_USES`].
    pub(crate) fn get(&self, index: u32) -> &[StreamId] {
        self.table.get(index as usize).map_or(&[], Vec::as_slice)
    }

    /// How many indices are in use.
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.spare.len()
    }

    /// Adds a stream, once. Returns the index, which is new if it was [`NO_USES`].
    fn add(&mut self, index: u32, stream: StreamId) -> u32 {
        let index = if index == NO_USES {
            self.spare.pop().unwrap_or_else(|| {
                self.table.push(Vec::new());
                (self.table.len() - 1) as u32
            })
        } else {
            index
        };
        let streams = &mut self.table[index as usize];
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        index
    }

    /// Removes a stream; true if none is left, and the index is free again.
    fn remove(&mut self, index: u32, stream: StreamId) -> bool {
        let streams = &mut self.table[index as usize];
        streams.retain(|&s| s != stream);
        if streams.is_empty() {
            self.spare.push(index);
        }
        self.table[index as usize].is_empty()
    }

    /// Removes all streams of an index, which is free again.
    fn clear(&mut self, index: u32) {
        if index != NO_USES && !self.table[index as usize].is_empty() {
            self.table[index as usize].clear();
            self.spare.push(index);
        }
    }
}
