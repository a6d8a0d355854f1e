//! What becomes of a plan: committed when all its steps are done, abandoned when one failed.
//!
//! Promise P4: whichever it is, the heap is valid afterwards and the same request can be tried
//! again. I13: slots and granules follow what is really mapped, also after half a plan.

use super::Heap;
use super::request::Granted;
use crate::block::BlockIndex;
use crate::fence::Fence;
use crate::granule::{GranuleId, GranuleState, Place};
use crate::id::StreamId;
use crate::plan::{Intent, Plan, Site, Step};

/// What a committed plan led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The request is served.
    Granted(Granted),
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
            Intent::Reserve { list, bytes, is_loan } => {
                self.pool_of(list).planned_segments -= 1;
                let index = self.add_segment(address, bytes, list, is_loan);
                self.hollow_out(index);
                Committed::Prepared
            }
            Intent::Malloc { wanted, bytes } => {
                self.pool_of(wanted.list).planned_segments -= 1;
                self.planned_bytes -= bytes;
                let index = self.add_segment(address, bytes, wanted.list, false);
                self.add_reserved(wanted.list, bytes);
                Committed::Granted(self.occupy(index, wanted))
            }
            Intent::Grow { wanted, site, handles, .. } => {
                self.finish_growth(site.hollow, &steps, &handles);
                let index = self.join_site(site);
                match wanted {
                    Some(wanted) => Committed::Granted(self.occupy(index, wanted)),
                    None => {
                        self.file(index);
                        Committed::Prepared
                    }
                }
            }
            Intent::Lend { wanted, berth, lenders } => {
                self.finish_lending(wanted, berth, &steps, &lenders);
                Committed::Granted(self.occupy(berth, wanted))
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
            Intent::Synchronize { fences, quarantined, pools } => {
                self.finish_synchronize(&fences, quarantined, &pools);
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
            Intent::Reserve { list, .. } => {
                self.pool_of(list).planned_segments -= 1;
                self.addresses_are_scarce = true;
            }
            Intent::Malloc { wanted, bytes } => {
                self.pool_of(wanted.list).planned_segments -= 1;
                self.planned_bytes -= bytes;
            }
            Intent::Grow { site, handles, has_large, .. } => {
                // Perhaps less would have been granted. If that fails, too, size is not the reason.
                self.memory_is_scarce = has_large;
                self.undo_growth(site, &plan.steps, in_effect, &handles);
            }
            Intent::Lend { berth, lenders, .. } => self.undo_lending(berth, steps, &lenders),
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

    /// All granules of a growth are mapped and accessible: this is their home.
    fn finish_growth(&mut self, hollow: BlockIndex, steps: &[Step], handles: &[GranuleId]) {
        let created = steps.iter().filter_map(|step| match *step {
            Step::Create { bytes, .. } => Some(bytes),
            _ => None,
        });
        let created_bytes = created.sum();
        self.planned_bytes -= created_bytes;
        self.stats.all.reserved_bytes.add(created_bytes);
        let segment = self.blocks[hollow].segment;
        let granules: Vec<GranuleId> =
            handles.iter().flat_map(|&handle| self.granules.of_handle(handle)).collect();
        for (slot, granule) in self.slots_of(hollow).zip(granules) {
            let place = Place { segment, slot: slot as u32 };
            self.map_slot(place, granule, true);
            self.granules.set_backing(granule, place);
        }
        let class = self.list(self.blocks[hollow].list).class as usize;
        self.stats.classes[class].reserved_bytes.add(self.blocks[hollow].bytes);
    }

    /// Makes one unfiled block of a site.
    fn join_site(&mut self, site: Site) -> BlockIndex {
        if site.after.some().is_some() {
            self.blocks.absorb_next(site.hollow);
        }
        if site.before.some().is_some() {
            self.blocks.absorb_next(site.before);
            return site.before;
        }
        site.hollow
    }

    /// A growth failed. What could not be released stays idle; what could not be unmapped still
    /// leads to it, without access as far as anybody knows.
    fn undo_growth(&mut self, site: Site, steps: &[Step], in_effect: usize, of: &[GranuleId]) {
        for (at, step) in steps.iter().enumerate() {
            if let Step::Create { granule, bytes } = *step {
                self.planned_bytes -= bytes;
                if at < in_effect {
                    self.stats.all.reserved_bytes.add(bytes);
                    self.granules.set_idle(granule);
                } else {
                    self.granules.set_vacant(granule);
                }
            }
        }
        self.note_mapped(site.hollow, &steps[..in_effect.min(steps.len())], false);
        for &granule in of {
            if self.granules.state(granule) == GranuleState::Planned {
                self.granules.set_idle(granule);
            }
        }
        self.hollow_out(site.hollow);
        for index in [site.before, site.after].into_iter().filter_map(BlockIndex::some) {
            self.file(index);
        }
    }

    pub(super) fn add_reserved(&mut self, list: u32, bytes: u64) {
        let class = self.list(list).class as usize;
        self.stats.all.reserved_bytes.add(bytes);
        self.stats.classes[class].reserved_bytes.add(bytes);
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
