//! Borders: the free blocks beside free blocks of other lists. Those of one list are joined (I2),
//! so whatever several free blocks make up together, blocks at borders do.
//!
//! Kept while blocks are filed, so that a request that looks for such a run need not walk all free
//! blocks. Where one list alone has memory, there is no border, and a filed block knows that.

use super::Space;
use super::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::id::ListIx;

impl Space {
    /// Whether a block is free in another list than this.
    #[inline]
    pub(super) fn is_free_elsewhere(&self, index: BlockIndex, list: ListIx) -> bool {
        index.some().is_some_and(|index| {
            let block = &self.blocks[index];
            block.state == BlockState::Free && block.list != list
        })
    }

    /// A block was filed, or has got other neighbours.
    #[inline]
    pub(super) fn enter_borders(&mut self, index: BlockIndex) {
        let Block { list, previous, next, .. } = self.blocks[index];
        if self.is_free_elsewhere(next, list) || self.is_free_elsewhere(previous, list) {
            self.add_borders(index);
        }
    }

    /// A block is no longer filed, or is about to change. Whether it was at a border.
    #[inline]
    pub(super) fn leave_borders(&mut self, index: BlockIndex) -> bool {
        let is_at_border = self.blocks[index].uses != NO_USES;
        if is_at_border {
            self.remove_borders(index);
        }
        is_at_border
    }

    /// A block was filed beside one that is free in another list.
    #[cold]
    #[inline(never)]
    pub(super) fn add_borders(&mut self, index: BlockIndex) {
        let Block { previous, next, list, .. } = self.blocks[index];
        for beside in [previous, next] {
            if self.is_free_elsewhere(beside, list) {
                self.add_border(index);
                self.add_border(beside);
            }
        }
    }

    /// A block at a border is no longer filed, which may leave those beside it at none.
    #[cold]
    #[inline(never)]
    fn remove_borders(&mut self, index: BlockIndex) {
        self.remove_border(index);
        let Block { previous, next, .. } = self.blocks[index];
        for beside in [previous, next].into_iter().filter_map(BlockIndex::some) {
            let Block { state, uses, list, previous, next, .. } = self.blocks[beside];
            let is_at_another = || {
                let mut others = [previous, next].into_iter().filter(|&other| other != index);
                others.any(|other| self.is_free_elsewhere(other, list))
            };
            if state == BlockState::Free && uses != NO_USES && !is_at_another() {
                self.remove_border(beside);
            }
        }
    }

    #[inline(never)]
    fn add_border(&mut self, index: BlockIndex) {
        let (block, list) = self.block_and_list(index);
        if block.uses == NO_USES {
            block.uses = list.borders.add(index, block.bytes);
        }
    }

    #[inline(never)]
    fn remove_border(&mut self, index: BlockIndex) {
        let (block, list) = self.block_and_list(index);
        let at = std::mem::replace(&mut block.uses, NO_USES);
        if let Some(moved) = list.borders.remove(at, block.bytes) {
            self.blocks[moved].uses = at;
        }
    }
}
