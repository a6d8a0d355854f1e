//! Free blocks: filed and joined (I2), taken out, and given to requests.

use super::block::{Block, BlockIndex, BlockState};
use super::{Granted, Space};
use crate::id::ListIx;

impl Space {
    /// Files an unfiled block as free in its list, joined with the free blocks around it (I2).
    /// Returns the block that it is part of now.
    #[inline]
    pub(crate) fn file(&mut self, index: BlockIndex) -> BlockIndex {
        self.end_trail(self.blocks[index].list);
        self.file_joined(index)
    }

    /// The same, which leads a list back on its trail.
    #[inline]
    pub(super) fn file_joined(&mut self, index: BlockIndex) -> BlockIndex {
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

    /// A block comes after another, or first in its segment.
    #[inline]
    fn put_after(&mut self, before: BlockIndex, index: BlockIndex) {
        match before.some() {
            Some(before) => self.blocks[before].next = index,
            None => self.segments.begin_with(self.blocks[index].segment, index),
        }
    }

    #[inline]
    pub(super) fn is_free_in(&self, index: BlockIndex, list: ListIx) -> bool {
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
}
