//! Windows, and the way home: where memory of free blocks is, and in whose order.
//!
//! A window in use is a block like any other. When a handle in it is wholly free, it goes home, and
//! what it leaves behind is idle: its parts are joined as far as they were used in one stream's
//! order, and a whole window waits for its next use.
//!
//! Whatever a program does, a granule that is free ends where it was before: so a program that
//! repeats itself finds the same memory at the same addresses, and makes no driver call. It is free
//! there in the order of the stream that used it last, or, if that use is complete, of the one it
//! was taken from, until its own stream takes it back.

use std::ops::Range;

use super::Heap;
use crate::id::SegmentIx;
use crate::plan::Request;
use crate::space::block::{Block, BlockIndex, BlockState};
use crate::vm::page::Return;
use crate::vm::remap::Remap;

/// A heap of which the blocks and the page table are changed together.
#[derive(Debug)]
pub(super) struct Windows<'a> {
    pub(super) heap: &'a mut Heap,
}

impl Windows<'_> {
    // Remaps.

    /// Claims a window, idle or of addresses that lead nowhere, and what a remap takes at home: as
    /// few blocks as possible.
    pub(super) fn claim(&mut self, index: BlockIndex, remap: &Remap) -> Vec<BlockIndex> {
        self.claim_window(index, remap);
        let mut claimed = Vec::with_capacity(remap.taken.len());
        let mut left = remap.taken.as_slice();
        // From the last to the first: what is cut off a block stands behind what it keeps.
        while let Some((last, mut before)) = left.split_last() {
            let mut start = last.range.start;
            while let Some((next, others)) = before.split_last()
                && next.range.end == start
                && next.block == last.block
            {
                start = next.range.start;
                before = others;
            }
            claimed.push(self.heap.space.claim_range(last.block, start, last.range.end));
            left = before;
        }
        claimed
    }

    /// Claims what a remap uses of a window; the rest of that is idle.
    fn claim_window(&mut self, index: BlockIndex, remap: &Remap) {
        if self.heap.space.blocks[index].state == BlockState::IdleWindow {
            self.take_idle(index);
        } else {
            self.heap.space.claim_unmapped(index, remap.bytes);
        }
        let bytes = self.heap.space.blocks[index].bytes;
        assert!(remap.bytes <= bytes, "a window is smaller than its remap");
        if bytes > remap.bytes {
            let rest = self.heap.space.blocks.cut(index, remap.bytes);
            self.make_part_idle(rest);
        }
    }

    /// All granules of a remap are mapped and accessible in its window.
    pub(super) fn finish_remap(
        &mut self,
        request: Request,
        window: BlockIndex,
        taken: &[BlockIndex],
    ) {
        let granule_bytes = self.heap.vm.granule_bytes();
        for &index in taken {
            let block = self.heap.space.blocks[index];
            let is_whole = block.bytes.is_multiple_of(granule_bytes);
            assert!(is_whole, "a remap takes part of a granule");
            self.heap.class_of(block.list).reserved_bytes.take(block.bytes);
            self.heap.stats.rare.granule_remaps += block.bytes / granule_bytes;
            if block.is_window {
                self.make_idle(index);
            } else {
                self.heap.space.blocks.set_state(index, BlockState::Remapped);
                self.heap.vm.set_remapped(&block, index);
            }
        }
        let block = self.heap.space.blocks[window];
        assert!(block.is_window, "memory is remapped to what is no window");
        assert!(block.state == BlockState::Claimed, "memory is remapped to a window in use");
        self.heap.vm.back(block.segment, block.range());
        self.heap.class_of(request.list).reserved_bytes.add(block.bytes);
        let stream = self.heap.space.list(request.list).stream;
        let block = &mut self.heap.space.blocks[window];
        // What is left over is free to the request's stream at once; to others from its next fence
        // on, which covers those of the streams it waited for.
        (block.list, block.free_after) = (request.list, self.heap.streams.at(stream).free_after());
    }

    // Moves.

    /// What is live in a handle that backs a window has other memory, there and at home; what was
    /// free beside it has none.
    pub(super) fn finish_move(
        &mut self,
        addresses: Range<u64>,
        home: u64,
        emptied: Vec<BlockIndex>,
    ) {
        let segments = &self.heap.space.segments;
        let (Some(segment), Some(of_home)) =
            (segments.containing(addresses.start), segments.containing(home))
        else {
            return;
        };
        self.heap.vm.back(segment, addresses.clone());
        for free in self.heap.vm.span(segment, addresses.clone()).unmapped_ranges() {
            let start = home + (free.start - addresses.start);
            self.leave_home(of_home, start..start + (free.end - free.start));
        }
        for index in emptied {
            let Block { list, bytes, .. } = self.heap.space.blocks[index];
            self.heap.class_of(list).reserved_bytes.take(bytes);
            self.make_part_idle(index);
        }
        // What was freed meanwhile goes home handle by handle.
        self.send_all_home();
    }

    /// What lay at home of remapped memory has none any more.
    pub(super) fn leave_home(&mut self, segment: SegmentIx, range: Range<u64>) {
        let block = self.heap.vm.span(segment, range.clone()).remapped();
        let (piece, rest) = self.heap.space.cut_out(block, &range);
        if let Some(rest) = rest {
            self.heap.vm.set_remapped(&self.heap.space.blocks[rest], rest);
        }
        self.heap.space.blocks.set_state(piece, BlockState::Claimed);
        self.heap.space.make_unmapped(piece);
    }

    // Idle windows.

    /// Claims a whole idle window: it waits for its next use no more.
    pub(super) fn take_idle(&mut self, index: BlockIndex) {
        let key = self.heap.space.window_key(index, self.heap.vm.granule_bytes());
        let is_idle = self.heap.space.blocks[index].state == BlockState::IdleWindow;
        assert!(is_idle, "a window is taken that is not idle");
        self.heap.space.idle_windows.remove(key);
        self.heap.space.blocks.set_state(index, BlockState::Claimed);
    }

    /// Makes a claimed block of a segment of windows idle: whole windows in it can be used again.
    fn make_idle(&mut self, index: BlockIndex) {
        let block = self.heap.space.blocks[index];
        assert!(block.is_window, "memory at home is no window");
        // From the last window in it to the first.
        for start in self.heap.vm.under(&block).windows_within().into_iter().rev() {
            let part = self.heap.space.blocks.cut(index, start - block.address);
            self.make_part_idle(part);
        }
        self.make_part_idle(index);
    }

    /// Makes a block within one window idle, joined with the idle parts around it that were used in
    /// the same stream's order, or not at all.
    fn make_part_idle(&mut self, index: BlockIndex) {
        let mut index = index;
        self.heap.space.blocks.set_state(index, BlockState::IdleWindow);
        let block = self.heap.space.blocks[index];
        if self.heap.vm.under(&block).is_unmapped() {
            let list = self.heap.space.segments[block.segment].list;
            let block = &mut self.heap.space.blocks[index];
            (block.list, block.free_after) = (list, 0);
        }
        self.join(index, block.next);
        if self.join(block.previous, index) {
            index = block.previous;
        }
        let block = self.heap.space.blocks[index];
        let span = self.heap.vm.under(&block);
        if span.is_whole_window() {
            if span.is_unmapped() {
                // Of a remap that failed: a window no more.
                self.heap.vm.forget_window(&block);
                self.heap.space.blocks.set_state(index, BlockState::Claimed);
                return self.heap.space.make_unmapped(index);
            }
            let key = self.heap.space.window_key(index, self.heap.vm.granule_bytes());
            self.heap.space.idle_windows.insert(key, index);
        }
    }

    /// Makes one of two neighbours, if they are idle parts of one window that go together: in the
    /// order of that one which leads to memory.
    fn join(&mut self, first: BlockIndex, second: BlockIndex) -> bool {
        let idle = |index: BlockIndex| {
            let block = index.some().map(|index| &self.heap.space.blocks[index]);
            block.filter(|block| block.state == BlockState::IdleWindow)
        };
        let (Some(one), Some(other)) = (idle(first), idle(second)) else { return false };
        let is_unmapped = |block: &Block| self.heap.vm.under(block).is_unmapped();
        let is_same = one.list == other.list;
        let takes_over = !is_same && is_unmapped(one);
        let goes_together = is_same || takes_over || is_unmapped(other);
        if !goes_together || self.heap.vm.under(other).begins_window() {
            return false;
        }
        let list = if takes_over { other.list } else { one.list };
        self.heap.space.blocks.absorb_next(first);
        self.heap.space.blocks[first].list = list;
        true
    }

    /// A claimed block without memory of its own, of which ranges were unmapped, stands where it
    /// belongs again.
    pub(super) fn finish_unmapping(&mut self, index: BlockIndex) {
        if self.heap.vm.forget_window(&self.heap.space.blocks[index]) {
            self.heap.space.make_unmapped(index);
        } else {
            self.make_idle(index);
        }
    }

    // The way home.

    /// Files an unfiled block as free in its list, joined with the free blocks around it (I2); what
    /// of a window is wholly free with it goes home.
    #[inline(never)]
    pub(super) fn file(&mut self, index: BlockIndex) {
        let Block { is_window, .. } = self.heap.space.blocks[index];
        let freed = self.heap.space.blocks[index].range();
        let index = self.heap.space.file(index);
        if is_window {
            self.send_home(index, freed);
        }
    }

    /// Sends those handles of a free block of a window home that became wholly free with `freed`.
    ///
    /// Granules that a private pool borrows stay, since graphs hold their addresses, and so does
    /// what is pinned.
    fn send_home(&mut self, index: BlockIndex, freed: Range<u64>) {
        let block = &self.heap.space.blocks[index];
        if !self.heap.pools.is_open(self.heap.space.list(block.list)) {
            return;
        }
        let mut parts = self.heap.vm.under(block).to_send_home(freed);
        // From the last to the first: what is cut off stands behind what the block keeps.
        while let Some(range) = parts.pop() {
            let claimed = self.heap.space.claim_range(index, range.start, range.end);
            self.bring_home(claimed);
        }
    }

    /// A claimed piece of a window is idle, and its granules are free at home.
    fn bring_home(&mut self, claimed: BlockIndex) {
        let window = self.heap.space.blocks[claimed];
        let blocks = &self.heap.space.blocks;
        self.heap.vm.bring_home(&window, |index| blocks[index].address);
        self.make_idle(claimed);
        while let Some(piece) = self.heap.vm.next_return() {
            self.come_home(&piece, &window);
        }
    }

    /// Granules of one block at home are free there again.
    fn come_home(&mut self, from: &Return, window: &Block) {
        let state = self.heap.space.blocks[from.block].state;
        assert!(state == BlockState::Remapped, "memory comes home to a block that has some");
        let (piece, rest) = self.heap.space.cut_out(from.block, &from.home);
        if let Some(rest) = rest {
            self.heap.vm.set_remapped(&self.heap.space.blocks[rest], rest);
        }
        let (from, to) = (self.heap.space.list(window.list), self.heap.space.list_of(piece));
        if from.stream == to.stream {
            let block = &mut self.heap.space.blocks[piece];
            block.free_after = block.free_after.max(window.free_after);
        } else if !self.heap.streams.has_passed(from.stream, window.free_after) {
            // Free in the order of the stream that used it last, which is that of all uses before.
            let (pool, class, stream) = (to.pool, to.class, from.stream);
            let list = self.heap.pools.list_in(&mut self.heap.space, pool, class, stream);
            self.heap.space.give_to(piece, list);
            self.heap.space.blocks[piece].free_after = window.free_after;
        } else {
            // Complete, and used of late.
            let passed = self.heap.streams.at(to.stream).passed;
            let block = &mut self.heap.space.blocks[piece];
            block.free_after = block.free_after.max(passed);
        }
        let Block { list, bytes, .. } = self.heap.space.blocks[piece];
        self.heap.class_of(window.list).reserved_bytes.take(bytes);
        self.heap.class_of(list).reserved_bytes.add(bytes);
        self.file(piece);
    }

    /// Sends everything home that can go: before memory is given back.
    pub(super) fn send_all_home(&mut self) {
        self.heap.space.end_trails();
        let firsts = self.heap.space.segments.iter().map(|(_, segment)| segment.first);
        self.send_home_from(firsts.collect(), u64::MAX);
    }

    /// Sends home what can go of addresses of one segment: they are not pinned any more.
    pub(super) fn send_home_within(&mut self, addresses: &Range<u64>) {
        self.heap.space.end_trails();
        let first = self.heap.space.within(addresses).first().copied();
        self.send_home_from(first.into_iter().collect(), addresses.end);
    }

    /// Sends home what can go of segments of windows, of each from a block on, with those joined
    /// that are complete.
    fn send_home_from(&mut self, firsts: Vec<BlockIndex>, end: u64) {
        let mut free = Vec::new();
        for first in firsts {
            let Heap { space, streams, pools, .. } = &mut *self.heap;
            let of = &space.segments[space.blocks[first].segment];
            let mut next =
                first.some().filter(|_| of.is_window && pools.is_open(space.list(of.list)));
            while let Some(index) = next
                && space.blocks[index].address < end
            {
                if space.blocks[index].state == BlockState::Free {
                    streams.join_complete(space, index);
                    free.push(index);
                }
                next = space.blocks[index].next.some();
            }
        }
        // What goes home joins no block of a window.
        for index in free {
            let whole = self.heap.space.blocks[index].range();
            self.send_home(index, whole);
        }
    }
}
