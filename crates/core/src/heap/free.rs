//! The way of a free: address to block, then joined at once, or pending until its fences pass. And
//! the way home: granules go back to where they belong when nothing uses them.
//!
//! Whatever a program does, a granule that is free ends where it was before: so a program that
//! repeats itself finds the same memory at the same addresses, and makes no driver call. It is free
//! there in the order of the stream that used it last, or, if that use is complete, of the one it
//! was taken from, until its own stream takes it back.

use std::ops::Range;

use super::Heap;
use crate::error::{FreeError, RecordStreamError};
use crate::fence::{Fence, StreamOrder};
use crate::id::{StreamId, StreamIx};
use crate::plan::Plan;
use crate::policy::SegmentKind;
use crate::space::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::vm::page::Return;

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
        self.finish_free(index);
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
        let index = self.space.find_live(address)?;
        self.streams.live(stream)?;
        if self.space.list_of(index).stream != stream.index {
            let block = &mut self.space.blocks[index];
            self.uses.add(&mut block.uses, stream);
        }
        Ok(())
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
        let Some(plan) = self.streams.plan_free(index, &mut self.uses, &mut block.uses) else {
            self.finish_free(index);
            return Freed::Done;
        };
        self.space.blocks.set_state(index, BlockState::Claimed);
        Freed::Plan(Box::new(plan))
    }

    /// A claimed block's fences are recorded: it waits for those that have not passed yet.
    pub(super) fn publish_pending(&mut self, index: BlockIndex, fences: &[Fence]) {
        assert!(!fences.is_empty(), "a block is pending on nothing");
        self.space.blocks.set_state(index, BlockState::Pending);
        for &fence in fences {
            if !self.streams.wait_for(fence, index) {
                self.pass_use(index, fence.stream);
            }
        }
    }

    /// A use of a pending block is complete; after the last one the block is free.
    pub(super) fn pass_use(&mut self, index: BlockIndex, stream: StreamId) {
        if self.uses.remove(&mut self.space.blocks[index].uses, stream) {
            self.finish_free(index);
        }
    }

    /// Recording failed (B8): the block is not used again before the device was idle.
    pub(super) fn quarantine(&mut self, index: BlockIndex) {
        self.space.blocks.set_state(index, BlockState::Quarantined);
        let block = &mut self.space.blocks[index];
        self.uses.clear(&mut block.uses);
        self.stats.quarantined_bytes += block.bytes;
        self.quarantine.push(index);
    }

    // The way home.

    /// Sends those handles of a free block of a window home that became wholly free with `freed`.
    ///
    /// Granules that a private pool borrows stay, since graphs hold their addresses, and so does
    /// what is pinned.
    pub(super) fn send_home(&mut self, index: BlockIndex, freed: Range<u64>) {
        let Block { list, segment, .. } = self.space.blocks[index];
        if !self.is_open(list) {
            return;
        }
        let whole = self.vm.whole_handles(segment, self.space.blocks[index].range());
        if whole.is_empty() {
            return;
        }
        let touched = self.vm.handles_around(segment, freed);
        let (start, end) = (whole.start.max(touched.start), whole.end.min(touched.end));
        if start >= end {
            return;
        }
        let mut parts: Vec<Range<u64>> = self.vm.unpinned(start..end).collect();
        // From the last to the first: what is cut off stands behind what the block keeps.
        while let Some(range) = parts.pop() {
            let claimed = self.space.claim_range(index, range.start, range.end);
            self.bring_home(claimed);
        }
    }

    /// A claimed piece of a window is idle, and its granules are free at home.
    fn bring_home(&mut self, claimed: BlockIndex) {
        let window = self.space.blocks[claimed];
        assert!(window.is_window, "memory at home comes home");
        let blocks = &self.space.blocks;
        let start_of = |index: BlockIndex| blocks[index].address;
        let returns = self.vm.returns(window.segment, &window.range(), start_of);
        self.windows().make_idle(claimed);
        for piece in &returns {
            self.come_home(piece, &window);
        }
        self.vm.keep_returns(returns);
    }

    /// Granules of one block at home are free there again.
    fn come_home(&mut self, from: &Return, window: &Block) {
        let home = self.vm.home_of(from);
        self.vm.come_home(from);
        let state = self.space.blocks[from.block].state;
        assert!(state == BlockState::Remapped, "memory comes home to a block that has some");
        let (piece, rest) = self.space.cut_out(from.block, &home);
        if let Some(rest) = rest {
            let block = &self.space.blocks[rest];
            self.vm.set_remapped_block(block.segment, &block.range(), rest);
        }
        let [from, to] = [window.list, self.space.blocks[piece].list].map(|l| self.space.list(l));
        let (from_class, to_class) = (from.class as usize, to.class as usize);
        if from.stream == to.stream {
            let block = &mut self.space.blocks[piece];
            block.free_after = block.free_after.max(window.free_after);
        } else if !self.streams.has_passed(from.stream, window.free_after) {
            // Free in the order of the stream that used it last, which is that of all uses before.
            let (pool, class, stream) = (to.pool, to.class, from.stream);
            let list = self.list_in(pool, class, stream);
            let block = &mut self.space.blocks[piece];
            (block.list, block.free_after) = (list, window.free_after);
        }
        let bytes = home.end - home.start;
        self.stats.classes[from_class].reserved_bytes.take(bytes);
        self.stats.classes[to_class].reserved_bytes.add(bytes);
        self.file_again(piece);
    }

    /// Gives a stream back what is free at home of the memory obtained for it, as far as it is
    /// ordered after the last use by now: that is joined with what is free around it.
    ///
    /// Others' stays where it is, even if complete: joined with what its owner freed just now it
    /// would have to be waited for again.
    pub(super) fn restore_to(&mut self, owner: StreamIx) {
        let mut restorable = Vec::new();
        for list in self.space.lists() {
            let is_among = list.kind == SegmentKind::Mapped
                && list.stream != owner
                && self.pools.is_open(list.pool);
            if !is_among {
                continue;
            }
            for index in list.filed_from(&self.space.blocks, self.config.granule_bytes) {
                let segment = &self.space.segments[self.space.blocks[index].segment];
                if !segment.is_window
                    && self.space.list(segment.list).stream == owner
                    && self.streams.order_of(&self.space, index, owner) == StreamOrder::Ordered
                {
                    restorable.push((index, segment.list));
                }
            }
        }
        for (index, list) in restorable {
            let is_over = self.streams.is_complete(&self.space, index);
            // Where the owner waits for the last use only, its next fence covers that for others.
            let next = self.streams.at(owner).free_after();
            self.space.take_out(index);
            let block = &mut self.space.blocks[index];
            (block.list, block.free_after) = (list, if is_over { 0 } else { next });
            self.file_again(index);
        }
    }

    /// Sends everything home that can go: before memory is given back, and once it is not pinned.
    pub(crate) fn send_all_home(&mut self) {
        let segments = self.space.segments.iter();
        let open = segments.filter(|(_, segment)| segment.is_window && self.is_open(segment.list));
        let mut free = Vec::new();
        for first in open.map(|(_, segment)| segment.first).collect::<Vec<_>>() {
            let mut next = first;
            while let Some(index) = next.some() {
                if self.space.blocks[index].state == BlockState::Free {
                    self.streams.join_complete(&mut self.space, index);
                    free.push(index);
                }
                next = self.space.blocks[index].next;
            }
        }
        // What goes home joins no block of a window.
        for index in free {
            let whole = self.space.blocks[index].range();
            self.send_home(index, whole);
        }
    }
}
