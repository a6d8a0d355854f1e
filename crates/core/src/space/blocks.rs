//! Blocks: all of them out of line, in one table.
//!
//! Blocks of a segment are linked by address (`previous`, `next`); that chain is what I1 is about.
//! The second pair of links belongs to where the block is filed (I3: in one place): the bin of a
//! free block, the chain of unmapped blocks, the address map of live and pending ones.

use std::ops::{Index, IndexMut, Range};

use super::block::{Block, BlockIndex, BlockState};

/// The table of all blocks. Slots of merged blocks are reused, last freed first.
#[derive(Debug)]
pub(crate) struct Blocks {
    table: Vec<Block>,
    /// The chain of spare slots.
    spare: BlockIndex,
    len: usize,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { table: Vec::new(), spare: BlockIndex::NONE, len: 0 }
    }
}

impl Blocks {
    /// Changes a block's state.
    #[inline]
    pub(crate) fn set_state(&mut self, index: BlockIndex, state: BlockState) {
        self[index].set_state(state);
    }

    /// Puts a block into a slot.
    #[inline]
    pub(crate) fn insert(&mut self, block: Block) -> BlockIndex {
        self.len += 1;
        if let Some(slot) = self.table.get_mut(self.spare.0 as usize) {
            let index = std::mem::replace(&mut self.spare, slot.filed_next);
            *slot = block;
            return index;
        }
        assert!(self.table.len() < u32::MAX as usize, "more blocks than indices");
        self.table.push(block);
        BlockIndex((self.table.len() - 1) as u32)
    }

    /// Puts a copy of a block into another slot.
    #[inline]
    fn insert_copy(&mut self, of: BlockIndex) -> BlockIndex {
        let index = self.spare;
        let Some(&Block { filed_next, .. }) = self.table.get(index.0 as usize) else {
            return self.push_copy(of);
        };
        self.len += 1;
        self.spare = filed_next;
        self[index] = self[of];
        index
    }

    #[cold]
    #[inline(never)]
    fn push_copy(&mut self, of: BlockIndex) -> BlockIndex {
        self.insert(self[of])
    }

    /// Gives a slot back. The caller has unlinked the block everywhere.
    #[inline]
    pub(crate) fn remove(&mut self, index: BlockIndex) {
        self.len -= 1;
        self[index].filed_next = std::mem::replace(&mut self.spare, index);
    }

    /// Files a block in front of the others of a chain. The caller makes it the head.
    #[inline]
    pub(crate) fn file_before(&mut self, index: BlockIndex, head: BlockIndex) {
        let block = &mut self[index];
        (block.filed_previous, block.filed_next) = (BlockIndex::NONE, head);
        if let Some(head) = head.some() {
            self[head].filed_previous = index;
        }
    }

    /// Takes a block out of a chain. Returns the new head if the block was the head.
    #[inline]
    pub(crate) fn unfile(&mut self, index: BlockIndex) -> Option<BlockIndex> {
        let Block { filed_previous: previous, filed_next: next, .. } = self[index];
        if let Some(next) = next.some() {
            self[next].filed_previous = previous;
        }
        match previous.some() {
            Some(previous) => {
                self[previous].filed_next = next;
                None
            }
            None => Some(next),
        }
    }

    /// A chain of filed blocks, from this one on.
    pub(crate) fn filed_from(&self, head: BlockIndex) -> impl Iterator<Item = BlockIndex> + '_ {
        std::iter::successors(head.some(), |&index| self[index].filed_next.some())
    }

    /// A block, and those after it in its segment.
    pub(crate) fn onward(&self, first: BlockIndex) -> impl Iterator<Item = BlockIndex> + '_ {
        std::iter::successors(first.some(), |&index| self[index].next.some())
    }

    /// The blocks that have a byte of a range, in order; this one has one, or is near.
    pub(crate) fn over(
        &self,
        near: BlockIndex,
        range: Range<u64>,
    ) -> impl Iterator<Item = BlockIndex> + '_ {
        let before = |&index: &BlockIndex| self[index].previous.some();
        let mut back = std::iter::successors(Some(near), before);
        let first = back.find(|&index| self[index].address <= range.start).unwrap_or(near);
        let behind = self.onward(first).skip_while(move |&index| self[index].end() <= range.start);
        behind.take_while(move |&index| self[index].address < range.end)
    }

    /// Copies the table, by index: slots in use and spare ones.
    pub(crate) fn copy_to(&self, copy: &mut Vec<Block>) {
        copy.clear();
        copy.extend_from_slice(&self.table);
    }

    /// Slots in use or spare: an upper bound of every index.
    pub(crate) fn capacity(&self) -> usize {
        self.table.len()
    }

    /// Blocks in use.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Cuts a block: it keeps its low `bytes`, and the rest becomes a block of its own after it.
    /// The rest copies the block's fields; where both are filed is the caller's business.
    #[inline]
    pub(crate) fn cut(&mut self, index: BlockIndex, bytes: u64) -> BlockIndex {
        let rest = self.insert_copy(index);
        let block = &mut self[index];
        assert!(bytes > 0 && bytes < block.bytes, "a block is cut outside of itself");
        (block.bytes, block.next) = (bytes, rest);
        let block = &mut self[rest];
        block.address += bytes;
        block.bytes -= bytes;
        block.previous = index;
        if let Some(next) = block.next.some() {
            self[next].previous = rest;
        }
        rest
    }

    /// Cuts a block: it keeps what is behind its low `bytes`, and those become a block of their own
    /// before it. The block before both is told by the caller.
    #[inline]
    pub(super) fn cut_front(&mut self, index: BlockIndex, bytes: u64) -> (BlockIndex, &mut Block) {
        let front = self.insert_copy(index);
        let rest = &mut self[index];
        assert!(bytes > 0 && bytes < rest.bytes, "a block is cut outside of itself");
        rest.address += bytes;
        rest.bytes -= bytes;
        rest.previous = front;
        let block = &mut self[front];
        (block.bytes, block.next) = (bytes, index);
        (front, block)
    }

    /// Joins a block with the one after it and gives that one's slot back.
    #[inline(never)]
    pub(crate) fn absorb_next(&mut self, index: BlockIndex) {
        let gone = self[index].next;
        let Block { address, bytes, free_after, next, .. } = self[gone];
        let block = &mut self[index];
        assert!(block.end() == address, "blocks are joined that are no neighbours");
        block.bytes += bytes;
        block.next = next;
        block.free_after = block.free_after.max(free_after);
        if let Some(next) = next.some() {
            self[next].previous = index;
        }
        self.remove(gone);
    }

    /// Joins a block with the one before it and gives that one's slot back. Returns the block that
    /// it comes after now, which the caller tells.
    #[inline]
    pub(super) fn absorb_previous(&mut self, index: BlockIndex) -> BlockIndex {
        let gone = self[index].previous;
        let Block { address, bytes, free_after, previous: before, .. } = self[gone];
        let block = &mut self[index];
        assert!(address + bytes == block.address, "blocks are joined that are no neighbours");
        block.address = address;
        block.bytes += bytes;
        block.previous = before;
        block.free_after = block.free_after.max(free_after);
        self.remove(gone);
        before
    }
}

impl Index<BlockIndex> for Blocks {
    type Output = Block;

    #[inline]
    fn index(&self, index: BlockIndex) -> &Block {
        &self.table[index.0 as usize]
    }
}

impl IndexMut<BlockIndex> for Blocks {
    #[inline]
    fn index_mut(&mut self, index: BlockIndex) -> &mut Block {
        &mut self.table[index.0 as usize]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::id::{ListIx, SegmentIx};

    /// A free block that stands nowhere.
    pub(crate) fn unfiled(address: u64, bytes: u64) -> Block {
        let state = BlockState::Free;
        Block { state, ..Block::claimed(address, bytes, SegmentIx(0), ListIx(0), false) }
    }

    #[test]
    fn cut_and_joined_blocks_stay_in_one_chain() {
        let mut blocks = Blocks::default();
        let first = blocks.insert(unfiled(0, 4096));
        blocks[first].free_after = 3;
        let third = blocks.cut(first, 3072);
        let second = blocks.cut(first, 1024);
        let chain = |blocks: &Blocks, index: BlockIndex| {
            let block = &blocks[index];
            (block.address, block.bytes, block.previous, block.next, block.free_after)
        };
        assert_eq!(chain(&blocks, first), (0, 1024, BlockIndex::NONE, second, 3));
        assert_eq!(chain(&blocks, second), (1024, 2048, first, third, 3));
        assert_eq!(chain(&blocks, third), (3072, 1024, second, BlockIndex::NONE, 3));
        blocks[second].free_after = 7;
        blocks.absorb_next(first);
        assert_eq!(chain(&blocks, first), (0, 3072, BlockIndex::NONE, third, 7));
        assert_eq!(chain(&blocks, third), (3072, 1024, first, BlockIndex::NONE, 3));
        assert_eq!((blocks.len(), blocks.capacity()), (2, 3));
        // The slot of the joined block is the next to be used.
        assert_eq!(blocks.insert(unfiled(8192, 512)), second);
    }

    /// The front leaves a block, which stays what it is, and joins it again.
    #[test]
    fn a_front_leaves_its_block_and_joins_it_again() {
        let mut blocks = Blocks::default();
        let first = blocks.insert(unfiled(0, 1024));
        let whole = blocks.cut(first, 512);
        let before = blocks[whole];
        // In a new slot, then in the one that it left.
        for _ in 0..2 {
            let (front, &mut block) = blocks.cut_front(whole, 128);
            assert_eq!((block.address, block.bytes, block.next), (512, 128, whole));
            assert_eq!(block.previous, first);
            let rest = blocks[whole];
            assert_eq!((rest.address, rest.bytes, rest.previous), (640, 384, front));
            blocks[front].free_after = 7;
            assert_eq!(blocks.absorb_previous(whole), first);
            let joined = blocks[whole];
            assert_eq!((joined.range(), joined.free_after), (before.range(), 7));
            assert_eq!((blocks.len(), blocks.capacity()), (2, 3));
        }
    }
}
