//! The way of a free: address to block, then free at once, or pending until its fences pass.

use super::Heap;
use crate::counters::Count;
use crate::error::FreeError;
use crate::fence::Fence;
use crate::plan::Plan;
use crate::space::block::{BlockIndex, BlockState, NO_USES};

/// The answer to a free.
#[derive(Debug)]
pub enum Freed {
    /// Done: the block is free in its stream's order.
    Done,
    /// Other streams may still use the block: it becomes pending once this is done. Boxed, so that
    /// the answer to most frees is a word.
    Plan(Box<Plan>),
}

impl Heap {
    /// Frees a live block.
    ///
    /// # Errors
    /// The address is unknown, inside a block, or free already; the heap is unchanged.
    #[inline]
    pub fn free(&mut self, address: u64) -> Result<Freed, FreeError> {
        let index = self.space.find_live(address)?;
        Ok(self.free_block(index))
    }

    /// Frees a live block, given the size it was allocated with.
    ///
    /// # Errors
    /// As [`free`](Self::free), and another size than the block's; the heap is unchanged.
    #[inline]
    pub fn free_sized(&mut self, address: u64, given_bytes: u64) -> Result<Freed, FreeError> {
        let index = self.space.find_live(address)?;
        let requested_bytes = self.space.blocks[index].requested;
        if given_bytes != requested_bytes {
            return Err(FreeError::WrongSize { address, given_bytes, requested_bytes });
        }
        Ok(self.free_block(index))
    }

    #[inline]
    fn free_block(&mut self, index: BlockIndex) -> Freed {
        let (block, list) = self.space.block_and_list(index);
        // Its own stream's order counts from now, however long other streams' uses last.
        block.free_after = self.streams.at(list.stream).free_after();
        self.stats.free(list.class as usize, block.bytes);
        if block.uses != NO_USES {
            return self.free_after_uses(index);
        }
        if block.is_window {
            // Memory goes home as soon as it can.
            self.finish_free(index);
            return Freed::Done;
        }
        list.active_bytes.take(block.bytes);
        self.stats.complete(list.class as usize, block.requested, block.bytes);
        if !self.space.put_off(index) {
            self.space.map.remove(&mut self.space.blocks, index);
            self.space.file(index);
        }
        Freed::Done
    }

    /// The size of a live block and what was asked for, in bytes.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn size_of(&self, address: u64) -> Result<(u64, u64), FreeError> {
        let block = &self.space.blocks[self.space.find_live(address)?];
        Ok((block.bytes, block.requested))
    }

    /// Makes a block free for its own stream: the last use elsewhere is complete, and it is no
    /// longer known by its address.
    #[inline]
    pub(super) fn finish_free(&mut self, index: BlockIndex) {
        let (block, list) = self.space.block_and_list(index);
        list.active_bytes.take(block.bytes);
        self.stats.complete(list.class as usize, block.requested, block.bytes);
        self.space.map.remove(&mut self.space.blocks, index);
        self.file(index);
    }

    // Uses on other streams.

    /// Plans a fence on every stream that uses the block, as far as its work may not be complete.
    #[cold]
    fn free_after_uses(&mut self, index: BlockIndex) -> Freed {
        let block = &mut self.space.blocks[index];
        let Some(plan) = self.streams.plan_free(index, &mut block.uses) else {
            self.finish_free(index);
            return Freed::Done;
        };
        self.space.blocks.set_state(index, BlockState::Claimed);
        self.space.begin_leaving(index);
        Freed::Plan(Box::new(plan))
    }

    /// A claimed block's fences are recorded: it waits for those that have not passed yet.
    pub(super) fn publish_pending(&mut self, index: BlockIndex, fences: &[Fence]) {
        self.space.blocks.set_state(index, BlockState::Pending);
        if self.streams.wait_for(fences, index, &mut self.space.blocks[index].uses) {
            self.space.end_leaving(index);
            self.finish_free(index);
        }
    }

    /// Recording failed (B8): the block is not used again before the device was idle.
    pub(super) fn quarantine(&mut self, index: BlockIndex) {
        self.space.blocks.set_state(index, BlockState::Quarantined);
        let block = &mut self.space.blocks[index];
        self.streams.uses.clear(&mut block.uses);
        self.stats.rare.quarantined_bytes += block.bytes;
        self.quarantine.push(index);
    }
}
