//! [`Block`] and [`Blocks`]: pieces of segments, linked to their neighbours by address.
//!
//! Invariants: the blocks of one segment form one doubly linked list in address order that tiles
//! it; an id is valid from [`Blocks::insert`] to [`Blocks::remove`] and then used again.

use std::ops::{Index, IndexMut};

use super::expandable::ExpandableId;
use super::pool_id::PoolId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId(u32);

/// A contiguous piece of a segment.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// What the program asked for; stays after a free until it is complete.
    pub(super) requested_bytes: u64,
    pub(super) pool: PoolId,
    /// The stream it was allocated for, by dense number.
    pub(super) stream: u16,
    /// In the program's hands.
    pub(super) is_allocated: bool,
    /// Whether memory is behind it; false only in expandable segments.
    pub(super) is_mapped: bool,
    /// The expandable segment it is part of.
    pub(super) expandable: Option<ExpandableId>,
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    /// Events that must pass before it is free.
    pub(super) pending_events: u32,
    /// Other streams that use it, in ascending order.
    pub(super) uses: Vec<u16>,
    /// The pool's count of searches when it became free.
    pub(super) age_base: u64,
}

impl Block {
    /// A block without neighbours, not allocated.
    pub(super) fn new(pool: PoolId, stream: u16, address: u64, bytes: u64) -> Self {
        Self {
            address,
            bytes,
            requested_bytes: 0,
            pool,
            stream,
            is_allocated: false,
            is_mapped: true,
            expandable: None,
            previous: None,
            next: None,
            pending_events: 0,
            uses: Vec::new(),
            age_base: 0,
        }
    }

    pub(super) fn piece(&self, address: u64, bytes: u64) -> Self {
        Self {
            expandable: self.expandable,
            is_mapped: self.is_mapped,
            ..Self::new(self.pool, self.stream, address, bytes)
        }
    }

    pub(super) const fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    /// Whether nobody uses it, mapped or not.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_allocated && self.pending_events == 0 && self.uses.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    items: Vec<Block>,
    spare: Vec<BlockId>,
}

impl Blocks {
    pub(super) fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.spare.pop() {
            self[id] = block;
            return id;
        }
        self.items.push(block);
        BlockId((self.items.len() - 1) as u32)
    }

    /// Ends a block; its neighbours must no longer name it.
    pub(super) fn remove(&mut self, id: BlockId) {
        self.spare.push(id);
    }

    /// Puts a new block right before `next` in the list of its segment.
    pub(super) fn insert_before(&mut self, next: BlockId, block: Block) -> BlockId {
        let previous = self[next].previous;
        let id = self.insert(Block { previous, next: Some(next), ..block });
        self[next].previous = Some(id);
        if let Some(previous) = previous {
            self[previous].next = Some(id);
        }
        id
    }

    /// Puts a new block right after `previous` in the list of its segment.
    pub(super) fn insert_after(&mut self, previous: BlockId, block: Block) -> BlockId {
        let next = self[previous].next;
        let id = self.insert(Block { previous: Some(previous), next, ..block });
        self[previous].next = Some(id);
        if let Some(next) = next {
            self[next].previous = Some(id);
        }
        id
    }

    /// Gives `block` the memory of its neighbour `absorbed`, which ends.
    pub(super) fn absorb(&mut self, block: BlockId, absorbed: BlockId) {
        let (address, bytes) = (self[absorbed].address, self[absorbed].bytes);
        self[block].bytes += bytes;
        if self[block].previous == Some(absorbed) {
            let previous = self[absorbed].previous;
            self[block].address = address;
            self[block].previous = previous;
            if let Some(previous) = previous {
                self[previous].next = Some(block);
            }
        } else {
            let next = self[absorbed].next;
            self[block].next = next;
            if let Some(next) = next {
                self[next].previous = Some(block);
            }
        }
        self.remove(absorbed);
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;

    fn index(&self, id: BlockId) -> &Block {
        &self.items[id.0 as usize]
    }
}

impl IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.items[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Blocks};
    use crate::torch::pool_id::PoolId;

    fn piece(address: u64, bytes: u64) -> Block {
        Block::new(PoolId::new(0, false), 0, address, bytes)
    }

    #[test]
    fn splitting_and_absorbing_keep_the_list_whole() {
        let mut blocks = Blocks::default();
        let middle = blocks.insert(piece(1024, 1024));
        let low = blocks.insert_before(middle, piece(0, 1024));
        let high = blocks.insert_after(middle, piece(2048, 512));
        assert_eq!((blocks[low].next, blocks[high].previous), (Some(middle), Some(middle)));
        blocks.absorb(middle, low);
        assert_eq!((blocks[middle].address, blocks[middle].bytes), (0, 2048));
        assert_eq!((blocks[middle].previous, blocks[middle].next), (None, Some(high)));
        blocks.absorb(high, middle);
        assert_eq!((blocks[high].address, blocks[high].bytes), (0, 2560));
        assert!(!blocks[high].is_split());
        // The two ids that ended come back.
        let (first, second) = (blocks.insert(piece(0, 1)), blocks.insert(piece(0, 1)));
        assert_eq!((first, second), (middle, low));
    }
}
