//! Berths: where loans stand, and which of the empty ones serves a request best.
//!
//! A berth is a range of addresses in a segment for loans, a whole number of granules. Emptied, it
//! keeps its mappings: as long as they lead to granules that are free, the next loan there costs no
//! driver call. The front of a larger one serves as well.
//!
//! Of berths that serve equally well the smallest is taken, at the lowest address: not the one
//! emptied last, which would depend on what the program did before. With the same memory free, the
//! same request is served by the same granules, and a program that repeats itself settles.

use super::Heap;
use super::harvest::Victims;
use super::lead::Leads;
use crate::block::{BlockIndex, BlockState};
use crate::plan::Wanted;
use crate::size::round_up;

/// How many granules of empty berths a search looks at, and how many berths at least.
const LOOK_GRANULES: usize = 256;
const LOOK_BERTHS: usize = 16;

/// A berth is repaired if that takes so many times fewer driver calls than a fresh one, with one
/// mapping for each granule. At 1, requests that take turns at a berth repair it for each
/// other for ever; at 4, a program whose sizes never repeat maps half as many granules again.
const WORTH_REPAIR: usize = 2;

/// A search ends at a berth that saves all but one in so many driver calls.
const GOOD_ENOUGH: usize = 32;

/// An empty berth, or addresses for one, that a request could be served in.
#[derive(Debug)]
pub(super) struct Berth {
    pub(super) index: BlockIndex,
    pub(super) leads: Leads,
}

/// Which berths may have to be repaired before they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repairs {
    /// Those that can be now.
    Now,
    /// Also those whose last use is not known to be complete.
    Later,
}

impl Heap {
    /// The berth in which a request is served with the fewest driver calls; `None` if addresses
    /// have to be reserved first.
    pub(super) fn best_berth(
        &self,
        wanted: Wanted,
        victims: &Victims,
        repairs: Repairs,
    ) -> Option<Berth> {
        let granules = self.granules_for(wanted)?;
        let emptied = self.emptied_berth(wanted, victims, repairs, granules / WORTH_REPAIR + 1);
        if emptied.is_some() {
            return emptied;
        }
        let fresh = self.fresh_berth(wanted);
        fresh.or_else(|| self.emptied_berth(wanted, victims, Repairs::Now, usize::MAX))
    }

    /// A berth of addresses that lead nowhere, with room for all of the last handle after it.
    fn fresh_berth(&self, wanted: Wanted) -> Option<Berth> {
        let granules = self.granules_for(wanted)?;
        let bytes = granules as u64 * self.config.granule_bytes + self.room_for_last_handle();
        let mut hollow = self.blocks.filed_from(self.list(wanted.list).hollow[1]);
        let index = hollow.find(|&index| self.blocks[index].bytes >= bytes)?;
        let room = (self.room_for_last_handle() / self.config.granule_bytes) as usize;
        Some(Berth { index, leads: Leads::fresh(granules, room) })
    }

    pub(super) fn granules_for(&self, wanted: Wanted) -> Option<usize> {
        let bytes = round_up(wanted.bytes, self.config.granule_bytes)?;
        Some((bytes / self.config.granule_bytes) as usize)
    }

    /// The empty berth that costs the fewest driver calls, and fewer than `most`.
    pub(super) fn emptied_berth(
        &self,
        wanted: Wanted,
        victims: &Victims,
        repairs: Repairs,
        most: usize,
    ) -> Option<Berth> {
        let granules = self.granules_for(wanted)?;
        let mut best: Option<Berth> = None;
        let large_enough = self.berths_from(wanted.list, granules as u32);
        for index in large_enough.take((LOOK_GRANULES / granules).max(LOOK_BERTHS)) {
            let most = best.as_ref().map_or(most, |best| best.leads.calls);
            let can_repair = repairs == Repairs::Later || self.is_evictable(index);
            if let Some(leads) = self.leads(index, granules, victims, can_repair, most)
                && self.fit(&leads, victims)
            {
                // Near enough: looking at a large berth takes as long as a driver call.
                let is_good = leads.calls <= granules / GOOD_ENOUGH;
                best = Some(Berth { index, leads });
                if is_good {
                    break;
                }
            }
        }
        best
    }

    /// Whether free handles fit into the gaps between what leads home. Single granules always do.
    fn fit(&self, leads: &Leads, victims: &Victims) -> bool {
        !self.granules.has_large_handles() || self.pick_for(leads, victims).is_some()
    }

    /// The empty berths of a list that have so many granules, the smallest first.
    fn berths_from(&self, list: u32, granules: u32) -> impl Iterator<Item = BlockIndex> {
        self.list(list).berths.range((granules, 0)..).map(|(_, &index)| index)
    }

    pub(super) fn claim_berth(&mut self, berth: &Berth) {
        let index = berth.index;
        let slots = berth.leads.slots();
        let bytes = slots as u64 * self.config.granule_bytes;
        if self.blocks[index].state == BlockState::Alias {
            self.unlink_berth(index);
            if self.blocks[index].bytes > bytes {
                self.blocks.cut(index, bytes);
            }
            self.blocks[index].state = BlockState::Claimed;
            return;
        }
        self.claim_hollow(index, bytes);
        let first = self.slots_of(index).start;
        if let Some(segment) = self.segments.get_mut(self.blocks[index].segment) {
            segment.add_berth(first, slots);
        }
    }

    /// Makes an unfiled block of a segment for loans empty: whole berths in it can be used again.
    pub(super) fn empty_berth(&mut self, index: BlockIndex) {
        let granule_bytes = self.config.granule_bytes;
        let slots = self.slots_of(index);
        let Some(segment) = self.segments.get(self.blocks[index].segment) else { return };
        let address = segment.address;
        let berths: Vec<usize> = segment.berths_in(slots.start + 1..slots.end).collect();
        // From the last berth in it to the first.
        for slot in berths.into_iter().rev() {
            let start = address + slot as u64 * granule_bytes;
            let part = self.blocks.cut(index, start - self.blocks[index].address);
            self.empty_part(part);
        }
        self.empty_part(index);
    }

    /// Makes a block within one berth empty, joined with the empty parts around it that were used
    /// in the same stream's order, or not at all.
    fn empty_part(&mut self, index: BlockIndex) {
        let mut index = index;
        self.blocks[index].state = BlockState::Alias;
        if self.leads_nowhere(index)
            && let Some(segment) = self.segments.get(self.blocks[index].segment)
        {
            (self.blocks[index].list, self.blocks[index].free_after) = (segment.list, 0);
        }
        let next = self.blocks[index].next;
        if self.is_empty_part(next) && self.berth_slots_at(next) == 0 && self.joins(index, next) {
            self.blocks.absorb_next(index);
        }
        let previous = self.blocks[index].previous;
        if self.is_empty_part(previous)
            && self.berth_slots_at(index) == 0
            && self.joins(previous, index)
        {
            self.blocks.absorb_next(previous);
            index = previous;
        }
        if self.is_whole_berth(index) {
            self.link_berth(index);
        }
    }

    fn joins(&self, index: BlockIndex, next: BlockIndex) -> bool {
        self.blocks[index].list == self.blocks[next].list
    }

    fn is_empty_part(&self, index: BlockIndex) -> bool {
        index.some().is_some_and(|index| self.blocks[index].state == BlockState::Alias)
    }

    fn berth_slots_at(&self, index: BlockIndex) -> usize {
        let segment = self.segments.get(self.blocks[index].segment);
        segment.map_or(0, |segment| segment.berth_slots(self.slots_of(index).start))
    }

    /// Whether an empty block is a berth from end to end.
    pub(crate) fn is_whole_berth(&self, index: BlockIndex) -> bool {
        self.berth_slots_at(index) == self.slots_of(index).len()
    }

    fn link_berth(&mut self, index: BlockIndex) {
        let size_and_address = self.size_and_address(index);
        let list = self.blocks[index].list as usize;
        self.lists[list].berths.insert(size_and_address, index);
        self.berths_emptied += 1;
        // No size of a request: whatever else a block was, the number is a berth's.
        let number = u64::MAX - self.berths_emptied;
        self.oldest_berths.push_back((index, number));
        self.tidy_oldest_berths();
        self.blocks[index].requested = number;
    }

    pub(super) fn unlink_berth(&mut self, index: BlockIndex) {
        self.blocks[index].requested = 0;
        let size_and_address = self.size_and_address(index);
        self.lists[self.blocks[index].list as usize].berths.remove(&size_and_address);
    }

    pub(crate) fn size_and_address(&self, index: BlockIndex) -> (u32, u64) {
        (self.slots_of(index).len() as u32, self.blocks[index].address)
    }
}
