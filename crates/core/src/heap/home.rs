//! The way home: granules on loan go back to where they belong when nothing there uses them.
//!
//! Whatever a program does, a granule that is free ends where it was before: so a program that
//! repeats itself finds the same memory at the same addresses, and makes no driver call. It is free
//! there in the order of the stream that used it last, or, if that use is complete, of the one it
//! was lent from, until its own stream takes it back.

use std::cmp::Reverse;
use std::ops::Range;

use super::Heap;
use super::request::Readiness;
use crate::block::{Block, BlockIndex, BlockState};
use crate::granule::Place;
use crate::policy::SegmentKind;

/// Slots of a loan whose granules belong beside each other in one lent block.
#[derive(Clone, Debug)]
pub(super) struct Return {
    slots: Range<usize>,
    /// Where the first of them belongs.
    home: Place,
    lent: BlockIndex,
}

impl Heap {
    /// Sends those handles of a free block home that became wholly free with `freed`.
    ///
    /// Granules that a private pool borrows stay, since graphs hold their addresses, and so does
    /// what is pinned.
    pub(super) fn send_home(&mut self, index: BlockIndex, freed: Range<u64>) {
        let block = self.blocks[index];
        if !self.is_open_pool(self.list(block.list).pool) {
            return;
        }
        let whole = self.whole_handles(block.segment, block.address..block.end());
        if whole.is_empty() {
            return;
        }
        let touched = self.handles_around(block.segment, freed);
        let (start, end) = (whole.start.max(touched.start), whole.end.min(touched.end));
        if start >= end {
            return;
        }
        let mut parts: Vec<Range<u64>> = self.pins.free_of(start..end).collect();
        // From the last to the first: what is cut off stands behind what the block keeps.
        while let Some(range) = parts.pop() {
            let claimed = self.claim_range(index, range.start, range.end);
            self.bring_home(claimed);
        }
    }

    /// A claimed piece of a loan is empty again, and its granules are free at home.
    fn bring_home(&mut self, claimed: BlockIndex) {
        let loan = self.blocks[claimed];
        let mut slots = self.slots_of(claimed);
        let mut returns = std::mem::take(&mut self.returns);
        while let Some(last) = self.last_return(&loan, slots.clone()) {
            slots.end = last.slots.start;
            returns.push(last);
        }
        debug_assert!(slots.is_empty());
        self.empty_berth(claimed);
        // From the last to the first: what is cut off stands behind what a lent block keeps.
        returns.sort_unstable_by_key(|piece| Reverse(piece.home));
        for piece in returns.drain(..) {
            self.settle_at_home(piece, &loan);
        }
        self.returns = returns;
    }

    /// The last of these slots of a loan whose granules belong beside each other.
    fn last_return(&self, loan: &Block, slots: Range<usize>) -> Option<Return> {
        let segment = self.segments.get(loan.segment)?;
        let home_of = |slot: usize| self.granules.home(segment.granule(slot)?);
        let last = slots.clone().next_back()?;
        let home = home_of(last)?;
        let lent = self.segments.get(home.segment)?.lent(home.slot as usize).some()?;
        let room = (self.address_of(home) - self.blocks[lent].address) / self.config.granule_bytes;
        let before = (slots.start..last).rev().take(room as usize).zip((0..home.slot).rev());
        let is_beside = |&(at, slot): &(usize, u32)| home_of(at) == Some(Place { slot, ..home });
        let beside = before.take_while(is_beside).count();
        let home = Place { slot: home.slot - beside as u32, ..home };
        Some(Return { slots: last - beside..slots.end, home, lent })
    }

    /// Granules of one lent block, in order, are free there again.
    fn settle_at_home(&mut self, Return { slots, home, lent }: Return, loan: &Block) {
        let granules = slots.len() as u64;
        let bytes = granules * self.config.granule_bytes;
        self.remapped_granules -= granules;
        let address = self.address_of(home);
        let piece = self.cut_lent(lent, address, address + bytes);
        if let Some(segment) = self.segments.get(loan.segment) {
            let granules = slots.filter_map(|slot| segment.granule(slot));
            for (slot, granule) in (home.slot..).zip(granules) {
                self.granules.set_backing(granule, Place { slot, ..home });
            }
        }
        let [from, to] = [loan.list, self.blocks[piece].list].map(|list| self.list(list));
        let (from_scale, to_scale) = (from.class as usize, to.class as usize);
        if from.stream == to.stream {
            let block = &mut self.blocks[piece];
            block.free_after = block.free_after.max(loan.free_after);
        } else if loan.free_after > self.streams.at(from.stream).passed {
            // Free in the order of the stream that used it last, which is that of all uses before.
            let (pool, class, stream) = (to.pool, to.class, from.stream);
            self.blocks[piece].list = self.list_in(pool, class, stream);
            self.blocks[piece].free_after = loan.free_after;
        }
        self.stats.classes[from_scale].reserved_bytes.take(bytes);
        self.stats.classes[to_scale].reserved_bytes.add(bytes);
        self.file(piece);
    }

    /// Cuts a lent block so that one unfiled block covers the addresses from `start` to `end`.
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

    /// Notes which block is lent: granules that come back find it by that.
    pub(super) fn note_lent(&mut self, index: BlockIndex) {
        let slots = self.slots_of(index);
        if let Some(segment) = self.segments.get_mut(self.blocks[index].segment) {
            segment.set_lent(slots, index);
        }
    }

    /// Gives a stream back what is free at home of the memory obtained for it, as far as it is
    /// ordered after the last use by now: that is joined with what is free around it.
    ///
    /// Others' stays where it is, even if complete: joined with what its owner freed just now it
    /// would have to be waited for again.
    pub(super) fn restore_to(&mut self, owner: u32) {
        let others = self.lists.iter().filter(|list| {
            let is_mapped = list.kind == SegmentKind::Mapped;
            is_mapped && list.stream != owner && self.is_open_pool(list.pool)
        });
        let free = others.flat_map(|list| list.filed_from(&self.blocks, self.config.granule_bytes));
        let restorable: Vec<(BlockIndex, u32)> = free
            .filter(|&index| self.readiness(index, owner) == Readiness::Ordered)
            .filter_map(|index| Some((index, self.owner_of(&self.blocks[index])?)))
            .filter(|&(_, list)| self.list(list).stream == owner)
            .collect();
        for (index, list) in restorable {
            let block = &self.blocks[index];
            let is_over = block.free_after <= self.streams.at(self.list(block.list).stream).passed;
            // Where the owner waits for the last use only, its next fence covers that for others.
            let next = self.streams.at(owner).free_after();
            self.remove_free(index);
            self.blocks[index].list = list;
            self.blocks[index].free_after = if is_over { 0 } else { next };
            self.file(index);
        }
    }

    /// The list that the memory of a block at home was obtained for.
    fn owner_of(&self, block: &Block) -> Option<u32> {
        let segment = self.segments.get(block.segment)?;
        (!segment.is_loan).then_some(segment.list)
    }

    /// Sends everything home that can go: before memory is given back, and once it is not pinned.
    pub(crate) fn send_all_home(&mut self) {
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
    /// uses are complete: together they may hold whole handles.
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
