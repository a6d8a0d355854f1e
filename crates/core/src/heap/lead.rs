//! What it would take to serve a request in an empty berth: its leads, as far as they end at
//! granules that are free.

use std::ops::Range;

use super::Heap;
use super::harvest::Victims;
use crate::block::BlockIndex;
use crate::lead::{self, Lead, To};
use crate::segment::Segment;

/// What all slots of a berth lead to that a request would be served in.
#[derive(Debug)]
pub(super) struct Leads {
    /// In the order of the slots. What leads home can be taken there, each run in one victim.
    pub(super) runs: Vec<Lead>,
    /// Driver calls before all slots are backed, if each handle is one granule.
    pub(super) calls: usize,
    /// How many slots that lead nowhere follow: the last handle may take them, too.
    pub(super) room: usize,
}

impl Leads {
    /// Those of addresses that lead nowhere.
    pub(super) fn fresh(slots: usize, room: usize) -> Self {
        Self { runs: vec![Lead { slots, to: To::Nowhere }], calls: slots, room }
    }

    /// Adds a run, unless that makes as many driver calls as `most`. What is astray beside each
    /// other is unmapped at once.
    fn push(&mut self, run: Lead, most: usize) -> Option<()> {
        let last =
            self.runs.last_mut().filter(|last| (last.to, run.to) == (To::Astray, To::Astray));
        self.calls += run.calls() - usize::from(last.is_some());
        if self.calls >= most {
            return None;
        }
        match last {
            Some(last) => last.slots += run.slots,
            None => self.runs.push(run),
        }
        Some(())
    }

    pub(super) fn is_astray(&self) -> bool {
        self.runs.iter().any(|lead| lead.to == To::Astray)
    }

    /// Adds slots to the last gap, for what the last handle has too much.
    pub(super) fn lengthen(&mut self, excess: usize) {
        if let Some(last) = self.runs.last_mut() {
            last.slots += excess;
        }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.runs.iter().map(|lead| lead.slots).sum()
    }

    /// How many slots are to be mapped between those that lead home, range by range.
    pub(super) fn gaps(&self) -> Vec<usize> {
        let leads_home = |lead: &Lead| matches!(lead.to, To::Home(_));
        let gaps = self.runs.split(leads_home).filter(|gap| !gap.is_empty());
        gaps.map(|gap| gap.iter().map(|lead| lead.slots).sum()).collect()
    }

    /// Where the granules are free that slots lead to, by address.
    pub(super) fn kept(&self, granule_bytes: u64) -> Vec<Range<u64>> {
        let range = |lead: &Lead| match lead.to {
            To::Home(first) => Some(first..first + lead.slots as u64 * granule_bytes),
            To::Nowhere | To::Astray => None,
        };
        in_order(self.runs.iter().filter_map(range).collect())
    }

    /// Of slots that lead to the same granule the first keeps it.
    fn lose_doubles(&mut self, granule_bytes: u64) {
        if self.runs.len() < 2 {
            return;
        }
        let kept = self.kept(granule_bytes);
        if kept.windows(2).all(|pair| pair[0].end <= pair[1].start) {
            return;
        }
        let mut seen: Vec<Range<u64>> = Vec::new();
        let mut leads = Leads { runs: Vec::new(), calls: 0, room: self.room };
        for lead in &self.runs {
            // Never with the run before: what is kept lies in one victim.
            let is_seen = |granule| seen.iter().any(|range| range.contains(&granule));
            let slots = (0..lead.slots as u64).map(|at| match lead.to {
                To::Home(first) if is_seen(first + at * granule_bytes) => To::Astray,
                To::Home(first) => To::Home(first + at * granule_bytes),
                to => to,
            });
            for run in lead::runs(slots, granule_bytes) {
                leads.push(run, usize::MAX);
            }
            if let To::Home(first) = lead.to {
                seen.push(first..first + lead.slots as u64 * granule_bytes);
            }
        }
        *self = leads;
    }
}

/// Ranges of addresses, sorted.
pub(super) fn in_order(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

impl Heap {
    /// What the first slots of an empty berth lead to, so many or up to the end of a handle; `None`
    /// if to back them takes as many driver calls as `most`, or repairs that are not possible.
    pub(super) fn leads(
        &self,
        berth: BlockIndex,
        granules: usize,
        victims: &Victims,
        can_repair: bool,
        most: usize,
    ) -> Option<Leads> {
        let granule_bytes = self.config.granule_bytes;
        let segment = self.segments.get(self.blocks[berth].segment)?;
        let mut leads = Leads { runs: Vec::new(), calls: 0, room: 0 };
        let first = self.slots_of(berth).start;
        let mut left = self.whole_front(segment, first, granules);
        for &lead in segment.leads(first) {
            let mut rest = Lead { slots: lead.slots.min(left), ..lead };
            left -= rest.slots;
            if lead.to == To::Nowhere {
                leads.room = lead.slots - rest.slots;
            }
            while rest.slots > 0 {
                let run = victims.first_run(&mut rest, granule_bytes);
                if run.to == To::Astray && !can_repair {
                    return None;
                }
                leads.push(run, most)?;
            }
            if left == 0 {
                break;
            }
        }
        leads.lose_doubles(granule_bytes);
        (leads.calls < most && (can_repair || !leads.is_astray())).then_some(leads)
    }

    /// Notes anew what berths lead to of which slots in a block were mapped or unmapped.
    pub(super) fn renew_leads(&mut self, index: BlockIndex) {
        let (number, slots) = (self.blocks[index].segment, self.slots_of(index));
        let Some(segment) = self.segments.get(number) else { return };
        let first = segment.berth_around(slots.start).unwrap_or(slots.start);
        let berths = segment.berths_in(first..slots.end);
        let renewed: Vec<_> =
            berths.map(|berth| (berth, self.leads_from_slots(segment, berth))).collect();
        if let Some(segment) = self.segments.get_mut(number) {
            renewed.into_iter().for_each(|(berth, leads)| segment.set_leads(berth, leads));
        }
    }

    /// What a berth leads to, found slot by slot.
    pub(crate) fn leads_from_slots(&self, segment: &Segment, first: usize) -> Vec<Lead> {
        let slots = first..first + segment.berth_slots(first);
        let ends = slots.map(|slot| match segment.granule(slot) {
            None => To::Nowhere,
            // Without access the granule cannot be used there.
            Some(granule) => match self.granules.home(granule) {
                Some(home) if segment.is_open(slot) => To::Home(self.address_of(home)),
                _ => To::Astray,
            },
        });
        lead::runs(ends, self.config.granule_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: u64 = 2 << 20;

    fn kept(slots: usize, first: u64) -> Lead {
        Lead { slots, to: To::Home(first * GRANULE) }
    }

    fn astray(slots: usize) -> Lead {
        Lead { slots, to: To::Astray }
    }

    /// Two runs that go on from each other lie in two free blocks, of two streams: each is claimed
    /// on its own.
    #[test]
    fn i13_runs_of_two_victims_stay_apart_where_others_lose_doubles() {
        let runs = vec![kept(3, 5), kept(2, 8), kept(4, 17), kept(2, 18)];
        let mut leads = Leads { runs, calls: 0, room: 0 };
        leads.lose_doubles(GRANULE);
        assert_eq!(leads.runs, [kept(3, 5), kept(2, 8), kept(4, 17), astray(2)]);
        assert_eq!((leads.calls, leads.gaps()), (3, vec![2]));
        let taken = leads.kept(GRANULE);
        assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start), "{taken:?}");
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn of_a_run_only_the_slots_are_lost_that_are_doubled() {
        let mut leads = Leads { runs: vec![kept(3, 7), kept(4, 7)], calls: 0, room: 0 };
        leads.lose_doubles(GRANULE);
        assert_eq!(leads.runs, [kept(3, 7), astray(3), kept(1, 10)]);
    }
}
