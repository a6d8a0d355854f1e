//! What becomes of a plan: committed when all its steps are done, abandoned when one failed.
//!
//! Promise P4: whichever it is, the heap is valid afterwards and the same request can be tried
//! again. I13: the page table follows what is really mapped, also after half a plan.

use super::Heap;
use crate::id::ListIx;
use crate::plan::{self, Committed, Intent, Plan, Step};
use crate::policy::SegmentKind;
use crate::space::block::BlockIndex;
use crate::space::unmapped::GrowthPoint;

impl Heap {
    /// Takes back a plan whose steps are all done. `address` is what its `Reserve` or `Malloc`
    /// step gave; it is ignored for plans that have neither.
    pub fn commit(&mut self, plan: Plan, address: u64) -> Committed {
        let steps = plan.steps;
        match plan.intent {
            Intent::Reserve { list, bytes, is_window } => {
                self.pools.of(self.space.list(list)).end_segment_plan();
                let index = self.add_segment(list, address, bytes, is_window);
                self.space.make_unmapped(index);
                Committed::Prepared
            }
            Intent::Malloc { request, bytes } => {
                self.pools.of(self.space.list(request.list)).end_segment_plan();
                self.headroom.end_plan(bytes);
                let index = self.add_segment(request.list, address, bytes, false);
                let class = self.space.list(request.list).class as usize;
                self.stats.all.reserved_bytes.add(bytes);
                self.stats.classes[class].reserved_bytes.add(bytes);
                Committed::Granted(self.occupy(index, request))
            }
            Intent::Grow { request, point, created_bytes, .. } => {
                self.headroom.end_plan(created_bytes);
                self.headroom.note_created(created_bytes);
                self.stats.all.reserved_bytes.add(created_bytes);
                self.vm.commit(&self.space.segments, &steps);
                let block = self.space.blocks[point.unmapped];
                let class = self.space.list(block.list).class as usize;
                self.stats.classes[class].reserved_bytes.add(block.bytes);
                let index = self.space.join_growth(point);
                match request {
                    Some(request) => Committed::Granted(self.occupy(index, request)),
                    None => {
                        self.windows().file(index);
                        Committed::Prepared
                    }
                }
            }
            Intent::Remap { request, window, donors } => {
                self.headroom.note_remapped(mapped_bytes(&steps));
                self.vm.commit(&self.space.segments, &steps);
                self.windows().finish_remap(request, window, &donors);
                Committed::Granted(self.occupy(window, request))
            }
            Intent::Order { user, fences } => {
                self.note_recorded(&steps);
                self.streams.note_waited(user, &fences);
                if fences.is_empty() { Committed::Recorded } else { Committed::Prepared }
            }
            Intent::Free { block, fences } => {
                self.publish_pending(block, &fences);
                Committed::Done
            }
            Intent::Mark { fence } => {
                self.streams.note_recorded(fence);
                Committed::Done
            }
            Intent::Synchronize { fences, quarantined, pools } => {
                self.finish_synchronize(&fences, quarantined, &pools);
                Committed::Prepared
            }
            Intent::Trim { releases } => {
                self.finish_trim(releases, &steps, steps.len());
                Committed::Prepared
            }
        }
    }

    /// Takes back a plan that failed. `in_effect` is how many leading steps are still done: after
    /// a complete undo 0, and the number of steps done for plans that are not all or nothing.
    pub fn abandon(&mut self, plan: Plan, in_effect: usize) {
        assert!(in_effect <= plan.steps.len(), "more steps are in effect than were planned");
        let steps = &plan.steps[..in_effect];
        match plan.intent {
            Intent::Reserve { list, .. } => {
                let list = self.space.list(list);
                self.pools.of(list).end_segment_plan();
                // What a program names as room may be any size: others' may be had still.
                if !self.pools.is_growing(list) {
                    self.headroom.note_addresses(true);
                }
            }
            Intent::Malloc { request, bytes } => {
                self.pools.of(self.space.list(request.list)).end_segment_plan();
                self.headroom.end_plan(bytes);
            }
            Intent::Grow { point, created_bytes, has_large, .. } => {
                self.headroom.end_plan(created_bytes);
                self.headroom.note_growth_failed(has_large);
                self.undo_growth(point, &plan.steps, in_effect);
            }
            Intent::Remap { window, donors, .. } => {
                self.vm.abandon(&self.space.segments, &plan.steps, in_effect);
                self.windows().finish_unmapping(window);
                donors.iter().for_each(|&index| self.windows().file(index));
            }
            Intent::Order { .. } => self.note_recorded(steps),
            Intent::Free { block, .. } => {
                self.note_recorded(steps);
                self.quarantine(block);
            }
            // If it was the stream's last, only an idle device frees its blocks.
            Intent::Mark { .. } => {}
            Intent::Synchronize { quarantined, .. } => self.quarantine.extend(quarantined),
            Intent::Trim { releases } => self.finish_trim(releases, &plan.steps, in_effect),
        }
    }

    fn note_recorded(&mut self, steps: &[Step]) {
        plan::recorded(steps).for_each(|fence| self.streams.note_recorded(fence));
    }

    /// A new segment with one claimed block over all of it.
    fn add_segment(
        &mut self,
        list: ListIx,
        address: u64,
        bytes: u64,
        is_window: bool,
    ) -> BlockIndex {
        let index = self.space.claim_segment(list, address, bytes, is_window);
        let (kind, class) = (self.space.list(list).kind, self.space.list(list).class as usize);
        if kind == SegmentKind::Mapped {
            self.vm.add_segment(self.space.blocks[index].segment, address, is_window);
        }
        self.stats.all.segments.add(1);
        self.stats.classes[class].segments.add(1);
        index
    }

    /// A growth failed: what is not undone stays created.
    fn undo_growth(&mut self, point: GrowthPoint, steps: &[Step], in_effect: usize) {
        self.vm.abandon(&self.space.segments, steps, in_effect);
        let created = steps[..in_effect].iter().map(|step| match *step {
            Step::Create { bytes, .. } => bytes,
            _ => 0,
        });
        self.stats.all.reserved_bytes.add(created.sum());
        self.space.make_unmapped(point.unmapped);
        for index in [point.before, point.after].into_iter().filter_map(BlockIndex::some) {
            self.windows().file(index);
        }
    }
}

/// Bytes that steps map.
fn mapped_bytes(steps: &[Step]) -> u64 {
    let mapped = steps.iter().map(|step| match *step {
        Step::Map { bytes, .. } => bytes,
        _ => 0,
    });
    mapped.sum()
}
