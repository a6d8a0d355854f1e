//! Snapshot: what the heap holds, as plain data. Segments in address order, tiled by their blocks.

use crate::block::{BlockIndex, BlockState};
use crate::error::FreeError;
use crate::heap::Heap;
use crate::policy::{SegmentKind, SizeClass};

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Start.
    pub address: u64,
    /// Size of its addresses; mapped segments are backed only in part.
    pub bytes: u64,
    /// How it was obtained.
    pub kind: SegmentKind,
    /// Small or large blocks.
    pub class: SizeClass,
    /// Position of its pool; 0 is the default pool.
    pub pool: usize,
    /// Position of the stream it was obtained for.
    pub stream: usize,
    /// Its blocks in address order.
    pub blocks: Vec<BlockView>,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Start.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// What the program asked for; 0 unless live or pending.
    pub requested_bytes: u64,
    /// What it is.
    pub state: BlockState,
    /// Position of the stream in whose order it is used.
    pub stream: usize,
}

impl Heap {
    /// The largest free block of any pool and stream, in bytes. Walks all free blocks.
    pub fn largest_free_bytes(&self) -> u64 {
        let free = self.lists.iter().flat_map(|list| list.bins(&self.blocks));
        free.map(|(_, index)| self.blocks[index].bytes).max().unwrap_or(0)
    }

    /// Unused bytes of the default pool and of open ones that can be put to any use: whole
    /// handles of free blocks, but for pinned ones, idle granules, and plain segments that are
    /// wholly free.
    pub fn unused_bytes(&self) -> u64 {
        let idle_bytes = self.granules.idle_count() as u64 * self.config.granule_bytes;
        let lists = self.lists.iter().filter(|list| self.is_open_pool(list.pool));
        let free = lists.flat_map(|list| {
            list.filed(&self.blocks).map(|index| {
                let block = &self.blocks[index];
                let segment = self.segments.get(block.segment);
                match list.kind {
                    SegmentKind::Mapped => {
                        let whole = self.whole_handles(block.segment, block.address..block.end());
                        let unpinned = self.pins.free_of(whole);
                        unpinned.map(|range| range.end - range.start).sum()
                    }
                    SegmentKind::Plain if segment.is_some_and(|s| s.bytes == block.bytes) => {
                        block.bytes
                    }
                    SegmentKind::Plain => 0,
                }
            })
        });
        idle_bytes + free.sum::<u64>()
    }

    /// The live block that starts at an address.
    ///
    /// # Errors
    /// There is none.
    pub fn block_at(&self, address: u64) -> Result<BlockView, FreeError> {
        self.find_live(address).map(|index| self.view(index))
    }

    fn view(&self, index: BlockIndex) -> BlockView {
        let block = &self.blocks[index];
        let is_requested = matches!(block.state, BlockState::Live | BlockState::Pending);
        BlockView {
            address: block.address,
            bytes: block.bytes,
            requested_bytes: if is_requested { block.requested } else { 0 },
            state: block.state,
            stream: self.list(block.list).stream as usize,
        }
    }

    /// The mapped ranges of every segment, in address order: start and size in bytes.
    pub fn mapped_ranges(&self) -> Vec<(u64, u64)> {
        let granule_bytes = self.config.granule_bytes;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (_, segment) in self.segments.in_address_order() {
            for slot in (0..segment.slot_count()).filter(|&slot| segment.granule(slot).is_some()) {
                let address = segment.address + slot as u64 * granule_bytes;
                match ranges.last_mut() {
                    // Never across the border of two segments.
                    Some(last) if last.0 + last.1 == address && address > segment.address => {
                        last.1 += granule_bytes;
                    }
                    _ => ranges.push((address, granule_bytes)),
                }
            }
        }
        ranges
    }

    /// What the heap holds.
    pub fn snapshot(&self) -> Vec<SegmentView> {
        self.segments
            .in_address_order()
            .map(|(_, segment)| {
                let list = self.list(segment.list);
                let blocks = self.blocks.onward(segment.first);
                SegmentView {
                    address: segment.address,
                    bytes: segment.bytes,
                    kind: segment.kind,
                    class: list.class,
                    pool: list.pool as usize,
                    stream: list.stream as usize,
                    blocks: blocks.map(|index| self.view(index)).collect(),
                }
            })
            .collect()
    }
}
