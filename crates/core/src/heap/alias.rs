//! Aliases: addresses that lead to a granule which backs another place, or none.
//!
//! Empty berths keep them: while the granule is free the place is backed again with no driver call.
//! They are unmapped when something else is to be mapped there, when memory is given back, and, the
//! oldest first, when there are too many mappings; never before the last use through them is known
//! to be complete, since unmapping does not wait for kernels.

use std::ops::Range;

use super::Heap;
use super::request::Reuse;
use crate::block::{BlockIndex, BlockState};
use crate::fence::Fence;
use crate::granule::{GranuleId, Place};
use crate::plan::{Gift, Intent, Plan, Step, Wanted};
use crate::policy;

/// How many berths, beyond those wanted, one look at the oldest passes over.
const LOOK: usize = 64;

impl Heap {
    /// Whether an empty berth can be unmapped: the last use through it is known to be complete.
    pub(super) fn is_evictable(&self, index: BlockIndex) -> bool {
        let block = &self.blocks[index];
        block.free_after <= self.streams.at(self.list(block.list).stream).passed
    }

    /// Claims an unfiled block without backing, and adds the unmapping of these of its slots.
    fn clear_slots(
        &mut self,
        index: BlockIndex,
        slots: &[u32],
        gifts: &mut Vec<Gift>,
        steps: &mut Vec<Step>,
    ) {
        self.blocks[index].state = BlockState::Claimed;
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &slot in slots {
            match ranges.last_mut() {
                Some((first, count)) if *first + *count == slot => *count += 1,
                _ => ranges.push((slot, 1)),
            }
        }
        let (segment, granule_bytes) = (self.blocks[index].segment, self.config.granule_bytes);
        steps.extend(ranges.iter().map(|&(slot, count)| Step::Unmap {
            address: self.address_of(Place { segment, slot }),
            bytes: u64::from(count) * granule_bytes,
        }));
        gifts.push(Gift::Aliases { block: index, ranges });
    }

    /// Plans to unmap these slots of an unfiled block without backing.
    pub(super) fn plan_to_clear(&mut self, index: BlockIndex, slots: &[u32]) -> Plan {
        let (mut gifts, mut steps) = (Vec::new(), Vec::new());
        self.clear_slots(index, slots, &mut gifts, &mut steps);
        Plan { steps, intent: Intent::Trim { gifts } }
    }

    /// The slots of a block that lead to granules.
    pub(super) fn mapped_slots(&self, index: BlockIndex) -> Vec<u32> {
        self.places_of(index).map(|(place, _)| place.slot).collect()
    }

    /// A range of slots was unmapped.
    pub(super) fn finish_unmapping(&mut self, index: BlockIndex, (first, count): (u32, u32)) {
        let number = self.blocks[index].segment;
        for slot in first..first + count {
            let place = Place { segment: number, slot };
            let Some(segment) = self.segments.get_mut(number) else { return };
            if let Some(granule) = segment.granule(slot as usize) {
                self.granules.remove_mapping(granule, place);
            }
            segment.unmap(slot as usize);
        }
    }

    /// A claimed block of which aliases were unmapped stands where it belongs again.
    pub(super) fn finish_clearing(&mut self, index: BlockIndex) {
        if !self.blocks[index].is_loan {
            return self.hollow_out(index);
        }
        self.renew_leads(index);
        if self.is_whole_berth(index) && self.leads_nowhere(index) {
            let first = self.slots_of(index).start;
            if let Some(segment) = self.segments.get_mut(self.blocks[index].segment) {
                segment.remove_berth(first);
            }
            self.hollow_out(index);
        } else {
            self.empty_berth(index);
        }
    }

    /// Plans to unmap aliases whose use is over: all of them, for when the driver has no mappings
    /// left. `None` if there are none.
    pub fn plan_eviction(&mut self) -> Option<Plan> {
        self.plan_eviction_of(usize::MAX)
    }

    /// Plans to unmap up to so many aliases, and those of the same berths: of the oldest.
    fn plan_eviction_of(&mut self, count: usize) -> Option<Plan> {
        let (mut gifts, mut steps) = (Vec::new(), Vec::new());
        let (mut evicted, mut passed_over) = (0, 0);
        let patience = if count == usize::MAX { usize::MAX } else { LOOK };
        for _ in 0..self.oldest_berths.len() {
            if evicted >= count || passed_over >= patience {
                break;
            }
            let Some((index, number)) = self.oldest_berths.pop_front() else { break };
            if !self.is_empty_since(index, number) {
                continue;
            }
            let slots = self.mapped_slots(index);
            if self.is_evictable(index) && !slots.is_empty() {
                self.unlink_berth(index);
                evicted += slots.len();
                self.clear_slots(index, &slots, &mut gifts, &mut steps);
            } else {
                // A slow stream holds up no other's.
                passed_over += 1;
                self.oldest_berths.push_back((index, number));
            }
        }
        (!gifts.is_empty()).then_some(Plan { steps, intent: Intent::Trim { gifts } })
    }

    /// Whether a berth is empty and has been since it was noted to be.
    fn is_empty_since(&self, index: BlockIndex, number: u64) -> bool {
        self.blocks[index].requested == number
    }

    /// Forgets those of the noted berths that were used since, once they are many.
    pub(super) fn tidy_oldest_berths(&mut self) {
        if self.oldest_berths.len() > 2 * self.granules.mapping_count() + LOOK {
            let mut noted = std::mem::take(&mut self.oldest_berths);
            noted.retain(|&(index, number)| self.is_empty_since(index, number));
            self.oldest_berths = noted;
        }
    }

    /// Plans to keep within the budget of mappings before a loan. Where the uses of the oldest
    /// aliases are not known to be over, only a fence is recorded that will tell.
    pub(super) fn plan_within_budget(
        &mut self,
        wanted: Wanted,
        reuse: Reuse,
        calls: usize,
    ) -> Option<Plan> {
        let budget = policy::mapping_budget(self.granules.len());
        let mappings = self.granules.len() + self.granules.mapping_count() + calls;
        if mappings <= budget || calls == 0 {
            return None;
        }
        // An eighth more than needed, so that it is not done again at once.
        let plan = self.plan_eviction_of(mappings - budget + budget / 8);
        plan.or_else(
            || if reuse == Reuse::MayWait { self.plan_fence_of_oldest(wanted) } else { None },
        )
    }

    fn plan_fence_of_oldest(&mut self, wanted: Wanted) -> Option<Plan> {
        let oldest = self.oldest_berths.iter();
        let index = oldest.copied().find(|&(index, number)| self.is_empty_since(index, number))?.0;
        self.plan_fence_of(index, wanted)
    }

    /// Plans to record a fence that will tell whether the last use through a berth is over; `None`
    /// if one is recorded.
    pub(super) fn plan_fence_of(&mut self, index: BlockIndex, wanted: Wanted) -> Option<Plan> {
        let block = self.blocks[index];
        let stream = self.streams.id_at(self.list(block.list).stream);
        let user = self.streams.id_at(self.list(wanted.list).stream);
        let state = self.streams.at_mut(stream.index);
        if state.is_retired || block.free_after <= state.recorded {
            return None;
        }
        let fence = Fence { stream, point: state.issue() };
        let steps = vec![Step::Record { fence }];
        Some(Plan { steps, intent: Intent::Order { user, fences: Vec::new() } })
    }

    /// Adds the unmapping of what keeps granules from being released, and forgets empty berths that
    /// lead nowhere.
    pub(super) fn clear_aliases(&mut self, gifts: &mut Vec<Gift>, steps: &mut Vec<Step>) {
        let idle = self.idle_ranges();
        let blocks: Vec<BlockIndex> = self
            .segments
            .iter()
            .flat_map(|(_, segment)| self.blocks.onward(segment.first))
            .collect();
        for index in blocks {
            let state = self.blocks[index].state;
            let is_alias = state == BlockState::Alias && self.is_evictable(index);
            if !is_alias && state != BlockState::Hollow {
                continue;
            }
            let is_in_the_way = self.places_of(index).any(|(_, granule)| {
                self.address_behind(granule).is_none_or(|address| {
                    let after = idle.partition_point(|range| range.start <= address);
                    idle[..after].last().is_some_and(|range| address < range.end)
                })
            });
            let is_whole = is_alias && self.is_whole_berth(index);
            if is_in_the_way {
                match state {
                    BlockState::Hollow => self.unlink_hollow(index),
                    _ if is_whole => self.unlink_berth(index),
                    _ => {}
                }
                let slots = self.mapped_slots(index);
                self.clear_slots(index, &slots, gifts, steps);
            } else if is_whole && self.leads_nowhere(index) {
                self.unlink_berth(index);
                self.finish_clearing(index);
            }
        }
    }

    /// Where granules of trimmable segments are free and their last uses complete, by address.
    fn idle_ranges(&self) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let segments = self.segments.in_address_order();
        for (number, segment) in segments.filter(|&(number, _)| self.is_trimmable(number)) {
            let mut end = 0;
            for index in self.blocks.onward(segment.first) {
                let start = self.blocks[index].address;
                if start >= end {
                    end = self.idle_run_end(index);
                    ranges.push(self.whole_handles(number, start..end));
                }
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    // Slots and places.

    /// The slots that a block of whole granules covers.
    pub(super) fn slots_of(&self, index: BlockIndex) -> Range<usize> {
        let block = &self.blocks[index];
        let base = self.segments.get(block.segment).map_or(block.address, |s| s.address);
        let slot = |address| ((address - base) / self.config.granule_bytes) as usize;
        slot(block.address)..slot(block.end())
    }

    /// The places of a block of whole granules that lead to a granule, with what they lead to.
    pub(super) fn places_of(
        &self,
        index: BlockIndex,
    ) -> impl Iterator<Item = (Place, GranuleId)> + '_ {
        let number = self.blocks[index].segment;
        let segment = self.segments.get(number);
        let place = move |slot| Place { segment: number, slot: slot as u32 };
        let slots = self.slots_of(index);
        let mapped = slots.start..slots.end.min(segment.map_or(0, |s| s.slot_count()));
        mapped.filter_map(move |slot| Some((place(slot), segment?.granule(slot)?)))
    }

    /// Whether no slot of a block leads to a granule.
    pub(super) fn leads_nowhere(&self, index: BlockIndex) -> bool {
        self.places_of(index).next().is_none()
    }

    pub(super) fn place_at(&self, segment: u32, address: u64) -> Place {
        let base = self.segments.get(segment).map_or(address, |segment| segment.address);
        Place { segment, slot: ((address - base) / self.config.granule_bytes) as u32 }
    }

    pub(super) fn address_of(&self, place: Place) -> u64 {
        let base = self.segments.get(place.segment).map_or(0, |segment| segment.address);
        base + u64::from(place.slot) * self.config.granule_bytes
    }

    pub(super) fn map_slot(&mut self, place: Place, granule: GranuleId, is_open: bool) {
        if let Some(segment) = self.segments.get_mut(place.segment) {
            segment.map(place.slot as usize, granule, is_open);
        }
    }
}

#[cfg(test)]
mod tests;
