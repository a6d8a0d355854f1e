//! The heap: all pools of one device, and the operations on them.
//!
//! It joins what stands alone below it: the block space (`space`), the page table (`vm`), streams
//! and fences (`fence`). `alloc` and `reuse`: a request that free memory serves. `grow` and
//! `remap`: one that needs memory mapped. `free`: the way of a free. `commit`: what becomes of a
//! plan. `trim`: giving memory back. `lifecycle`: streams and pools that come and go. Here: the
//! state, and what is told of it. Invariants are numbered I1.. and proved by [`Heap::check`].

mod alloc;
mod commit;
mod free;
mod grow;
mod lifecycle;
mod remap;
mod reuse;
mod search;
#[cfg(test)]
mod tests;
mod trim;
mod windows;

pub use alloc::Outcome;
pub(crate) use alloc::{Look, Unserved};
pub use commit::Committed;
pub use free::Freed;
pub use search::Reuse;

use crate::error::{FreeError, RequestError};
use crate::fence::Streams;
use crate::headroom::Headroom;
use crate::id::{ListIx, PoolId, PoolIx, StreamId, StreamIx};
use crate::order::uses::UseTable;
use crate::plan::Request;
use crate::policy::{self, CrossStream, Prefer, SegmentKind, SizeClass};
use crate::pool::{Pool, Pools};
use crate::scarcity::Scarcity;
use crate::space::block::{Block, BlockIndex};
use crate::space::free_list::FreeList;
use crate::space::{Granted, Space};
use crate::stats::{RemapStats, Stats};
use crate::vm::PageTable;

/// How a heap behaves. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// What memory is worth.
    pub prefer: Prefer,
}

impl Config {
    /// A heap without a limit, on a device of so many bytes.
    pub const fn new(kind: SegmentKind, granule_bytes: u64, device_bytes: u64) -> Self {
        Self {
            kind,
            granule_bytes,
            device_bytes,
            limit_bytes: u64::MAX,
            cross_stream: CrossStream::Wait,
            held_per_handle: policy::HELD_PER_HANDLE,
            prefer: Prefer::Balanced,
        }
    }

    /// The same, with another price of memory.
    #[must_use]
    pub const fn with_prefer(mut self, prefer: Prefer) -> Self {
        self.prefer = prefer;
        self
    }

    /// The same, with a limit of reserved bytes.
    #[must_use]
    pub const fn with_limit_bytes(mut self, limit_bytes: u64) -> Self {
        self.limit_bytes = limit_bytes;
        self
    }

    /// The same, with another rule for when a free block serves another stream.
    #[must_use]
    pub const fn with_cross_stream(mut self, cross_stream: CrossStream) -> Self {
        self.cross_stream = cross_stream;
        self
    }

    /// The same, with handles that get large sooner or later.
    #[must_use]
    pub const fn with_held_per_handle(mut self, held_per_handle: u64) -> Self {
        self.held_per_handle = held_per_handle;
        self
    }
}

/// All pools of one device, as a state machine. See the [crate] documentation.
#[derive(Debug)]
pub struct Heap {
    pub(crate) config: Config,
    pub(crate) space: Space,
    pub(crate) vm: PageTable,
    pub(crate) streams: Streams,
    pub(crate) pools: Pools<Pool>,
    pub(crate) uses: UseTable,
    pub(crate) quarantine: Vec<BlockIndex>,
    pub(crate) stats: Stats,
    /// Bytes that plans under way will add to the reserved bytes.
    pub(crate) planned_bytes: u64,
    /// What the device has refused of late.
    pub(crate) scarcity: Scarcity,
    /// What is left of the device.
    pub(crate) headroom: Headroom,
    /// How many granules may be remapped with room to spare.
    pub(crate) affordable_remaps: u64,
}

impl Heap {
    /// An empty heap with its default pool and no stream.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            space: Space::new(),
            vm: PageTable::new(config.granule_bytes),
            streams: Streams::default(),
            pools: Pools::new(Pool::new(config.kind)),
            uses: UseTable::default(),
            quarantine: Vec::new(),
            stats: Stats::default(),
            planned_bytes: 0,
            scarcity: Scarcity::default(),
            headroom: Headroom::new(config.device_bytes),
            affordable_remaps: 0,
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

    /// Sets every peak to its current value: those of the statistics, and of each pool and stream.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
        self.space.lists_mut().iter_mut().for_each(|list| list.active_bytes.reset_peak());
    }

    /// Statistics, to count a retry or reset totals.
    pub const fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    // Lists.

    /// The free list of a request, made if there is none yet.
    #[inline]
    fn list_of(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
    ) -> Result<ListIx, RequestError> {
        let class = policy::size_class(bytes);
        let of = self.pools.live(pool)?;
        self.streams.live(stream)?;
        let known = of.list(class, stream.index);
        Ok(known.unwrap_or_else(|| self.list_in(pool.index, class, stream.index)))
    }

    /// The free list of a pool, class and stream, made if there is none yet.
    #[cold]
    fn list_in(&mut self, pool: PoolIx, class: SizeClass, stream: StreamIx) -> ListIx {
        let of = self.pools.at(pool);
        if let Some(list) = of.list(class, stream) {
            return list;
        }
        let list = self.space.insert_list(FreeList::new(pool, of.kind, class, stream));
        self.pools.at_mut(pool).set_list(class, stream, list);
        list
    }

    /// Whether unused memory of a list may go elsewhere.
    pub(crate) fn is_open(&self, list: ListIx) -> bool {
        self.pools.is_open(self.space.list(list).pool)
    }

    // The two moves everything is made of.

    /// Files an unfiled block as free in its list, joined with the free blocks around it (I2).
    #[inline]
    fn file(&mut self, index: BlockIndex) {
        match self.space.blocks[index].is_window {
            false => drop(self.space.file(index)),
            true => self.file_again(index),
        }
    }

    /// The same, where one copy of the code is enough: not on the way of a hit or a free.
    #[inline(never)]
    fn file_again(&mut self, index: BlockIndex) {
        let Block { is_window, .. } = self.space.blocks[index];
        let freed = self.space.blocks[index].range();
        let index = self.space.file(index);
        if is_window {
            self.send_home(index, freed);
        }
    }

    /// A free block serves a request.
    #[inline]
    fn occupy_free(&mut self, index: BlockIndex, request: Request) -> Granted {
        let Request { list, requested, bytes } = request;
        let granted = self.space.occupy_free(index, list, requested, bytes);
        self.count_live(request, granted)
    }

    /// An unfiled block serves a request. What it has too much is cut off and filed as free in the
    /// list the block belonged to.
    #[inline(never)]
    fn occupy(&mut self, index: BlockIndex, request: Request) -> Granted {
        let rest = self.space.cut_rest(index, request.list, request.bytes);
        let granted = self.space.make_live(index, request.list, request.requested);
        if let Some(rest) = rest {
            self.file_again(rest);
        }
        self.count_live(request, granted)
    }

    #[inline]
    fn count_live(&mut self, request: Request, granted: Granted) -> Granted {
        let list = self.space.list_mut(request.list);
        list.active_bytes.add(granted.bytes);
        self.stats.allocate(list.class as usize, request.requested, granted.bytes);
        granted
    }

    // Pins.

    /// Pins the live block that starts at an address: its memory stays where it is (I16). Pins of
    /// one address add up.
    ///
    /// # Errors
    /// There is no such block.
    pub fn pin_mapping(&mut self, address: u64) -> Result<(), FreeError> {
        let index = self.space.find_live(address)?;
        let block = &self.space.blocks[index];
        match self.space.list(block.list).kind {
            SegmentKind::Mapped => self.vm.pin(block.segment, block.range()),
            SegmentKind::Plain => self.vm.pin_plain(block.range()),
        }
        Ok(())
    }

    /// Takes a pin of an address back, whether the block is live still or not. False if there is
    /// none.
    pub fn unpin_mapping(&mut self, address: u64) -> bool {
        let left = self.vm.unpin(address);
        if left == Some(0) {
            self.send_all_home();
        }
        left.is_some()
    }

    /// What is mapped away from home and what is pinned.
    pub fn remap_stats(&self) -> RemapStats {
        self.vm.stats()
    }

    // Figures.

    /// The largest free block of any pool and stream, in bytes. Walks all free blocks.
    pub fn largest_free_bytes(&self) -> u64 {
        self.space.largest_free_bytes()
    }

    /// Unused bytes of the default pool and of open ones that can be put to any use: whole
    /// handles of free blocks, but for pinned ones, idle granules, and plain segments that are
    /// wholly free.
    pub fn unused_bytes(&self) -> u64 {
        let open = self.space.lists().iter().filter(|list| self.pools.is_open(list.pool));
        let free = open.flat_map(|list| {
            list.filed(&self.space.blocks).map(|index| {
                let block = &self.space.blocks[index];
                match list.kind {
                    SegmentKind::Mapped => {
                        let whole = self.vm.whole_handles(block.segment, block.range());
                        self.vm.unpinned(whole).map(|range| range.end - range.start).sum()
                    }
                    SegmentKind::Plain if self.space.is_whole_segment(index) => block.bytes,
                    SegmentKind::Plain => 0,
                }
            })
        });
        self.vm.idle_bytes() + free.sum::<u64>()
    }

    /// The mapped ranges of every segment, in address order: start and size in bytes.
    pub fn mapped_ranges(&self) -> Vec<(u64, u64)> {
        let segments = self.space.segments.in_address_order();
        let mapped = segments.filter(|(_, segment)| segment.kind == SegmentKind::Mapped);
        let ranges = mapped.flat_map(|(ix, segment)| {
            self.vm.mapped_ranges(ix, &(segment.address..segment.address + segment.bytes))
        });
        ranges.map(|range| (range.start, range.end - range.start)).collect()
    }
}
