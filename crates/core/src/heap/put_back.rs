//! Putting a block back where it was, as trees of graphs do.
//!
//! What a private pool gave may have been in a window that is idle by now. Its addresses lead to
//! the same memory still (I12), which is free at home: it backs the window again.

use std::ops::Range;

use super::windows::Windows;
use crate::id::ListIx;
use crate::space::block::{Block, BlockIndex, BlockState};
use crate::space::free_list::FreeList;

impl Windows<'_> {
    /// Lets addresses of a private pool lead to memory that is free: where its windows are idle,
    /// handles that are free at home back them again. Where any of it is neither free nor idle,
    /// nothing changes.
    pub(super) fn lead_back(&mut self, list: ListIx, place: &Range<u64>) {
        let within = self.space.within(place);
        let state = |index: &BlockIndex| self.space.blocks[*index].state;
        let may = [BlockState::Free, BlockState::IdleWindow];
        if within.iter().all(|index| may.contains(&state(index))) {
            within.into_iter().all(|index| self.lead_window_back(list, index, place));
        }
    }

    /// The same for one block. Whether it is free now, as far as the place has it: two windows may
    /// lead to the same memory.
    fn lead_window_back(&mut self, list: ListIx, window: BlockIndex, place: &Range<u64>) -> bool {
        let block = self.space.blocks[window];
        if block.state == BlockState::Free {
            return true;
        }
        let addresses = self.handles_within(&block, place);
        let homes = self.vm.span(block.segment, addresses.clone()).homes();
        let mut left = addresses.end - addresses.start;
        for (_, home) in &homes {
            left -= home.end - home.start;
            if !self.is_free_in_pool_of(list, home) {
                return false;
            }
        }
        if left > 0 {
            return false;
        }
        if self.vm.under(&block).is_whole_window() {
            // What is left of it is a part.
            self.take_idle(window);
            self.space.blocks.set_state(window, BlockState::IdleWindow);
        }
        let (window, _) = self.space.cut_out(window, &addresses);
        self.space.blocks.set_state(window, BlockState::Claimed);
        // What was free at home in the order of several streams is so here.
        let (mut parts, mut taken) = (Vec::new(), Vec::new());
        for (at, home) in homes {
            let within = self.space.within(&home);
            parts.extend(within.iter().map(|&index| {
                let Block { address, list, free_after, .. } = self.space.blocks[index];
                (at + address.saturating_sub(home.start), list, free_after)
            }));
            if let Some(&first) = within.first() {
                let claimed = self.space.claim_range(first, home.start, home.end);
                self.space.blocks[claimed].free_after = 0;
                taken.push(claimed);
            }
        }
        self.finish_remap(list, window, &taken);
        let class = self.space.of_segment(block.segment).class;
        for (start, list, free_after) in parts.into_iter().rev() {
            let FreeList { pool, stream, .. } = *self.space.list(list);
            let list = self.pools.list_in(self.space, pool, class, stream);
            let part = match start - addresses.start {
                0 => window,
                before => self.space.blocks.cut(window, before),
            };
            let block = &mut self.space.blocks[part];
            (block.list, block.free_after) = (list, free_after);
            self.space.file(part);
        }
        true
    }

    /// The handles that a place touches of an idle window's block.
    fn handles_within(&self, window: &Block, place: &Range<u64>) -> Range<u64> {
        let around = self.vm.span(window.segment, place.clone()).handles_around();
        around.start.max(window.address)..around.end.min(window.end())
    }

    /// Whether memory at home is free, and of a list's pool.
    fn is_free_in_pool_of(&self, list: ListIx, home: &Range<u64>) -> bool {
        let Some(segment) = self.space.segments.containing(home.start) else { return false };
        let blocks = self.space.within(home);
        self.space.of_segment(segment).pool == self.space.list(list).pool
            && blocks.iter().all(|&index| self.space.blocks[index].state == BlockState::Free)
    }
}
