//! The block space: segments of addresses, tiled by blocks, and which of the blocks are free.
//!
//! An offset allocator of its own: it knows nothing of CUDA, of streams or of physical memory, only
//! that a list is whose free blocks serve whom. Lives here: the blocks (`block`, `blocks`), the
//! bins that find one (`bin`, `free_list`), how one is filed and given out (`filing`), where free
//! blocks of several lists meet (`borders`), the way from an address to its block (`address_map`),
//! the segments (`segment`), joins that are put off (`trail`, `unjoined`), addresses without memory
//! (`unmapped`), and windows that wait for their next use (`idle_windows`). Keeps I1 to I7, I12 and
//! I18, as far as each is about blocks alone.

pub(crate) mod address_map;
pub(crate) mod bin;
pub(crate) mod block;
pub(crate) mod blocks;
pub(crate) mod borders;
pub(crate) mod check;
pub(crate) mod filing;
pub(crate) mod free_list;
pub(crate) mod idle_windows;
pub(crate) mod range;
pub(crate) mod segment;
pub(crate) mod trail;
pub(crate) mod unjoined;
pub(crate) mod unmapped;

use crate::error::FreeError;
use crate::id::{ListIx, SegmentIx};
use crate::size::QUANTUM;
use address_map::AddressMap;
use block::{Block, BlockIndex, BlockState};
use blocks::Blocks;
use free_list::FreeList;
use idle_windows::{IdleWindows, WindowKey};
use segment::{Segment, Segments};

/// How many quanta below an address that is no block's a block in use is looked for: 1 MiB, which
/// every small block reaches to.
const LOOK_BELOW: usize = 2048;
/// How many blocks are then walked from the one found, with the lock of the heap held. What is
/// further away counts as free.
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
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) blocks: Blocks,
    lists: Vec<FreeList>,
    /// The lists that may have a trail.
    with_trails: Vec<ListIx>,
    /// The lists that have blocks at homes of memory that was obtained for others, or had some.
    with_others: Vec<ListIx>,
    pub(crate) map: AddressMap,
    pub(crate) segments: Segments,
    pub(crate) idle_windows: IdleWindows,
}

impl Space {
    /// The largest free block of any list, in bytes. Of a list with more than a thousand within a
    /// 64th of the largest, one of these.
    pub(crate) fn largest_free_bytes(&self) -> u64 {
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
        let of = &mut self.lists[list.index()];
        if is_others && !of.has_others {
            of.has_others = true;
            self.with_others.push(list);
        }
        self.blocks[index].list = list;
    }

    /// The lists that have memory of others, or had some.
    pub(crate) fn lists_with_others(&self) -> &[ListIx] {
        &self.with_others
    }

    /// The list that a block belongs to.
    #[inline]
    pub(crate) fn list_of(&self, index: BlockIndex) -> &FreeList {
        self.list(self.blocks[index].list)
    }

    /// The list that a segment was obtained for.
    pub(crate) fn of_segment(&self, segment: SegmentIx) -> &FreeList {
        self.list(self.segments[segment].list)
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

    /// Where a window stands while it is idle.
    pub(crate) fn window_key(&self, index: BlockIndex, granule_bytes: u64) -> WindowKey {
        let block = &self.blocks[index];
        assert!(block.is_window, "memory at home waits as a window");
        assert!(block.bytes.is_multiple_of(granule_bytes), "a window is not of whole granules");
        let granules = (block.bytes / granule_bytes) as u32;
        WindowKey { list: block.list, granules, address: block.address }
    }

    // Blocks in use.

    /// The live block that starts at an address.
    #[inline]
    pub(crate) fn find_live(&self, address: u64) -> Result<BlockIndex, FreeError> {
        match self.map.find(&self.blocks, address) {
            Some(index) if self.blocks[index].state == BlockState::Live => Ok(index),
            Some(_) => Err(FreeError::AlreadyFree { address }),
            None => Err(self.classify(address)),
        }
    }

    /// The block around an address of a segment, or one near below it: looked for from the
    /// segment's start, and among those in use from the address down, since between two of these
    /// few others are. Whichever is found first.
    pub(crate) fn block_below(&self, segment: SegmentIx, address: u64) -> BlockIndex {
        let Segment { first, address: start, .. } = self.segments[segment];
        let mut walked = first;
        for quantum in (start / QUANTUM..=address / QUANTUM).rev().take(LOOK_BELOW) {
            if let Some(found) = self.map.find(&self.blocks, quantum * QUANTUM) {
                return found;
            }
            match walked.some().map(|index| &self.blocks[index]) {
                Some(block) if block.end() <= address && block.next.some().is_some() => {
                    walked = block.next;
                }
                _ => return walked,
            }
        }
        walked
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
