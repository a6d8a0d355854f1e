//! Addresses without memory, and where memory may grow in them.
//!
//! An unmapped block stands in the chain of the list that its segment was made for. I2: no two of
//! them are neighbours. A growth point is the front of one, together with the free blocks around it
//! when a request is to be served there.

use super::Space;
use super::block::{BlockIndex, BlockState};
use crate::id::ListIx;

/// Where memory grows: the front of an unmapped block, with the free blocks around it if they are
/// part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowthPoint {
    pub(crate) before: BlockIndex,
    pub(crate) unmapped: BlockIndex,
    pub(crate) after: BlockIndex,
    /// How much of the unmapped block is taken, from its front on.
    pub(crate) bytes: u64,
}

impl Space {
    /// The unmapped blocks of a list: in segments of homes, or in those of windows.
    pub(crate) fn unmapped_blocks(
        &self,
        list: ListIx,
        is_window: bool,
    ) -> impl Iterator<Item = BlockIndex> + '_ {
        self.blocks.filed_from(self.list(list).unmapped[usize::from(is_window)])
    }

    /// Where a request of a list can be served by growth in whole `unit`s: the fewest bytes, then
    /// the lowest address.
    pub(crate) fn best_growth(&self, list: ListIx, bytes: u64, unit: u64) -> Option<GrowthPoint> {
        let unmapped = self.unmapped_blocks(list, false);
        let points = unmapped.filter_map(|index| self.growth_at(index, list, bytes, unit));
        points.min_by_key(|point| (point.bytes, self.blocks[point.unmapped].address))
    }

    /// Where a request begins that is served there.
    pub(crate) fn start_of(&self, point: GrowthPoint) -> u64 {
        self.blocks[point.before.some().unwrap_or(point.unmapped)].address
    }

    /// Where there is room for so many bytes, in whole `unit`s: the lowest address.
    pub(crate) fn room_for(&self, list: ListIx, bytes: u64, unit: u64) -> Option<GrowthPoint> {
        let unmapped = self.unmapped_blocks(list, false);
        let large_enough = unmapped.filter(|&index| self.blocks[index].bytes >= bytes);
        let unmapped = large_enough.min_by_key(|&index| self.blocks[index].address)?;
        let bytes = bytes.next_multiple_of(unit).min(self.blocks[unmapped].bytes);
        let (before, after) = (BlockIndex::NONE, BlockIndex::NONE);
        Some(GrowthPoint { before, unmapped, after, bytes })
    }

    /// The growth point at an unmapped block; `None` if it cannot hold the request.
    fn growth_at(
        &self,
        index: BlockIndex,
        list: ListIx,
        bytes: u64,
        unit: u64,
    ) -> Option<GrowthPoint> {
        let unmapped = &self.blocks[index];
        let before_bytes = self.free_bytes(unmapped.previous, list);
        let missing = bytes.saturating_sub(before_bytes).max(1);
        let mut after = BlockIndex::NONE;
        if missing > unmapped.bytes {
            let after_bytes = self.free_bytes(unmapped.next, list);
            if before_bytes + unmapped.bytes + after_bytes < bytes {
                return None;
            }
            after = unmapped.next;
        }
        let before = if before_bytes > 0 { unmapped.previous } else { BlockIndex::NONE };
        let bytes = missing.next_multiple_of(unit).min(unmapped.bytes);
        Some(GrowthPoint { before, unmapped: index, after, bytes })
    }

    /// Size of a block if it is free in this list, else 0.
    fn free_bytes(&self, index: BlockIndex, list: ListIx) -> u64 {
        if self.is_free_in(index, list) { self.blocks[index].bytes } else { 0 }
    }

    /// Claims a growth point: the free blocks around it, and as much of the unmapped one as it
    /// takes.
    pub(crate) fn claim_growth(&mut self, point: GrowthPoint) {
        for free in [point.before, point.after].into_iter().filter_map(BlockIndex::some) {
            let is_free = self.blocks[free].state == BlockState::Free;
            assert!(is_free, "memory grows beside a block in use");
            self.take_out(free);
            self.blocks.set_state(free, BlockState::Claimed);
        }
        self.claim_unmapped(point.unmapped, point.bytes);
    }

    /// Makes one claimed block of a growth point that is backed now.
    pub(crate) fn join_growth(&mut self, point: GrowthPoint) -> BlockIndex {
        if point.after.some().is_some() {
            self.blocks.absorb_next(point.unmapped);
        }
        if point.before.some().is_some() {
            self.blocks.absorb_next(point.before);
            return point.before;
        }
        point.unmapped
    }

    /// Claims the front of an unmapped block.
    pub(crate) fn claim_unmapped(&mut self, index: BlockIndex, bytes: u64) {
        self.unlink_unmapped(index);
        let room = self.blocks[index].bytes;
        assert!(bytes > 0 && bytes <= room, "more addresses are claimed than there are");
        if room > bytes {
            let rest = self.blocks.cut(index, bytes);
            self.link_unmapped(rest);
        }
        self.blocks.set_state(index, BlockState::Claimed);
    }

    /// Makes a claimed block unmapped, joined with the unmapped blocks around it.
    pub(crate) fn make_unmapped(&mut self, index: BlockIndex) {
        let mut index = index;
        self.blocks.set_state(index, BlockState::Unmapped);
        let next = self.blocks[index].next;
        if self.is_unmapped(next) {
            self.unlink_unmapped(next);
            self.blocks.absorb_next(index);
        }
        let previous = self.blocks[index].previous;
        if self.is_unmapped(previous) {
            self.unlink_unmapped(previous);
            self.blocks.absorb_next(previous);
            index = previous;
        }
        let list = self.segments[self.blocks[index].segment].list;
        (self.blocks[index].list, self.blocks[index].free_after) = (list, 0);
        self.link_unmapped(index);
    }

    fn is_unmapped(&self, index: BlockIndex) -> bool {
        index.some().is_some_and(|index| self.blocks[index].state == BlockState::Unmapped)
    }

    /// Adds an unmapped block to the chain of its list.
    fn link_unmapped(&mut self, index: BlockIndex) {
        let block = &self.blocks[index];
        let is_unmapped = block.state == BlockState::Unmapped;
        assert!(is_unmapped, "a block with memory joins the unmapped");
        let (list, chain) = (block.list, usize::from(block.is_window));
        let head = std::mem::replace(&mut self.list_mut(list).unmapped[chain], index);
        self.blocks.file_before(index, head);
    }

    pub(crate) fn unlink_unmapped(&mut self, index: BlockIndex) {
        let block = self.blocks[index];
        assert!(
            block.state == BlockState::Unmapped,
            "a block with memory stands among the unmapped"
        );
        if let Some(head) = self.blocks.unfile(index) {
            self.list_mut(block.list).unmapped[usize::from(block.is_window)] = head;
        }
    }
}
