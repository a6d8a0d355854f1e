//! Leads: what the slots of an empty berth lead to, run by run.
//!
//! A berth whose slots lead to granules that are free is backed again with no driver call. Loans
//! take granules from the end of a free block, the last of them first, and small ones use the front
//! of berths: so what is wanted most often leads to the same granules. Therefore slots beside each
//! other mostly lead to granules that lie beside each other in the opposite order. A loan of
//! hundreds of granules is a few such runs, and is looked at and claimed by runs.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Heap;
use super::harvest::Victims;
use crate::block::BlockIndex;
use crate::granule::{GranuleState, Place};
use crate::segment::Segment;

/// Slots beside each other in an empty berth, and what they lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    pub(super) slots: usize,
    pub(super) to: To,
}

/// What slots lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// Granules that can be taken, from the one that is free at this address down: nothing to do.
    Kept(u64),
    /// Nothing: to be mapped.
    Nowhere,
    /// Granules that cannot be taken: to be unmapped first.
    Astray,
}

impl Lead {
    /// Driver calls to back the slots: what leads astray is unmapped at once, and mapped granule by
    /// granule.
    fn calls(&self) -> usize {
        match self.to {
            To::Kept(_) => 0,
            To::Nowhere => self.slots,
            To::Astray => self.slots + 1,
        }
    }

    /// Whether the slot after these belongs to the same run.
    fn continues_with(&self, to: To, granule_bytes: u64) -> bool {
        match (self.to, to) {
            (To::Kept(last), To::Kept(next)) => next + self.slots as u64 * granule_bytes == last,
            (this, next) => this == next,
        }
    }
}

/// What all slots of a berth lead to that a request would be served in.
#[derive(Debug)]
pub(super) struct Leads {
    /// In the order of the slots.
    pub(super) runs: Vec<Lead>,
    /// Driver calls before all slots are backed.
    pub(super) calls: usize,
}

impl Leads {
    /// Those of addresses that were never used.
    pub(super) fn fresh(slots: usize) -> Self {
        Self { runs: vec![Lead { slots, to: To::Nowhere }], calls: slots }
    }

    pub(super) fn is_astray(&self) -> bool {
        self.runs.iter().any(|lead| lead.to == To::Astray)
    }

    /// How many slots lead nowhere.
    pub(super) fn missing(&self) -> usize {
        let nowhere = self.runs.iter().filter(|lead| lead.to == To::Nowhere);
        nowhere.map(|lead| lead.slots).sum()
    }

    /// Where the granules are free that are kept, by address.
    pub(super) fn kept(&self, granule_bytes: u64) -> Vec<Range<u64>> {
        let range = |lead: &Lead| match lead.to {
            To::Kept(last) => {
                let end = last + granule_bytes;
                Some(end - lead.slots as u64 * granule_bytes..end)
            }
            To::Nowhere | To::Astray => None,
        };
        let mut kept: Vec<Range<u64>> = self.runs.iter().filter_map(range).collect();
        kept.sort_unstable_by_key(|range| range.start);
        kept
    }

    /// Of slots that lead to the same granule the first keeps it.
    fn lose_doubles(&mut self, granule_bytes: u64) {
        let kept = self.kept(granule_bytes);
        if kept.windows(2).all(|pair| pair[0].end <= pair[1].start) {
            return;
        }
        let mut seen = BTreeSet::new();
        let mut runs: Vec<Lead> = Vec::new();
        for lead in &self.runs {
            for at in 0..lead.slots as u64 {
                let to = match lead.to {
                    To::Kept(last) if seen.insert(last - at * granule_bytes) => {
                        To::Kept(last - at * granule_bytes)
                    }
                    To::Kept(_) | To::Astray => To::Astray,
                    To::Nowhere => To::Nowhere,
                };
                match runs.last_mut() {
                    // Never with the run before: what is kept lies in one victim.
                    Some(run) if at > 0 && run.continues_with(to, granule_bytes) => run.slots += 1,
                    _ => runs.push(Lead { slots: 1, to }),
                }
            }
        }
        self.calls = runs.iter().map(Lead::calls).sum();
        self.runs = runs;
    }
}

impl Heap {
    /// What the first slots of an empty berth lead to; `None` if to back them takes as many driver
    /// calls as `most`, or repairs that are not possible.
    pub(super) fn leads(
        &self,
        berth: BlockIndex,
        granules: usize,
        victims: &Victims,
        can_repair: bool,
        most: usize,
    ) -> Option<Leads> {
        let segment = self.segments.get(self.blocks[berth].segment)?;
        let first = self.slots_of(berth).start;
        let mut look = Look { heap: self, segment, victims, slots: first..first + granules };
        let mut leads = Leads { runs: Vec::new(), calls: 0 };
        while let Some(lead) = look.next_run(most - leads.calls) {
            leads.calls += lead.calls();
            if leads.calls >= most || (lead.to == To::Astray && !can_repair) {
                return None;
            }
            leads.runs.push(lead);
        }
        leads.lose_doubles(self.config.granule_bytes);
        (leads.calls < most && (can_repair || !leads.is_astray())).then_some(leads)
    }
}

/// A walk over the slots of a berth.
struct Look<'a> {
    heap: &'a Heap,
    segment: &'a Segment,
    victims: &'a Victims,
    slots: Range<usize>,
}

impl Look<'_> {
    /// The next run, but no more of it than takes so many driver calls.
    fn next_run(&mut self, most: usize) -> Option<Lead> {
        let start = self.slots.next()?;
        let place = self.place_behind(start);
        let to = self.to(start, place);
        let few = self.slots.start..self.slots.end.min(start.saturating_add(most));
        let end = match (to, place) {
            (To::Kept(address), Some(place)) => self.end_of_kept(place, address),
            (To::Nowhere, _) => self.end_of(few, |slot| self.segment.granule(slot).is_none()),
            _ => self.end_of_astray(few),
        };
        self.slots.start = end;
        Some(Lead { slots: end - start, to })
    }

    /// The first of these slots that a run does not go on with.
    fn end_of(&self, mut slots: Range<usize>, mut goes_on: impl FnMut(usize) -> bool) -> usize {
        let end = slots.end;
        slots.find(|&slot| !goes_on(slot)).unwrap_or(end)
    }

    /// The first of these slots that does not lead astray. What is astray lies between two victims,
    /// mostly the same two.
    fn end_of_astray(&self, slots: Range<usize>) -> usize {
        let mut between = 0..0;
        self.end_of(slots, |slot| {
            let Some(place) = self.place_behind(slot) else {
                return self.segment.granule(slot).is_some();
            };
            let address = self.heap.address_of(place);
            if !between.contains(&address) && self.victims.start_around(address).is_none() {
                between = self.victims.gap_around(address);
            }
            between.contains(&address)
        })
    }

    /// What a slot leads to, given the place that its granule backs.
    fn to(&self, slot: usize, place: Option<Place>) -> To {
        if self.segment.granule(slot).is_none() {
            return To::Nowhere;
        }
        let address = place.map(|place| self.heap.address_of(place));
        match address.filter(|&address| self.victims.start_around(address).is_some()) {
            Some(address) => To::Kept(address),
            None => To::Astray,
        }
    }

    /// The place that the granule of a slot backs, if the device has access through the slot.
    #[inline]
    fn place_behind(&self, slot: usize) -> Option<Place> {
        let granule = self.segment.granule(slot).filter(|_| self.segment.is_open(slot))?;
        match self.heap.granules.state(granule) {
            GranuleState::Backing(place) => Some(place),
            _ => None,
        }
    }

    /// The slot after the last of a run of kept granules that begins at a place.
    fn end_of_kept(&self, place: Place, address: u64) -> usize {
        let start = self.victims.start_around(address).unwrap_or(address);
        let more = ((address - start) / self.heap.config.granule_bytes) as usize;
        let first = self.slots.start;
        let candidates = first..self.slots.end.min(first + more);
        let below = |slot: usize| place.slot.checked_sub((slot + 1 - first) as u32);
        self.end_of(candidates, |slot| {
            self.place_behind(slot)
                .is_some_and(|next| next.segment == place.segment && Some(next.slot) == below(slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: u64 = 2 << 20;

    fn kept(slots: usize, last: u64) -> Lead {
        Lead { slots, to: To::Kept(last * GRANULE) }
    }

    fn astray(slots: usize) -> Lead {
        Lead { slots, to: To::Astray }
    }

    /// Two runs that go on from each other lie in two free blocks, of two streams: each is claimed
    /// on its own.
    #[test]
    fn i13_runs_of_two_victims_stay_apart_where_others_lose_doubles() {
        let runs = vec![kept(2, 9), kept(3, 7), kept(4, 20), kept(2, 18)];
        let mut leads = Leads { runs, calls: 0 };
        leads.lose_doubles(GRANULE);
        assert_eq!(leads.runs, [kept(2, 9), kept(3, 7), kept(4, 20), astray(2)]);
        assert_eq!((leads.calls, leads.missing()), (3, 0));
        let taken = leads.kept(GRANULE);
        assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start), "{taken:?}");
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn of_a_run_only_the_slots_are_lost_that_are_doubled() {
        let mut leads = Leads { runs: vec![kept(3, 9), kept(4, 10)], calls: 0 };
        leads.lose_doubles(GRANULE);
        assert_eq!(leads.runs, [kept(3, 9), kept(1, 10), astray(3)]);
    }
}
