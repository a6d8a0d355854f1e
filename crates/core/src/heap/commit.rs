//! What becomes of a plan: committed when all its steps are done, abandoned when one failed.
//!
//! Promise P4: whichever it is, the heap is valid afterwards and the same request can be tried
//! again. I13: slots and granules follow what is really mapped, also after half a plan.

use super::Heap;
use super::request::Grant;
use crate::block::BlockIndex;
use crate::fence::Fence;
use crate::granule::{GranuleId, GranuleState, Place};
use crate::id::StreamId;
use crate::plan::{Backing, Intent, Plan, Step, Wanted};

/// What a committed plan led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The request is served.
    Granted(Grant),
    /// The way is free: make the request again.
    Prepared,
    /// Fences are recorded: see which have passed, then make the request again.
    Recorded,
    /// Nothing more to do.
    Done,
}

impl Heap {
    /// Takes back a plan whose steps are all done. `address` is what its `Reserve` or `Malloc`
    /// step gave; it is ignored for plans that have neither.
    pub fn commit(&mut self, plan: Plan, address: u64) -> Committed {
        let steps = plan.steps;
        match plan.intent {
            Intent::Reserve { list, bytes } => {
                let index = self.add_segment(address, bytes, list);
                self.hollow_out(index);
                Committed::Prepared
            }
            Intent::Malloc { wanted, bytes } => {
                self.planned_bytes -= bytes;
                let index = self.add_segment(address, bytes, wanted.list);
                self.add_reserved(wanted.list, bytes);
                Committed::Granted(self.occupy(index, wanted))
            }
            Intent::Back { wanted, free_before, backing, free_after } => {
                self.finish_backing(wanted, &steps, &backing);
                let mut index = backing.hollow;
                if free_after.some().is_some() {
                    self.blocks.absorb_next(index);
                }
                if free_before.some().is_some() {
                    self.blocks.absorb_next(free_before);
                    index = free_before;
                }
                Committed::Granted(self.occupy(index, wanted))
            }
            Intent::Order { user, fences } => {
                self.note_steps_recorded(&steps);
                self.finish_order(user, &fences);
                if fences.is_empty() { Committed::Recorded } else { Committed::Prepared }
            }
            Intent::Free { block, fences } => {
                self.publish_pending(block, &fences);
                Committed::Done
            }
            Intent::Retire { fence } => {
                self.note_recorded(fence);
                Committed::Done
            }
            Intent::Synchronize { fences, quarantined } => {
                self.finish_synchronize(&fences, quarantined);
                Committed::Prepared
            }
            Intent::Trim { gifts } => {
                self.finish_trim(gifts, steps.len());
                Committed::Prepared
            }
        }
    }

    /// Takes back a plan that failed. `in_effect` is how many leading steps are still done: after
    /// a complete undo 0, and the number of steps done for plans that are not all or nothing.
    pub fn abandon(&mut self, plan: Plan, in_effect: usize) {
        let steps = &plan.steps[..in_effect.min(plan.steps.len())];
        match plan.intent {
            Intent::Reserve { .. } => self.addresses_are_scarce = true,
            Intent::Malloc { bytes, .. } => self.planned_bytes -= bytes,
            Intent::Back { free_before, backing, free_after, .. } => {
                self.undo_backing(&plan.steps, in_effect, &backing);
                for index in [free_before, free_after].into_iter().filter_map(BlockIndex::some) {
                    self.file(index);
                }
            }
            Intent::Order { .. } => self.note_steps_recorded(steps),
            Intent::Free { block, .. } => {
                self.note_steps_recorded(steps);
                self.quarantine(block);
            }
            // The stream's last fence was never recorded: only an idle device frees its blocks.
            Intent::Retire { .. } => {}
            Intent::Synchronize { quarantined, .. } => self.quarantine.extend(quarantined),
            Intent::Trim { gifts } => self.finish_trim(gifts, in_effect),
        }
    }

    /// All granules of a plan are mapped and accessible.
    fn finish_backing(&mut self, wanted: Wanted, steps: &[Step], backing: &Backing) {
        let granule_bytes = self.config.granule_bytes;
        let is_created = |step: &&Step| matches!(step, Step::Create { .. });
        let created_bytes = steps.iter().filter(is_created).count() as u64 * granule_bytes;
        self.planned_bytes -= created_bytes;
        self.stats.all.reserved_bytes.add(created_bytes);

        backing.harvested.iter().for_each(|&index| self.leave_aliases(index));
        let hollow = self.blocks[backing.hollow];
        let mut place = self.place_at(hollow.segment, hollow.address);
        for &granule in &backing.granules {
            self.granules.remove_alias(granule, place);
            self.set_slot(place, Some(granule));
            self.granules.set_backing(granule, place);
            place.slot += 1;
        }
        let scale = self.list(hollow.list).scale as usize;
        self.stats.scales[scale].reserved_bytes.add(hollow.bytes);
        if !backing.harvested.is_empty() {
            // What is left over is free to the request's stream at once; to others from its next
            // fence on, which covers those of the streams it waited for.
            let user = self.list(wanted.list).stream;
            self.blocks[backing.hollow].free_after = self.streams.at(user).free_after();
        }
        backing.harvested.iter().for_each(|&index| self.hollow_out(index));
    }

    /// A backing plan failed. What could not be released stays idle; what could not be unmapped
    /// stays an alias, without access as far as anybody knows.
    fn undo_backing(&mut self, steps: &[Step], in_effect: usize, backing: &Backing) {
        let granule_bytes = self.config.granule_bytes;
        let segment = self.blocks[backing.hollow].segment;
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Step::Create { granule, .. } => {
                    self.planned_bytes -= granule_bytes;
                    if at < in_effect {
                        self.stats.all.reserved_bytes.add(granule_bytes);
                        self.granules.set_idle(granule);
                    } else {
                        self.granules.set_vacant(granule);
                    }
                }
                Step::Map { address, granule, .. } if at < in_effect => {
                    let place = self.place_at(segment, address);
                    self.set_slot(place, Some(granule));
                    self.add_alias(place, granule, None, false);
                }
                _ => {}
            }
        }
        for &granule in &backing.granules {
            if self.granules.state(granule) == GranuleState::Planned {
                self.granules.set_idle(granule);
            }
        }
        self.return_claimed(&backing.harvested);
        self.hollow_out(backing.hollow);
    }

    fn place_at(&self, segment: u32, address: u64) -> Place {
        let base = self.segments.get(segment).map_or(address, |segment| segment.address);
        Place { segment, slot: ((address - base) / self.config.granule_bytes) as u32 }
    }

    pub(super) fn set_slot(&mut self, place: Place, granule: Option<GranuleId>) {
        if let Some(segment) = self.segments.get_mut(place.segment) {
            segment.set_granule(place.slot as usize, granule);
        }
    }

    pub(super) fn add_reserved(&mut self, list: u32, bytes: u64) {
        let scale = self.list(list).scale as usize;
        self.stats.all.reserved_bytes.add(bytes);
        self.stats.scales[scale].reserved_bytes.add(bytes);
    }

    /// A stream waits for others now: what they freed before is usable on it.
    fn finish_order(&mut self, user: StreamId, fences: &[Fence]) {
        for &fence in fences {
            self.note_recorded(fence);
            if let Ok(stream) = self.streams.live_mut(user) {
                stream.note_seen(fence);
            }
        }
    }

    fn note_recorded(&mut self, fence: Fence) {
        if let Some(stream) = self.streams.of_fence(fence) {
            stream.recorded = stream.recorded.max(fence.point);
        }
    }

    fn note_steps_recorded(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::Record { fence } = *step {
                self.note_recorded(fence);
            }
        }
    }
}
