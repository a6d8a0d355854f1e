//! The way of a free: address to block, then merged at once, or pending until its fences pass.

use super::Heap;
use crate::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::error::{FreeError, RecordStreamError};
use crate::fence::Fence;
use crate::free_list::FreeList;
use crate::id::StreamId;
use crate::plan::{Intent, Plan, Step};
use crate::stats::Stats;

/// The answer to a free.
#[derive(Debug)]
pub enum Freed {
    /// Done: the block is free in its stream's order.
    Done,
    /// Other streams may still use the block: it becomes pending once this is done.
    Plan(Plan),
}

impl Heap {
    /// Frees a live block.
    ///
    /// # Errors
    /// The address is unknown, inside a block, or free already; the heap is unchanged.
    #[inline]
    pub fn free(&mut self, address: u64) -> Result<Freed, FreeError> {
        let index = self.find_live(address)?;
        Ok(self.free_block(index))
    }

    /// Frees a live block, given the size it was allocated with.
    ///
    /// # Errors
    /// As [`free`](Self::free), and another size than the block's; the heap is unchanged.
    #[inline]
    pub fn free_sized(&mut self, address: u64, given_bytes: u64) -> Result<Freed, FreeError> {
        let index = self.find_live(address)?;
        let requested_bytes = self.blocks[index].requested;
        if given_bytes != requested_bytes {
            return Err(FreeError::WrongSize { address, given_bytes, requested_bytes });
        }
        Ok(self.free_block(index))
    }

    #[inline]
    fn free_block(&mut self, index: BlockIndex) -> Freed {
        let block = &mut self.blocks[index];
        let list = &mut self.lists[block.list as usize];
        // Its own stream's order counts from now, however long other streams' uses last.
        block.free_after = self.streams.at(list.stream).free_after();
        self.stats.free(list.class as usize, block.bytes);
        if block.uses != NO_USES {
            return self.free_after_uses(index);
        }
        Self::complete(&mut self.stats, list, block);
        self.hand_back(index);
        Freed::Done
    }

    /// Notes that a live block is also used on another stream than its own.
    ///
    /// # Errors
    /// The address is not that of a live block, or the stream is unknown.
    pub fn record_stream(
        &mut self,
        address: u64,
        stream: StreamId,
    ) -> Result<(), RecordStreamError> {
        let index = self.find_live(address)?;
        self.streams.live(stream)?;
        let block = &self.blocks[index];
        if self.list(block.list).stream != stream.index {
            self.blocks[index].uses = self.uses.add(block.uses, stream);
        }
        Ok(())
    }

    /// The size of a live block and what was asked for, in bytes.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn size_of(&self, address: u64) -> Result<(u64, u64), FreeError> {
        let block = &self.blocks[self.find_live(address)?];
        Ok((block.bytes, block.requested))
    }

    #[inline]
    pub(crate) fn find_live(&self, address: u64) -> Result<BlockIndex, FreeError> {
        match self.map.find(&self.blocks, address) {
            Some(index) if self.blocks[index].state == BlockState::Live => Ok(index),
            Some(_) => Err(FreeError::AlreadyFree { address }),
            None => Err(self.classify(address)),
        }
    }

    /// Why an address is not that of a live block.
    #[cold]
    fn classify(&self, address: u64) -> FreeError {
        let Some(segment) = self.segments.containing(address).and_then(|i| self.segments.get(i))
        else {
            return FreeError::Unknown { address };
        };
        let mut next = segment.first;
        while let Some(index) = next.some() {
            let block = &self.blocks[index];
            if address < block.end() {
                return match block.state {
                    BlockState::Hollow => FreeError::Unknown { address },
                    BlockState::Live | BlockState::Pending if address != block.address => {
                        FreeError::Interior {
                            address,
                            block_address: block.address,
                            block_bytes: block.bytes,
                        }
                    }
                    _ => FreeError::AlreadyFree { address },
                };
            }
            next = block.next;
        }
        FreeError::Unknown { address }
    }

    /// Makes a block free for its own stream: the last use elsewhere is complete.
    #[inline]
    pub(super) fn settle(&mut self, index: BlockIndex) {
        let block = &self.blocks[index];
        let list = &mut self.lists[block.list as usize];
        Self::complete(&mut self.stats, list, block);
        self.hand_back(index);
    }

    /// A block that nobody uses any more is no longer known by its address, and free.
    #[inline]
    fn hand_back(&mut self, index: BlockIndex) {
        self.map.remove(&mut self.blocks, index);
        self.file(index);
    }

    /// No stream uses the block any more.
    #[inline]
    fn complete(stats: &mut Stats, list: &mut FreeList, block: &Block) {
        list.active_bytes.take(block.bytes);
        stats.complete(list.class as usize, block.requested, block.bytes);
    }

    /// Plans a fence on every stream that uses the block, as far as its work may not be complete.
    #[cold]
    fn free_after_uses(&mut self, index: BlockIndex) -> Freed {
        let uses = self.blocks[index].uses;
        let mut fences = Vec::new();
        let mut steps = Vec::new();
        for stream in self.uses.get(uses).to_vec() {
            let Some((fence, is_new)) = self.streams.fence_of_use(stream) else {
                self.uses.remove(uses, stream);
                continue;
            };
            fences.push(fence);
            if is_new {
                steps.push(Step::Record { fence });
            }
        }
        if fences.is_empty() {
            self.blocks[index].uses = NO_USES;
            self.settle(index);
            return Freed::Done;
        }
        self.blocks[index].state = BlockState::Claimed;
        Freed::Plan(Plan { steps, intent: Intent::Free { block: index, fences } })
    }

    /// A claimed block's fences are recorded: it waits for those that have not passed yet.
    pub(super) fn publish_pending(&mut self, index: BlockIndex, fences: &[Fence]) {
        self.blocks[index].state = BlockState::Pending;
        for &fence in fences {
            let state = self.streams.at_mut(fence.stream.index);
            if !state.is_retired {
                state.recorded = state.recorded.max(fence.point);
            }
            if state.passed >= fence.point {
                self.pass_use(index, fence.stream);
            } else {
                state.enqueue(fence.point, index);
            }
        }
    }

    /// A use of a pending block is complete; after the last one the block is free.
    pub(super) fn pass_use(&mut self, index: BlockIndex, stream: StreamId) {
        let uses = self.blocks[index].uses;
        if self.uses.remove(uses, stream) {
            self.blocks[index].uses = NO_USES;
            self.settle(index);
        }
    }

    /// Recording failed (B8): the block is not used again before the device was idle.
    pub(super) fn quarantine(&mut self, index: BlockIndex) {
        self.uses.clear(self.blocks[index].uses);
        let block = &mut self.blocks[index];
        block.uses = NO_USES;
        block.state = BlockState::Quarantined;
        self.stats.quarantined_bytes += block.bytes;
        self.quarantine.push(index);
    }
}
