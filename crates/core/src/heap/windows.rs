//! Windows: the blocks of segments of windows, kept in step with the page table.
//!
//! A window in use is a block like any other. When memory has left it, it is idle: its parts are
//! joined as far as they were used in one stream's order, and a whole one waits for its next use.

use crate::policy;
use crate::space::Space;
use crate::space::block::{BlockIndex, BlockState};
use crate::vm::PageTable;

/// The blocks and the page table of a heap.
#[derive(Debug)]
pub(super) struct Windows<'a> {
    pub(super) space: &'a mut Space,
    pub(super) vm: &'a mut PageTable,
}

impl Windows<'_> {
    /// Claims the front of a window, idle or of addresses that lead nowhere.
    pub(super) fn claim(&mut self, index: BlockIndex, bytes: u64) {
        if self.space.blocks[index].state == BlockState::IdleWindow {
            self.take_idle(index);
            let window_bytes = self.space.blocks[index].bytes;
            assert!(bytes <= window_bytes, "a window is smaller than its remap");
            if window_bytes > bytes {
                self.space.blocks.cut(index, bytes);
            }
            self.space.blocks.set_state(index, BlockState::Claimed);
        } else {
            self.space.claim_unmapped(index, bytes);
            let block = &self.space.blocks[index];
            self.vm.add_window(block.segment, &block.range());
        }
    }

    /// Takes a whole idle window out of those that wait for their next use.
    pub(super) fn take_idle(&mut self, index: BlockIndex) {
        let key = self.space.window_key(index, self.vm.granule_bytes());
        let is_idle = self.space.blocks[index].state == BlockState::IdleWindow;
        assert!(is_idle, "a window is taken that is not idle");
        self.space.idle_windows.remove(key);
    }

    /// Makes a claimed block of a segment of windows idle: whole windows in it can be used again.
    pub(super) fn make_idle(&mut self, index: BlockIndex) {
        let block = self.space.blocks[index];
        assert!(block.is_window, "memory at home is no window");
        // From the last window in it to the first.
        for start in self.vm.windows_within(block.segment, &block.range()).into_iter().rev() {
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
        if self.vm.is_unmapped(block.segment, &block.range()) {
            let list = self.space.segments[block.segment].list;
            let block = &mut self.space.blocks[index];
            (block.list, block.free_after) = (list, 0);
        }
        if self.joins(index, block.next) {
            self.space.blocks.absorb_next(index);
        }
        if self.joins(block.previous, index) {
            self.space.blocks.absorb_next(block.previous);
            index = block.previous;
        }
        let block = &self.space.blocks[index];
        if self.vm.is_whole_window(block.segment, &block.range()) {
            let key = self.space.window_key(index, self.vm.granule_bytes());
            self.space.idle_windows.insert(key, index);
            let most = 2 * self.vm.mapping_count() + policy::WINDOWS_TO_PASS_OVER;
            self.space.idle_windows.tidy(most);
        }
    }

    /// Whether two neighbours are idle parts of one window that go together.
    fn joins(&self, first: BlockIndex, second: BlockIndex) -> bool {
        let idle = |index: BlockIndex| {
            let block = index.some().map(|index| self.space.blocks[index]);
            block.filter(|block| block.state == BlockState::IdleWindow)
        };
        let (Some(first), Some(second)) = (idle(first), idle(second)) else { return false };
        first.list == second.list && !self.vm.is_window_start(second.segment, second.address)
    }

    /// A claimed block, some of whose mappings were undone, stands where it belongs again.
    pub(super) fn finish_unmapping(&mut self, index: BlockIndex) {
        let block = self.space.blocks[index];
        if !block.is_window {
            return self.space.make_unmapped(index);
        }
        let (segment, range) = (block.segment, block.range());
        self.vm.renew_runs(segment, range.clone());
        if self.vm.is_whole_window(segment, &range) && self.vm.is_unmapped(segment, &range) {
            self.vm.forget_window(segment, block.address);
            self.space.make_unmapped(index);
        } else {
            self.make_idle(index);
        }
    }
}
