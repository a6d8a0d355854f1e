//! Ranges of free blocks: claimed by address, as one block.

use crate::id::ListIx;
use std::ops::Range;

use super::Space;
use super::block::{BlockIndex, BlockState};

impl Space {
    /// Claims the addresses from `start` to `end`, which free blocks from `index` on cover, as one
    /// block. What free blocks have beyond both ends stays free in the lists they stand in.
    pub(crate) fn claim_range(&mut self, index: BlockIndex, start: u64, end: u64) -> BlockIndex {
        assert!(start < end && self.blocks[index].address <= start);
        let mut first = index;
        while self.blocks[first].end() <= start {
            first = self.blocks[first].next;
        }
        self.take_out(first);
        if self.blocks[first].address < start {
            let claimed = self.blocks.cut(first, start - self.blocks[first].address);
            self.put_in(first);
            first = claimed;
        }
        self.cut_free_rest(first, end);
        while self.blocks[first].end() < end {
            let next = self.blocks[first].next;
            self.take_out(next);
            self.cut_free_rest(next, end);
            self.blocks.absorb_next(first);
        }
        assert!(self.blocks[first].range() == (start..end), "a range is claimed in part");
        self.blocks.set_state(first, BlockState::Claimed);
        first
    }

    /// The same, but what is of each free block stays one by itself: they may be of several
    /// streams, whose points do not compare. From the last to the first.
    pub(crate) fn claim_parts(&mut self, near: BlockIndex, range: &Range<u64>) -> Vec<BlockIndex> {
        let mut parts: Vec<BlockIndex> = self.blocks.over(near, range.clone()).collect();
        parts.reverse();
        for index in &mut parts {
            let block = self.blocks[*index].range();
            let (start, end) = (block.start.max(range.start), block.end.min(range.end));
            *index = self.claim_range(*index, start, end);
        }
        parts
    }

    /// The blocks that have a byte of a range.
    pub(crate) fn within(&self, range: &Range<u64>) -> Vec<BlockIndex> {
        let Some(segment) = self.segments.containing(range.start) else { return Vec::new() };
        self.blocks.over(self.block_below(segment, range.start), range.clone()).collect()
    }

    /// Files what a free, unfiled block has beyond `end` as a block of its own.
    fn cut_free_rest(&mut self, index: BlockIndex, end: u64) {
        let block = self.blocks[index];
        assert!(block.state == BlockState::Free, "a range of free blocks has one that is not");
        if block.end() > end {
            let rest = self.blocks.cut(index, end - block.address);
            self.put_in(rest);
        }
    }

    /// The first of the free blocks that cover a range, in a segment of the list's pool and class.
    pub(crate) fn free_around(&self, list: ListIx, range: &Range<u64>) -> Option<BlockIndex> {
        let ix = self.segments.containing(range.start)?;
        let segment = &self.segments[ix];
        let (owner, user) = (self.list(segment.list), self.list(list));
        if (owner.pool, owner.class) != (user.pool, user.class) {
            return None;
        }
        let within = self.within(range);
        let is_free = |&index: &BlockIndex| self.blocks[index].state == BlockState::Free;
        let is_covered = range.end <= segment.address + segment.bytes;
        (is_covered && within.iter().all(is_free)).then(|| within.first().copied())?
    }

    /// Cuts a block so that one of the same state covers the addresses from `start` to `end`.
    /// Returns that, and what is left behind it.
    pub(crate) fn cut_out(
        &mut self,
        index: BlockIndex,
        range: &Range<u64>,
    ) -> (BlockIndex, Option<BlockIndex>) {
        let whole = self.blocks[index].range();
        let is_within = whole.start <= range.start && range.end <= whole.end;
        assert!(is_within && range.start < range.end, "a block is cut outside of itself");
        let mut piece = index;
        if self.blocks[piece].address < range.start {
            piece = self.blocks.cut(piece, range.start - self.blocks[piece].address);
        }
        let rest = self.blocks[piece].end() > range.end;
        let rest = rest.then(|| self.blocks.cut(piece, range.end - range.start));
        (piece, rest)
    }
}
