//! What becomes of a plan: committed when all its steps are done, abandoned when one failed.
//!
//! Promise P4: whichever it is, the heap is valid afterwards and the same request can be tried
//! again. I13: slots and granules follow what is really mapped, also after half a plan.

use super::Heap;
use super::request::Grant;
use crate::block::{BlockIndex, BlockState};
use crate::fence::Fence;
use crate::granule::GranuleId;
use crate::id::StreamId;
use crate::plan::{Intent, Plan, Step};

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
            Intent::Back { wanted, free_before, hollow, free_after } => {
                self.finish_backing(&steps, hollow);
                let mut index = hollow;
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
            Intent::Back { free_before, hollow, free_after, .. } => {
                self.undo_backing(&plan.steps, in_effect, hollow);
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
    fn finish_backing(&mut self, steps: &[Step], hollow: BlockIndex) {
        let segment = self.blocks[hollow].segment;
        let granule_bytes = self.config.granule_bytes;
        let (mut created, mut mapped) = (0, 0);
        for step in steps {
            match *step {
                Step::Create { .. } => created += 1,
                Step::Map { address, granule, .. } => {
                    self.fill_slot(segment, address, granule);
                    mapped += 1;
                }
                _ => {}
            }
        }
        self.planned_bytes -= created * granule_bytes;
        self.stats.all.reserved_bytes.add(created * granule_bytes);
        let scale = self.list(self.blocks[hollow].list).scale as usize;
        self.stats.scales[scale].reserved_bytes.add(mapped * granule_bytes);
    }

    /// A backing plan failed. Granules that could not be released stay idle, or, where even the
    /// unmapping failed, stay mapped: then the block is stranded with them until a trim.
    fn undo_backing(&mut self, steps: &[Step], in_effect: usize, hollow: BlockIndex) {
        let segment = self.blocks[hollow].segment;
        let granule_bytes = self.config.granule_bytes;
        let mut is_mapped = false;
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Step::Create { granule, .. } => {
                    self.planned_bytes -= granule_bytes;
                    if at < in_effect {
                        self.stats.all.reserved_bytes.add(granule_bytes);
                    } else {
                        self.granules.set_vacant(granule);
                    }
                }
                Step::Map { address, granule, .. } => {
                    let was_idle = !matches!(
                        at.checked_sub(1).map(|before| steps[before]),
                        Some(Step::Create { granule: created, .. }) if created == granule
                    );
                    let exists = was_idle || at > 0 && at - 1 < in_effect;
                    if at < in_effect {
                        self.fill_slot(segment, address, granule);
                        is_mapped = true;
                    } else if exists {
                        self.granules.set_idle(granule);
                    }
                }
                _ => {}
            }
        }
        if is_mapped {
            self.strand(hollow);
        } else {
            self.hollow_out(hollow);
        }
    }

    /// The front of a claimed hollow block is mapped and could not be unmapped: it is stranded
    /// until a trim gives it back. The rest is hollow again.
    fn strand(&mut self, hollow: BlockIndex) {
        let block = self.blocks[hollow];
        let Some(segment) = self.segments.get(block.segment) else {
            return;
        };
        let first = ((block.address - segment.address) / self.config.granule_bytes) as usize;
        let count = (block.bytes / self.config.granule_bytes) as usize;
        let mapped = (first..first + count).take_while(|&s| segment.granule(s).is_some()).count();
        let mapped_bytes = mapped as u64 * self.config.granule_bytes;
        if mapped_bytes < block.bytes {
            let rest = self.blocks.cut(hollow, mapped_bytes);
            self.hollow_out(rest);
        }
        let scale = self.list(block.list).scale as usize;
        self.stats.scales[scale].reserved_bytes.add(mapped_bytes);
        self.blocks[hollow].state = BlockState::Stranded;
        self.stranded.push(hollow);
    }

    fn fill_slot(&mut self, segment: u32, address: u64, granule: GranuleId) {
        let granule_bytes = self.config.granule_bytes;
        if let Some(segment) = self.segments.get_mut(segment) {
            let slot = (address - segment.address) / granule_bytes;
            segment.set_granule(slot as usize, Some(granule));
            self.granules.set_mapped(granule);
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
