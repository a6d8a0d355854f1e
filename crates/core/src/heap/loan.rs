//! RemapStats: granules that are free at home back a request elsewhere, until it is freed.
//!
//! The request is served in a berth (`berth`), by granules of free blocks (`harvest`). What is
//! freed there goes home at once (`home`).

use std::ops::Range;

use super::Heap;
use super::berth::{Berth, Repairs};
use super::harvest::Victims;
use super::lead::{Leads, in_order};
use super::request::{Granted, Outcome, Reuse};
use crate::block::{BlockIndex, BlockState};
use crate::granule::{GranuleId, Place};
use crate::lead::{Lead, To};
use crate::plan::{Intent, Plan, Step, Wanted};

impl Heap {
    /// Serves a request by a loan that takes no driver call, if one can be had at a glance.
    ///
    /// Not in private pools: graphs may be captured there, and what a captured stream may take is
    /// for the full request to say.
    #[cold]
    pub(super) fn lend_again(&mut self, wanted: Wanted) -> Option<Granted> {
        let list = self.list(wanted.list);
        let granules = self.granules_for(wanted)?;
        let has_berth = list.berths.range((granules as u32, 0)..).next().is_some();
        if !has_berth || !self.is_open_pool(list.pool) {
            return None;
        }
        if self.list(wanted.list).overlooked(&self.blocks, wanted.bytes).is_some() {
            return None;
        }
        let victims = self.own_victims(wanted);
        if victims.ordered_bytes() < granules as u64 * self.config.granule_bytes {
            return None;
        }
        let mut berth = self.emptied_berth(wanted, &victims, Repairs::Now, 1)?;
        let (lenders, _) = self.claim_loan(&mut berth, Vec::new(), &victims);
        self.finish_lending(wanted, berth.index, &[], &lenders);
        Some(self.occupy(berth.index, wanted))
    }

    /// Serves a request by a loan, or plans what has to be done first. There are granules enough.
    /// `None` if addresses have to be reserved.
    pub(super) fn lend(
        &mut self,
        wanted: Wanted,
        reuse: Reuse,
        victims: &Victims,
    ) -> Option<Outcome> {
        let mut berth = self.best_berth(wanted, victims, Repairs::Later)?;
        if berth.leads.is_astray() && !self.is_evictable(berth.index) {
            // Worth a fence: if it has passed already, the berth can be used.
            if reuse == Reuse::MayWait
                && let Some(plan) = self.plan_fence_of(berth.index, wanted)
            {
                return Some(Outcome::Plan(plan));
            }
            berth = self.best_berth(wanted, victims, Repairs::Now)?;
        }
        if berth.leads.is_astray() {
            return Some(Outcome::Plan(self.plan_to_repair(&berth)));
        }
        if let Some(plan) = self.plan_within_budget(wanted, reuse, berth.leads.calls) {
            return Some(Outcome::Plan(plan));
        }
        let picked = self.pick_for(&berth.leads, victims)?;
        let index = berth.index;
        let (lenders, picked) = self.claim_loan(&mut berth, picked, victims);
        if picked.is_empty() {
            self.finish_lending(wanted, index, &[], &lenders);
            return Some(Outcome::Granted(self.occupy(index, wanted)));
        }
        let steps = self.lending_steps(&berth, &picked);
        let intent = Intent::Lend { wanted, berth: index, lenders };
        Some(Outcome::Plan(Plan { steps, intent }))
    }

    /// What is free for the slots of a berth that are to be mapped, in order; `None` if no handles
    /// fit.
    pub(super) fn pick_for(&self, leads: &Leads, victims: &Victims) -> Option<Vec<Range<u64>>> {
        let kept = leads.kept(self.config.granule_bytes);
        self.pick(&leads.gaps(), leads.room, victims, &kept)
    }

    /// Claims a berth and granules for all of its slots: the blocks those come from, and the
    /// granules that were picked for those that lead nowhere, in order.
    fn claim_loan(
        &mut self,
        berth: &mut Berth,
        picked: Vec<Range<u64>>,
        victims: &Victims,
    ) -> (Vec<BlockIndex>, Vec<GranuleId>) {
        let mut taken = berth.leads.kept(self.config.granule_bytes);
        let granules: Vec<GranuleId> =
            picked.iter().flat_map(|range| self.granules_at(range)).collect();
        let gaps: usize = berth.leads.gaps().iter().sum();
        berth.leads.lengthen(granules.len() - gaps);
        if !picked.is_empty() {
            taken.extend(picked);
            taken = in_order(taken);
        }
        self.claim_berth(berth);
        (self.claim_ranges(&taken, victims), granules)
    }

    /// Plans to unmap what leads astray in an empty berth.
    fn plan_to_repair(&mut self, berth: &Berth) -> Plan {
        let mut first = self.slots_of(berth.index).start as u32;
        let mut slots: Vec<u32> = Vec::new();
        for lead in &berth.leads.runs {
            let end = first + lead.slots as u32;
            if lead.to == To::Astray {
                slots.extend(first..end);
            }
            first = end;
        }
        self.unlink_berth(berth.index);
        self.plan_to_clear(berth.index, &slots)
    }

    /// One map for each handle where slots lead nowhere, then access, once for each range.
    fn lending_steps(&self, berth: &Berth, granules: &[GranuleId]) -> Vec<Step> {
        let bytes = self.config.granule_bytes;
        let mut steps = Vec::with_capacity(granules.len() + berth.leads.runs.len());
        let mut granules = granules.iter();
        let mut address = self.blocks[berth.index].address;
        for &Lead { slots, to } in &berth.leads.runs {
            let end = address + slots as u64 * bytes;
            if to == To::Nowhere {
                let addresses = (address..end).step_by(bytes as usize);
                let places = addresses.zip(granules.by_ref());
                let handles = places.filter(|&(_, &id)| self.granules.before(id) == 0);
                steps.extend(handles.map(|(address, &granule)| {
                    let bytes = self.granules.handle(granule).len() as u64 * bytes;
                    Step::Map { address, bytes, granule }
                }));
                steps.push(Step::SetAccess { address, bytes: end - address });
            }
            address = end;
        }
        steps
    }

    /// All granules of a loan are mapped and accessible at its berth, the last by these steps.
    pub(super) fn finish_lending(
        &mut self,
        wanted: Wanted,
        berth: BlockIndex,
        steps: &[Step],
        lenders: &[BlockIndex],
    ) {
        for &index in lenders {
            let class = self.list(self.blocks[index].list).class as usize;
            self.stats.classes[class].reserved_bytes.take(self.blocks[index].bytes);
            self.stats.granule_remaps += self.blocks[index].bytes / self.config.granule_bytes;
            self.leave(index);
        }
        self.note_mapped(berth, steps, true);
        if !steps.is_empty() {
            self.renew_leads(berth);
        }
        let number = self.blocks[berth].segment;
        let slots = self.slots_of(berth);
        if let Some(segment) = self.segments.get(number) {
            for slot in slots {
                let place = Place { segment: number, slot: slot as u32 };
                if let Some(granule) = segment.granule(slot) {
                    self.granules.set_backing(granule, place);
                }
            }
        }
        let list = self.list(wanted.list);
        let (class, stream) = (list.class as usize, list.stream);
        self.stats.classes[class].reserved_bytes.add(self.blocks[berth].bytes);
        // What is left over is free to the request's stream at once; to others from its next fence
        // on, which covers those of the streams it waited for.
        self.blocks[berth].list = wanted.list;
        self.blocks[berth].free_after = self.streams.at(stream).free_after();
    }

    /// Slots of a berth lead to what steps mapped there.
    pub(super) fn note_mapped(&mut self, berth: BlockIndex, steps: &[Step], is_open: bool) {
        for step in steps {
            if let Step::Map { address, granule, .. } = *step {
                let first = self.place_at(self.blocks[berth].segment, address);
                for (slot, granule) in (first.slot..).zip(self.granules.of_handle(granule)) {
                    let place = Place { slot, ..first };
                    self.granules.add_mapping(granule, place);
                    self.map_slot(place, granule, is_open);
                }
            }
        }
    }

    /// A claimed block's granules back other places from now on.
    fn leave(&mut self, index: BlockIndex) {
        if self.blocks[index].is_loan {
            self.empty_berth(index);
            return;
        }
        self.blocks[index].state = BlockState::Lent;
        self.remapped_granules += self.blocks[index].bytes / self.config.granule_bytes;
        self.note_lent(index);
    }

    /// A loan failed. What could not be unmapped leads to its granule without access, as far as
    /// anybody knows.
    pub(super) fn undo_lending(
        &mut self,
        berth: BlockIndex,
        done: &[Step],
        lenders: &[BlockIndex],
    ) {
        self.note_mapped(berth, done, false);
        self.finish_clearing(berth);
        lenders.iter().for_each(|&index| self.file(index));
    }
}
