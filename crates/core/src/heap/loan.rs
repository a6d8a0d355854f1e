//! Loans: granules that are free at home back a request elsewhere, until it is freed.
//!
//! The request is served in a berth (`berth`), by granules of free blocks (`harvest`). What is
//! freed there goes home at once (`home`).

use super::Heap;
use super::berth::{Berth, Lead, Repairs};
use super::harvest::Victims;
use super::request::{Answer, Grant, Reach};
use crate::block::{BlockIndex, BlockState};
use crate::granule::{GranuleId, Place};
use crate::plan::{Intent, Plan, Step, Wanted};

impl Heap {
    /// Serves a request by a loan that takes no driver call, if one can be had at a glance.
    ///
    /// Not in private pools: graphs may be captured there, and what a captured stream may take is
    /// for the full request to say.
    #[cold]
    pub(super) fn lend_again(&mut self, wanted: Wanted) -> Option<Grant> {
        let list = self.list(wanted.list);
        let granules = self.granules_for(wanted)?;
        let has_berth = list.berths.range(granules as u32..).next().is_some();
        if !has_berth || !self.is_open_pool(list.pool) {
            return None;
        }
        if self.list(wanted.list).search(&self.blocks, wanted.bytes).is_some() {
            return None;
        }
        let victims = self.victims(wanted, Reach::Ordered).of_own_stream();
        let berth = self.emptied_berth(wanted, &victims, Repairs::Now, 1)?;
        let leads = self.leads_of(berth, &victims);
        let loan = self.claim_loan(berth, &leads, &victims);
        self.finish_lending(wanted, berth.index, &loan.granules, &loan.lenders);
        Some(self.occupy(berth.index, wanted))
    }

    /// Serves a request by a loan, or plans what has to be done first. There are granules enough.
    /// `None` if addresses have to be reserved.
    pub(super) fn lend(
        &mut self,
        wanted: Wanted,
        reach: Reach,
        victims: &Victims,
    ) -> Option<Answer> {
        let mut berth = self.best_berth(wanted, victims, Repairs::Later)?;
        let mut leads = self.leads_of(berth, victims);
        if leads.contains(&Lead::Astray) && !self.is_evictable(berth.index) {
            // Worth a fence: if it has passed already, the berth can be used.
            if reach == Reach::Wait
                && let Some(plan) = self.plan_fence_of(berth.index, wanted)
            {
                return Some(Answer::Plan(plan));
            }
            berth = self.best_berth(wanted, victims, Repairs::Now)?;
            leads = self.leads_of(berth, victims);
        }
        if leads.contains(&Lead::Astray) {
            return Some(Answer::Plan(self.plan_to_clear(berth.index, &leads)));
        }
        if let Some(plan) = self.plan_within_budget(wanted, reach, berth) {
            return Some(Answer::Plan(plan));
        }
        let Loan { granules, lenders } = self.claim_loan(berth, &leads, victims);
        let index = berth.index;
        let steps = self.lending_steps(index, &leads, &granules);
        if steps.is_empty() {
            self.finish_lending(wanted, index, &granules, &lenders);
            return Some(Answer::Granted(self.occupy(index, wanted)));
        }
        let intent = Intent::Lend { wanted, berth: index, granules, lenders };
        Some(Answer::Plan(Plan { steps, intent }))
    }

    /// Claims a berth and granules for all of its slots.
    fn claim_loan(&mut self, berth: Berth, leads: &[Lead], victims: &Victims) -> Loan {
        let mut granules = Vec::with_capacity(leads.len());
        granules.extend(leads.iter().filter_map(Lead::granule));
        let picked = self.pick(leads.len() - granules.len(), victims, &mut granules);
        if !picked.is_empty() {
            let mut picked = picked.into_iter();
            granules.clear();
            granules.extend(leads.iter().filter_map(|l| l.granule().or_else(|| picked.next())));
        }
        debug_assert_eq!(granules.len(), leads.len());
        self.claim_berth(berth);
        let lenders = self.claim_granules(&granules, victims);
        Loan { granules, lenders }
    }

    /// Plans to unmap what leads astray in an empty berth.
    fn plan_to_clear(&mut self, index: BlockIndex, leads: &[Lead]) -> Plan {
        let first = self.slots_of(index).start as u32;
        let astray = leads.iter().enumerate().filter(|(_, lead)| **lead == Lead::Astray);
        let slots: Vec<u32> = astray.map(|(at, _)| first + at as u32).collect();
        let (mut gifts, mut steps) = (Vec::new(), Vec::new());
        self.unlink_berth(index);
        self.clear_slots(index, &slots, &mut gifts, &mut steps);
        Plan { steps, intent: Intent::Trim { gifts } }
    }

    /// One map for each granule that is not mapped there, then access, once for each range.
    fn lending_steps(
        &self,
        berth: BlockIndex,
        leads: &[Lead],
        granules: &[GranuleId],
    ) -> Vec<Step> {
        let bytes = self.config.granule_bytes;
        let start = self.blocks[berth].address;
        let mut steps = Vec::new();
        let mut open_from = None;
        for (at, (lead, &granule)) in leads.iter().zip(granules).enumerate() {
            let address = start + at as u64 * bytes;
            if *lead == Lead::Nowhere {
                steps.push(Step::Map { address, bytes, granule });
                open_from = open_from.or(Some(address));
            } else if let Some(from) = open_from.take() {
                steps.push(Step::SetAccess { address: from, bytes: address - from });
            }
        }
        let end = start + granules.len() as u64 * bytes;
        steps.extend(open_from.map(|address| Step::SetAccess { address, bytes: end - address }));
        steps
    }

    /// All granules of a loan are mapped and accessible at its berth.
    pub(super) fn finish_lending(
        &mut self,
        wanted: Wanted,
        berth: BlockIndex,
        granules: &[GranuleId],
        lenders: &[BlockIndex],
    ) {
        for &index in lenders {
            let scale = self.list(self.blocks[index].list).scale as usize;
            self.stats.scales[scale].reserved_bytes.take(self.blocks[index].bytes);
            self.stats.harvested_granules += self.blocks[index].bytes / self.config.granule_bytes;
            self.leave(index);
        }
        let number = self.blocks[berth].segment;
        let slots = self.slots_of(berth);
        if let Some(segment) = self.segments.get_mut(number) {
            for (slot, &granule) in slots.zip(granules) {
                let place = Place { segment: number, slot: slot as u32 };
                if segment.granule(slot) != Some(granule) {
                    self.granules.add_mapping(granule, place);
                    segment.map(slot, granule, true);
                }
                self.granules.set_backing(granule, place);
            }
        }
        let list = self.list(wanted.list);
        let (scale, stream) = (list.scale as usize, list.stream);
        self.stats.scales[scale].reserved_bytes.add(self.blocks[berth].bytes);
        // What is left over is free to the request's stream at once; to others from its next fence
        // on, which covers those of the streams it waited for.
        self.blocks[berth].list = wanted.list;
        self.blocks[berth].free_after = self.streams.at(stream).free_after();
    }

    /// A claimed block's granules back other places from now on.
    fn leave(&mut self, index: BlockIndex) {
        if self.blocks[index].is_loan {
            self.empty_berth(index);
            return;
        }
        self.blocks[index].state = BlockState::Lent;
        self.note_lent(index);
    }

    /// Lets the granules whose home a block is know it.
    pub(super) fn note_lent(&mut self, index: BlockIndex) {
        let slots = self.slots_of(index);
        if let Some(segment) = self.segments.get(self.blocks[index].segment) {
            for granule in slots.filter_map(|slot| segment.granule(slot)) {
                self.granules.set_lent(granule, index);
            }
        }
    }

    /// A loan failed. What could not be unmapped leads to its granule without access, as far as
    /// anybody knows.
    pub(super) fn undo_lending(
        &mut self,
        berth: BlockIndex,
        done: &[Step],
        lenders: &[BlockIndex],
    ) {
        for step in done {
            if let Step::Map { address, granule, .. } = *step {
                let place = self.place_at(self.blocks[berth].segment, address);
                self.granules.add_mapping(granule, place);
                self.map_slot(place, granule, false);
            }
        }
        self.finish_clearing(berth);
        lenders.iter().for_each(|&index| self.file(index));
    }
}

/// What is claimed for a loan: its granules, in order, and the blocks they come from.
struct Loan {
    granules: Vec<GranuleId>,
    lenders: Vec<BlockIndex>,
}
