//! The way home: granules on loan go back to where they belong when nothing there uses them.
//!
//! Whatever a program does, a granule that is free ends where it was before: so a program that
//! repeats itself finds the same memory at the same addresses, and makes no driver call.

use std::ops::Range;

use super::Heap;
use crate::block::{Block, BlockIndex, BlockState};
use crate::granule::{GranuleId, Place};
use crate::size::{round_down, round_up, whole_units};

impl Heap {
    /// Sends those granules of a free block home that became wholly free with `freed`, as far as
    /// its stream is the one in whose order they are free at home, or its last use is complete.
    ///
    /// Granules that a private pool borrows stay: graphs hold their addresses.
    pub(super) fn send_home(&mut self, index: BlockIndex, freed: Range<u64>) {
        let block = self.blocks[index];
        if !self.is_open_pool(self.list(block.list).pool) {
            return;
        }
        let granule_bytes = self.config.granule_bytes;
        let whole = whole_units(block.address, block.end(), granule_bytes);
        let start = whole.start.max(round_down(freed.start, granule_bytes));
        let mut end = whole.end.min(round_up(freed.end, granule_bytes).unwrap_or(whole.end));
        // From the last to the first: what is cut off stands behind what the block keeps.
        while start < end {
            let from = self.last_to_stay(&block, start, end);
            if from < end {
                let claimed = self.claim_range(index, from, end);
                self.bring_home(claimed);
            }
            end = from.saturating_sub(granule_bytes);
        }
    }

    /// Where the last granule between two addresses of a free block ends that stays there; the
    /// first address if all can go home.
    fn last_to_stay(&self, block: &Block, start: u64, end: u64) -> u64 {
        let granule_bytes = self.config.granule_bytes;
        let mut from = end;
        while from > start && self.may_go_home(block, from - granule_bytes) {
            from -= granule_bytes;
        }
        from
    }

    /// Whether the granule at an address of a free block belongs elsewhere and can go there.
    fn may_go_home(&self, block: &Block, address: u64) -> bool {
        let place = self.place_at(block.segment, address);
        let segment = self.segments.get(place.segment);
        let Some(granule) = segment.and_then(|s| s.granule(place.slot as usize)) else {
            return false;
        };
        let lent = &self.blocks[self.granules.lent(granule)];
        let [from, to] = [block.list, lent.list].map(|list| self.list(list).stream);
        from == to || block.free_after <= self.streams.at(from).passed
    }

    /// A claimed piece of a loan is empty again, and its granules are free at home.
    fn bring_home(&mut self, claimed: BlockIndex) {
        let mut homes: Vec<(Place, GranuleId)> = Vec::with_capacity(self.slots_of(claimed).len());
        let granules = self.places_of(claimed).map(|(_, granule)| granule);
        homes.extend(granules.filter_map(|id| Some((self.granules.home(id)?, id))));
        homes.sort_unstable();
        let loan = self.blocks[claimed];
        self.empty_berth(claimed);
        // From the last to the first: what is cut off stands behind what a lent block keeps.
        let mut end = homes.len();
        while end > 0 {
            let lent = self.granules.lent(homes[end - 1].1);
            let last = homes[end - 1].0;
            let mut start = end - 1;
            while start > 0
                && homes[start - 1].0.segment == last.segment
                && homes[start - 1].0.slot + 1 == homes[start].0.slot
                && self.granules.lent(homes[start - 1].1) == lent
            {
                start -= 1;
            }
            self.settle_at_home(&homes[start..end], lent, &loan);
            end = start;
        }
    }

    /// Granules of one lent block, in order, are free there again.
    fn settle_at_home(&mut self, homes: &[(Place, GranuleId)], lent: BlockIndex, loan: &Block) {
        let Some(&(first, _)) = homes.first() else { return };
        let bytes = homes.len() as u64 * self.config.granule_bytes;
        let address = self.address_of(first);
        let piece = self.cut_lent(lent, address, address + bytes);
        for &(home, granule) in homes {
            self.granules.set_backing(granule, home);
        }
        let [from, to] = [loan.list, self.blocks[piece].list].map(|list| self.list(list));
        let is_same_stream = from.stream == to.stream;
        let [from, to] = [from.scale as usize, to.scale as usize];
        self.stats.scales[from].reserved_bytes.take(bytes);
        self.stats.scales[to].reserved_bytes.add(bytes);
        if is_same_stream {
            let block = &mut self.blocks[piece];
            block.free_after = block.free_after.max(loan.free_after);
        }
        self.file(piece);
    }

    /// Cuts a lent block so that one block covers the addresses from `start` to `end`.
    fn cut_lent(&mut self, lent: BlockIndex, start: u64, end: u64) -> BlockIndex {
        debug_assert_eq!(self.blocks[lent].state, BlockState::Lent);
        let mut piece = lent;
        if self.blocks[piece].address < start {
            piece = self.blocks.cut(piece, start - self.blocks[piece].address);
        }
        if self.blocks[piece].end() > end {
            let rest = self.blocks.cut(piece, end - start);
            self.note_lent(rest);
        }
        piece
    }

    /// Sends everything home that can go: before memory is given back.
    pub(super) fn send_all_home(&mut self) {
        let loans = self
            .segments
            .iter()
            .filter(|&(number, segment)| segment.is_loan && self.is_trimmable(number));
        let mut free = Vec::new();
        for first in loans.map(|(_, segment)| segment.first).collect::<Vec<_>>() {
            let mut next = first;
            while let Some(index) = next.some() {
                if self.blocks[index].state == BlockState::Free {
                    self.join_idle(index);
                    free.push(index);
                }
                next = self.blocks[index].next;
            }
        }
        // What goes home joins no block that is on loan.
        for index in free {
            let block = &self.blocks[index];
            let whole = block.address..block.end();
            self.send_home(index, whole);
        }
    }

    /// Joins a free block with those after it that are free on other streams, as far as their last
    /// uses are complete: together they may hold whole granules.
    fn join_idle(&mut self, index: BlockIndex) {
        let end = self.idle_run_end(index);
        while self.blocks[index].end() < end {
            let next = self.blocks[index].next;
            // One of the same list whose last use is not complete must stay apart (I2).
            let stays = |&after: &BlockIndex| {
                let after = &self.blocks[after];
                after.address >= end
                    && after.state == BlockState::Free
                    && after.list == self.blocks[index].list
            };
            if self.blocks[next].next.some().as_ref().is_some_and(stays) {
                break;
            }
            self.remove_free(index);
            self.remove_free(next);
            self.blocks.absorb_next(index);
            // Complete: points of different streams would not compare.
            self.blocks[index].free_after = 0;
            self.insert_free(index);
        }
    }
}
