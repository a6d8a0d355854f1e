//! The block space: segments of addresses, tiled by blocks, and which of the blocks are free.
//!
//! An offset allocator of its own: it knows nothing of CUDA, of streams or of physical memory, only
//! that a list is whose free blocks serve whom. Lives here: the blocks (`block`), the bins that
//! find one (`bin`, `free_list`), where free blocks of several lists meet (`borders`), the way from
//! an address to its block (`address_map`), the segments (`segment`), joins that are put off
//! (`trail`, `unjoined`), addresses without memory (`unmapped`), and windows that wait for their
//! next use (`idle_windows`). Keeps I1 to I7, I12 and I18, as far as each is about blocks alone.

pub(crate) mod address_map;
pub(crate) mod bin;
pub(crate) mod block;
pub(crate) mod blocks;
pub(crate) mod borders;
pub(crate) mod check;
pub(crate) mod free_list;
pub(crate) mod idle_windows;
pub(crate) mod range;
pub(crate) mod segment;
pub(crate) mod trail;
pub(crate) mod unjoined;
pub(crate) mod unmapped;

use crate::error::FreeError;
use crate::id::{ListIx, PoolIx, SegmentIx, StreamIx};
use crate::policy::{SegmentKind, SizeClass};
use crate::size::{QUANTUM, SizeError, block_bytes};
use address_map::AddressMap;
use block::{Block, BlockIndex, BlockState};
use blocks::Blocks;
use free_list::FreeList;
use idle_windows::{IdleWindows, WindowKey};
use segment::{Segment, Segments};

/// How many quanta below an address that is no block's a block in use is looked for: 1 MiB, which
/// every small block reaches to.
const LOOK_BELOW: usize = 2048;
/// How many blocks are then walked from there, or else from the start of the segment, with the lock
/// of the heap held. What is further away counts as free.
const LOOK_ONWARD: usize = 16_384;

/// A block handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Where it starts.
    pub address: u64,
    /// Its size in bytes, at least what was asked for.
    pub bytes: u64,
}

impl Granted {
    const fn of(block: &Block) -> Self {
        Self { address: block.address, bytes: block.bytes }
    }
}

/// Segments tiled by blocks, with the free blocks in bins. O(1) to allocate and to free.
///
/// ```
/// use drystone_core::Space;
///
/// let mut space = Space::new();
/// let list = space.add_list();
/// space.add_segment(list, 0x1000_0000, 64 << 20); // addresses that the caller owns
/// let first = space.allocate(list, 1000)?.expect("room for a kibibyte");
/// assert_eq!((first.address, first.bytes), (0x1000_0000, 1024));
/// let second = space.allocate(list, 16 << 20)?.expect("room for 16 MiB");
/// space.free(first.address)?;
/// assert!(space.free(first.address).is_err()); // found out, and nothing changed
/// space.free(second.address)?; // joined with its neighbours: one free block again
/// assert_eq!(space.largest_free_bytes(), 64 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Space {
    pub(crate) blocks: Blocks,
    lists: Vec<FreeList>,
    /// The lists that may have a trail.
    with_trails: Vec<ListIx>,
    pub(crate) map: AddressMap,
    pub(crate) segments: Segments,
    pub(crate) idle_windows: IdleWindows,
}

impl Space {
    /// No segment and no list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a list of free blocks: whoever asks by it is served from its segments alone.
    pub fn add_list(&mut self) -> ListIx {
        self.insert_list(FreeList::new(
            PoolIx(0),
            SegmentKind::Mapped,
            SizeClass::Large,
            StreamIx(0),
        ))
    }

    /// Adds a range of addresses, in whole quanta of 512 bytes, as one free block of a list.
    ///
    /// # Panics
    /// The range is empty or not of whole quanta.
    pub fn add_segment(&mut self, list: ListIx, address: u64, bytes: u64) {
        assert!(bytes > 0 && address.is_multiple_of(QUANTUM) && bytes.is_multiple_of(QUANTUM));
        let index = self.claim_segment(list, address, bytes, false);
        self.file(index);
    }

    /// A block of at least so many bytes from a list; `None` if no free block of it is as large.
    ///
    /// # Errors
    /// A size that no block can have.
    pub fn allocate(&mut self, list: ListIx, requested: u64) -> Result<Option<Granted>, SizeError> {
        let bytes = block_bytes(requested)?;
        let found = self.list(list).search(&self.blocks, bytes);
        Ok(found.map(|index| self.occupy_free(index, list, requested, bytes)))
    }

    /// Frees a block, and joins it with the free blocks around it.
    ///
    /// # Errors
    /// The address is not that of a block in use; nothing has changed.
    pub fn free(&mut self, address: u64) -> Result<(), FreeError> {
        let index = self.find_live(address)?;
        self.map.remove(&mut self.blocks, index);
        self.file(index);
        Ok(())
    }

    /// The largest free block of any list, in bytes. Of a list with more than a thousand within a
    /// 64th of the largest, one of these.
    pub fn largest_free_bytes(&self) -> u64 {
        self.lists.iter().map(|list| self.largest_of(list)).max().unwrap_or(0)
    }

    // Lists.

    pub(crate) fn insert_list(&mut self, list: FreeList) -> ListIx {
        assert!(self.lists.len() < u32::MAX as usize, "more lists than indices");
        self.lists.push(list);
        // So that a hit needs no memory of the host.
        self.with_trails.reserve(self.lists.len() - self.with_trails.len());
        ListIx((self.lists.len() - 1) as u32)
    }

    #[inline]
    pub(crate) fn list(&self, list: ListIx) -> &FreeList {
        &self.lists[list.index()]
    }

    #[inline]
    pub(crate) fn list_mut(&mut self, list: ListIx) -> &mut FreeList {
        &mut self.lists[list.index()]
    }

    pub(crate) fn lists(&self) -> &[FreeList] {
        &self.lists
    }

    pub(crate) fn lists_mut(&mut self) -> &mut [FreeList] {
        &mut self.lists
    }

    /// A block, and the list it belongs to.
    #[inline]
    pub(crate) fn block_and_list(&mut self, index: BlockIndex) -> (&mut Block, &mut FreeList) {
        let block = &mut self.blocks[index];
        let list = &mut self.lists[block.list.index()];
        (block, list)
    }

    /// An unfiled block at home belongs to this list from now on.
    pub(crate) fn give_to(&mut self, index: BlockIndex, list: ListIx) {
        let is_others = self.segments[self.blocks[index].segment].list != list;
        self.lists[list.index()].has_others |= is_others;
        self.blocks[index].list = list;
    }

    /// The list that a block belongs to.
    #[inline]
    pub(crate) fn list_of(&self, index: BlockIndex) -> &FreeList {
        self.list(self.blocks[index].list)
    }

    // Segments.

    /// A new segment with one claimed block over all of it.
    pub(crate) fn claim_segment(
        &mut self,
        list: ListIx,
        address: u64,
        bytes: u64,
        is_window: bool,
    ) -> BlockIndex {
        assert!(bytes > 0 && bytes.is_multiple_of(QUANTUM), "a segment is not of whole quanta");
        assert!(address > 0 && address.is_multiple_of(QUANTUM), "a segment begins in a quantum");
        assert!(address.checked_add(bytes).is_some(), "a segment has no end");
        let kind = self.list(list).kind;
        let segment = self.segments.insert(Segment::new(kind, address, bytes, list, is_window));
        let index = self.blocks.insert(Block::claimed(address, bytes, segment, list, is_window));
        self.segments[segment].first = index;
        index
    }

    /// Forgets a withdrawn segment and the one block that covers it.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIx) {
        let Segment { first, bytes, .. } = self.segments[segment];
        assert!(self.blocks[first].bytes == bytes, "a segment is removed with blocks in use");
        let is_planned = self.blocks[first].state == BlockState::Claimed;
        assert!(is_planned, "a segment is removed outside of a plan");
        self.blocks.remove(first);
        self.segments.remove(segment);
    }

    /// Whether a block is the only one of its segment.
    pub(crate) fn is_whole_segment(&self, block: &Block) -> bool {
        self.segments[block.segment].bytes == block.bytes
    }

    /// Where a window stands while it is idle.
    pub(crate) fn window_key(&self, index: BlockIndex, granule_bytes: u64) -> WindowKey {
        let block = &self.blocks[index];
        assert!(block.is_window, "memory at home waits as a window");
        assert!(block.bytes.is_multiple_of(granule_bytes), "a window is not of whole granules");
        let granules = (block.bytes / granule_bytes) as u32;
        WindowKey { list: block.list, granules, address: block.address }
    }

    // Free blocks.

    /// Files an unfiled block as free in its list, joined with the free blocks around it (I2).
    /// Returns the block that it is part of now.
    #[inline]
    pub(crate) fn file(&mut self, index: BlockIndex) -> BlockIndex {
        self.end_trail(self.blocks[index].list);
        self.file_joined(index)
    }

    /// The same, which leads a list back on its trail.
    #[inline]
    fn file_joined(&mut self, index: BlockIndex) -> BlockIndex {
        let block = &mut self.blocks[index];
        block.set_state(BlockState::Free);
        let Block { list, bytes, next, previous, .. } = *block;
        self.lists[list.index()].free_bytes += bytes;
        let joined = match (self.is_free_in(previous, list), self.is_free_in(next, list)) {
            (false, false) => {
                self.insert_free(index);
                return index;
            }
            (false, true) => {
                self.leave_borders(next);
                let before = self.blocks.absorb_previous(next);
                self.put_after(before, next);
                next
            }
            (true, joins_next) => {
                if joins_next {
                    self.remove_free(next);
                    self.blocks.absorb_next(index);
                }
                self.leave_borders(previous);
                self.blocks.absorb_next(previous);
                previous
            }
        };
        self.lists[list.index()].refile(&mut self.blocks, joined);
        self.enter_borders(joined);
        joined
    }

    /// Joins a block with the filed one after it.
    #[inline(never)]
    pub(crate) fn take_in_next(&mut self, index: BlockIndex) {
        self.take_out(self.blocks[index].next);
        self.blocks.absorb_next(index);
    }

    /// A block comes after another, or first in its segment.
    #[inline]
    fn put_after(&mut self, before: BlockIndex, index: BlockIndex) {
        match before.some() {
            Some(before) => self.blocks[before].next = index,
            None => self.segments.begin_with(self.blocks[index].segment, index),
        }
    }

    #[inline]
    fn is_free_in(&self, index: BlockIndex, list: ListIx) -> bool {
        index.some().is_some_and(|index| {
            let block = &self.blocks[index];
            block.state == BlockState::Free && block.list == list
        })
    }

    /// Puts a free block into its bin; its list counts it already.
    #[inline]
    pub(crate) fn insert_free(&mut self, index: BlockIndex) {
        let list = self.blocks[index].list;
        self.lists[list.index()].insert(&mut self.blocks, index);
        self.enter_borders(index);
    }

    /// Takes a free block out of its list.
    #[inline(never)]
    pub(crate) fn take_out(&mut self, index: BlockIndex) {
        let (block, list) = self.block_and_list(index);
        list.free_bytes -= block.bytes;
        self.remove_free(index);
    }

    /// Puts a free block into its list.
    #[inline(never)]
    pub(crate) fn put_in(&mut self, index: BlockIndex) {
        let (block, list) = self.block_and_list(index);
        list.free_bytes += block.bytes;
        self.insert_free(index);
    }

    /// Takes a free block out of its bin; its list still counts it.
    #[inline]
    pub(crate) fn remove_free(&mut self, index: BlockIndex) {
        let list = self.blocks[index].list;
        self.lists[list.index()].remove(&mut self.blocks, index);
        self.leave_borders(index);
    }

    // Blocks in use.

    /// A free block of a list serves a request of it, with its front. What it has too much stays
    /// free: joined with its neighbours it was already (I2).
    #[inline]
    pub(crate) fn occupy_free(
        &mut self,
        index: BlockIndex,
        list: ListIx,
        requested: u64,
        bytes: u64,
    ) -> Granted {
        let rest_bytes = self.blocks[index].bytes - bytes;
        let from = &self.lists[list.index()];
        let (taken, granted) = if rest_bytes > from.kept_rest_bytes {
            let is_at_border = self.leave_borders(index);
            let (front, block) = self.blocks.cut_front(index, bytes);
            let before = block.previous;
            block.occupy(list, requested);
            let granted = Granted::of(block);
            let list = &mut self.lists[list.index()];
            list.free_bytes -= bytes;
            list.refile(&mut self.blocks, index);
            self.put_after(before, front);
            if is_at_border {
                self.add_borders(index);
            }
            (front, granted)
        } else {
            self.take_out(index);
            let block = &mut self.blocks[index];
            block.occupy(list, requested);
            (index, Granted::of(block))
        };
        self.map.insert(&mut self.blocks, taken, granted.address);
        self.note_given(list, taken);
        granted
    }

    /// Cuts off what an unfiled block has more than a request of a list takes, if that stays
    /// usable.
    #[inline]
    pub(crate) fn cut_rest(
        &mut self,
        index: BlockIndex,
        list: ListIx,
        bytes: u64,
    ) -> Option<BlockIndex> {
        let rest_bytes = self.blocks[index].bytes - bytes;
        let is_split = rest_bytes > self.list(list).kept_rest_bytes;
        is_split.then(|| self.blocks.cut(index, bytes))
    }

    /// An unfiled block serves a request of a list from now on.
    #[inline]
    pub(crate) fn make_live(&mut self, index: BlockIndex, list: ListIx, requested: u64) -> Granted {
        self.end_trail(list);
        let block = &mut self.blocks[index];
        block.occupy(list, requested);
        let granted = Granted::of(block);
        self.map.insert(&mut self.blocks, index, granted.address);
        granted
    }

    /// The live block that starts at an address.
    #[inline]
    pub(crate) fn find_live(&self, address: u64) -> Result<BlockIndex, FreeError> {
        match self.map.find(&self.blocks, address) {
            Some(index) if self.blocks[index].state == BlockState::Live => Ok(index),
            Some(_) => Err(FreeError::AlreadyFree { address }),
            None => Err(self.classify(address)),
        }
    }

    /// The nearest block in use at or below an address of a segment, since between two of these few
    /// others are; the first block of all if there is none near.
    pub(crate) fn block_below(&self, segment: SegmentIx, address: u64) -> BlockIndex {
        let Segment { first, address: start, .. } = self.segments[segment];
        let quanta = (start / QUANTUM..=address / QUANTUM).rev().take(LOOK_BELOW);
        let nearest = { quanta }.find_map(|n| self.map.find(&self.blocks, n * QUANTUM));
        nearest.unwrap_or(first)
    }

    /// A block was freed while others use it.
    pub(crate) fn begin_leaving(&mut self, index: BlockIndex) {
        let (block, list) = self.block_and_list(index);
        list.leaving_bytes += block.bytes;
    }

    /// The uses of a block that outlasted its free are over.
    pub(crate) fn end_leaving(&mut self, index: BlockIndex) {
        let (block, list) = self.block_and_list(index);
        list.leaving_bytes -= block.bytes;
    }

    /// Why an address is not that of a live block.
    #[cold]
    fn classify(&self, address: u64) -> FreeError {
        let Some(segment) = self.segments.containing(address) else {
            return FreeError::Unknown { address };
        };
        let from = self.block_below(segment, address);
        let mut blocks = self.blocks.onward(from).take(LOOK_ONWARD);
        let around = blocks.find(|&index| address < self.blocks[index].end());
        let Some(block) = around.map(|index| &self.blocks[index]) else {
            return FreeError::AlreadyFree { address };
        };
        match block.state {
            BlockState::Unmapped => FreeError::Unknown { address },
            BlockState::Live | BlockState::Pending if address != block.address => {
                let (block_address, block_bytes) = (block.address, block.bytes);
                FreeError::Interior { address, block_address, block_bytes }
            }
            _ => FreeError::AlreadyFree { address },
        }
    }
}
