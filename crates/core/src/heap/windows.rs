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

use crate::counters::Counters;
use crate::fence::Streams;
use crate::id::{ListIx, SegmentIx};
use crate::pool::{Pool, Pools};
use crate::space::Space;
use crate::space::block::{Block, BlockIndex, BlockState};
use crate::vm::PageTable;
use crate::vm::page::Return;
use crate::vm::remap::Remap;

/// What a heap knows of its memory: the blocks and the page table, to be changed together, and
/// whose the memory is.
#[derive(Debug)]
pub(super) struct Windows<'a> {
    pub(super) space: &'a mut Space,
    pub(super) vm: &'a mut PageTable,
    pub(super) streams: &'a Streams,
    pub(super) pools: &'a mut Pools<Pool>,
    pub(super) stats: &'a mut Counters,
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
            claimed.push(self.space.claim_range(last.block, start, last.range.end));
            left = before;
        }
        claimed
    }

    /// Claims what a remap uses of a window; the rest of that is idle.
    fn claim_window(&mut self, index: BlockIndex, remap: &Remap) {
        if self.space.blocks[index].state == BlockState::IdleWindow {
            self.take_idle(index);
        } else {
            self.space.claim_unmapped(index, remap.bytes);
        }
        let bytes = self.space.blocks[index].bytes;
        assert!(remap.bytes <= bytes, "a window is smaller than its remap");
        if bytes > remap.bytes {
            let rest = self.space.blocks.cut(index, remap.bytes);
            self.make_part_idle(rest);
        }
    }

    /// All granules of a remap are mapped and accessible in its window.
    pub(super) fn finish_remap(&mut self, list: ListIx, window: BlockIndex, taken: &[BlockIndex]) {
        let granule_bytes = self.vm.granule_bytes();
        for &index in taken {
            let class = self.space.list_of(index).class as usize;
            let block = self.space.blocks[index];
            let is_whole = block.bytes.is_multiple_of(granule_bytes);
            assert!(is_whole, "a remap takes part of a granule");
            self.stats.classes[class].reserved_bytes.take(block.bytes);
            self.stats.rare.granule_remaps += block.bytes / granule_bytes;
            if block.is_window {
                self.make_idle(index);
            } else {
                self.space.blocks.set_state(index, BlockState::Remapped);
                self.vm.set_remapped(&block, index);
            }
        }
        let block = &self.space.blocks[window];
        assert!(block.is_window, "memory is remapped to what is no window");
        assert!(block.state == BlockState::Claimed, "memory is remapped to a window in use");
        self.vm.back(block.segment, block.range());
        let of = self.space.list(list);
        let (class, stream) = (of.class as usize, of.stream);
        let block = &mut self.space.blocks[window];
        self.stats.classes[class].reserved_bytes.add(block.bytes);
        // What is left over is free to the request's stream at once; to others from its next fence
        // on, which covers those of the streams it waited for.
        (block.list, block.free_after) = (list, self.streams.at(stream).free_after());
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
        let segments = &self.space.segments;
        let (Some(segment), Some(of_home)) =
            (segments.containing(addresses.start), segments.containing(home))
        else {
            return;
        };
        self.vm.back(segment, addresses.clone());
        for free in self.vm.span(segment, addresses.clone()).unmapped_ranges() {
            let start = home + (free.start - addresses.start);
            self.leave_home(of_home, start..start + (free.end - free.start));
        }
        for index in emptied {
            let class = self.space.list_of(index).class as usize;
            self.stats.classes[class].reserved_bytes.take(self.space.blocks[index].bytes);
            self.make_part_idle(index);
        }
        // What was freed meanwhile goes home handle by handle.
        self.send_all_home();
    }

    /// What lay at home of remapped memory has none any more.
    pub(super) fn leave_home(&mut self, segment: SegmentIx, range: Range<u64>) {
        let block = self.vm.span(segment, range.clone()).remapped();
        let (piece, rest) = self.space.cut_out(block, &range);
        if let Some(rest) = rest {
            self.vm.set_remapped(&self.space.blocks[rest], rest);
        }
        self.space.blocks.set_state(piece, BlockState::Claimed);
        self.space.make_unmapped(piece);
    }

    // Idle windows.

    /// Claims a whole idle window: it waits for its next use no more.
    pub(super) fn take_idle(&mut self, index: BlockIndex) {
        let key = self.space.window_key(index, self.vm.granule_bytes());
        let is_idle = self.space.blocks[index].state == BlockState::IdleWindow;
        assert!(is_idle, "a window is taken that is not idle");
        self.space.idle_windows.remove(key);
        self.space.blocks.set_state(index, BlockState::Claimed);
    }

    /// Makes a claimed block of a segment of windows idle: whole windows in it can be used again.
    fn make_idle(&mut self, index: BlockIndex) {
        let block = self.space.blocks[index];
        assert!(block.is_window, "memory at home is no window");
        // From the last window in it to the first.
        for start in self.vm.under(&block).windows_within().into_iter().rev() {
            let part = self.space.blocks.cut(index, start - block.address);
            self.make_part_idle(part);
        }
        self.make_part_idle(index);
    }

    /// Makes a block within one window idle, joined with the idle parts around it that were used in
    /// the same stream's order, or not at all.
    fn make_part_idle(&mut self, index: BlockIndex) {
        let mut index = index;
        self.space.blocks.set_state(index, BlockState::IdleWindow);
        let block = self.space.blocks[index];
        if self.vm.under(&block).is_unmapped() {
            let list = self.space.segments[block.segment].list;
            let block = &mut self.space.blocks[index];
            (block.list, block.free_after) = (list, 0);
        }
        self.join(index, block.next);
        if self.join(block.previous, index) {
            index = block.previous;
        }
        let block = self.space.blocks[index];
        let span = self.vm.under(&block);
        if span.is_whole_window() {
            if span.is_unmapped() {
                // Of a remap that failed: a window no more.
                self.vm.forget_window(&block);
                self.space.blocks.set_state(index, BlockState::Claimed);
                return self.space.make_unmapped(index);
            }
            let key = self.space.window_key(index, self.vm.granule_bytes());
            self.space.idle_windows.insert(key, index);
        }
    }

    /// Makes one of two neighbours, if they are idle parts of one window that go together: in the
    /// order of that one which leads to memory.
    fn join(&mut self, first: BlockIndex, second: BlockIndex) -> bool {
        let idle = |index: BlockIndex| {
            let block = index.some().map(|index| &self.space.blocks[index]);
            block.filter(|block| block.state == BlockState::IdleWindow)
        };
        let (Some(one), Some(other)) = (idle(first), idle(second)) else { return false };
        let is_unmapped = |block: &Block| self.vm.under(block).is_unmapped();
        let is_same = one.list == other.list;
        let takes_over = !is_same && is_unmapped(one);
        let goes_together = is_same || takes_over || is_unmapped(other);
        if !goes_together || self.vm.under(other).begins_window() {
            return false;
        }
        let list = if takes_over { other.list } else { one.list };
        self.space.blocks.absorb_next(first);
        self.space.blocks[first].list = list;
        true
    }

    /// A claimed block without memory of its own, of which ranges were unmapped, stands where it
    /// belongs again.
    pub(super) fn finish_unmapping(&mut self, index: BlockIndex) {
        if self.vm.forget_window(&self.space.blocks[index]) {
            self.space.make_unmapped(index);
        } else {
            self.make_idle(index);
        }
    }

    // The way home.

    /// Files an unfiled block as free in its list, joined with the free blocks around it (I2); what
    /// of a window is wholly free with it goes home.
    #[inline(never)]
    pub(super) fn file(&mut self, index: BlockIndex) {
        let Block { is_window, .. } = self.space.blocks[index];
        let freed = self.space.blocks[index].range();
        let index = self.space.file(index);
        if is_window {
            self.send_home(index, freed);
        }
    }

    /// Sends those handles of a free block of a window home that became wholly free with `freed`.
    ///
    /// Granules that a private pool borrows stay, since graphs hold their addresses. Elsewhere so
    /// does what is pinned; of a private pool that is behind the same addresses still (I12).
    fn send_home(&mut self, index: BlockIndex, freed: Range<u64>) {
        let block = &self.space.blocks[index];
        let span = self.vm.under(block);
        let mut parts = match span.to_send_home(freed) {
            whole if whole.is_empty() => return,
            whole if self.pools.is_open(self.space.list(block.list)) => span.unpinned(whole),
            whole => own_parts(self.space, self.vm, block, whole),
        };
        // From the last to the first: what is cut off stands behind what the block keeps.
        while let Some(range) = parts.pop() {
            let claimed = self.space.claim_range(index, range.start, range.end);
            self.bring_home(claimed);
        }
    }

    /// A claimed piece of a window is idle, and its granules are free at home.
    fn bring_home(&mut self, claimed: BlockIndex) {
        let window = self.space.blocks[claimed];
        let blocks = &self.space.blocks;
        self.vm.bring_home(&window, |index| blocks[index].address);
        self.make_idle(claimed);
        while let Some(piece) = self.vm.next_return() {
            self.come_home(&piece, &window);
        }
    }

    /// Granules of one block at home are free there again.
    fn come_home(&mut self, from: &Return, window: &Block) {
        let state = self.space.blocks[from.block].state;
        assert!(state == BlockState::Remapped, "memory comes home to a block that has some");
        let (piece, rest) = self.space.cut_out(from.block, &from.home);
        if let Some(rest) = rest {
            self.vm.set_remapped(&self.space.blocks[rest], rest);
        }
        let (from, to) = (self.space.list(window.list), self.space.list_of(piece));
        let (from_class, to_class) = (from.class as usize, to.class as usize);
        if from.stream == to.stream {
            let block = &mut self.space.blocks[piece];
            block.free_after = block.free_after.max(window.free_after);
        } else if !self.streams.has_passed(from.stream, window.free_after) {
            // Free in the order of the stream that used it last, which is that of all uses before.
            let (pool, class, stream) = (to.pool, to.class, from.stream);
            let list = self.pools.list_in(self.space, pool, class, stream);
            self.space.give_to(piece, list);
            self.space.blocks[piece].free_after = window.free_after;
        } else {
            // Complete, and used of late.
            let passed = self.streams.at(to.stream).passed;
            let block = &mut self.space.blocks[piece];
            block.free_after = block.free_after.max(passed);
        }
        let bytes = self.space.blocks[piece].bytes;
        self.stats.classes[from_class].reserved_bytes.take(bytes);
        self.stats.classes[to_class].reserved_bytes.add(bytes);
        self.file(piece);
    }

    /// Sends everything home that can go: before memory is given back.
    pub(super) fn send_all_home(&mut self) {
        self.space.end_trails();
        let mut free = Vec::new();
        let segments = self.space.segments.iter();
        for segment in segments.map(|(index, _)| index).collect::<Vec<_>>() {
            let first = self.space.segments[segment].first;
            self.find_free(segment, first, u64::MAX, &mut free);
        }
        self.send_each_home(free);
    }

    /// Sends home what can go of addresses of one segment: they are not pinned any more.
    pub(super) fn send_home_within(&mut self, addresses: &Range<u64>) {
        let Some(segment) = self.space.segments.containing(addresses.start) else { return };
        self.space.end_trails();
        let Some(&first) = self.space.within(addresses).first() else { return };
        let mut free = Vec::new();
        self.find_free(segment, first, addresses.end, &mut free);
        self.send_each_home(free);
    }

    /// Finds free blocks of a segment of windows, from one on, and joins those that are complete.
    fn find_free(
        &mut self,
        segment: SegmentIx,
        first: BlockIndex,
        end: u64,
        free: &mut Vec<BlockIndex>,
    ) {
        let of = &self.space.segments[segment];
        if !of.is_window {
            return;
        }
        let is_open = self.pools.is_open(self.space.list(of.list));
        let mut next = first;
        while let Some(index) = next.some()
            && self.space.blocks[index].address < end
        {
            if self.space.blocks[index].state == BlockState::Free {
                if is_open {
                    self.streams.join_complete(self.space, index);
                }
                free.push(index);
            }
            next = self.space.blocks[index].next;
        }
    }

    /// What goes home joins no block of a window.
    fn send_each_home(&mut self, free: Vec<BlockIndex>) {
        for index in free {
            let whole = self.space.blocks[index].range();
            self.send_home(index, whole);
        }
    }
}

/// What of addresses in a window leads to memory of the window's own pool, as few ranges.
#[inline(never)]
pub(super) fn own_parts(
    space: &Space,
    vm: &PageTable,
    window: &Block,
    addresses: Range<u64>,
) -> Vec<Range<u64>> {
    let pool = space.list(window.list).pool;
    vm.span(window.segment, addresses).of_segments(|home| space.of_segment(home).pool == pool)
}
