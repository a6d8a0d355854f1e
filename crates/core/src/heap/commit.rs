//! What becomes of a plan: committed when all its steps are done, abandoned when one failed.
//!
//! Promise P4: whichever it is, the heap is valid afterwards and the same request can be tried
//! again. I13: the page table follows what is really mapped, also after half a plan.

use super::Heap;
use crate::id::{GranuleId, ListIx};
use crate::plan::{self, Intent, Plan, Step};
use crate::policy::{self, SegmentKind};
use crate::scarcity::Change;
use crate::space::Granted;
use crate::space::block::BlockIndex;
use crate::space::unmapped::GrowthPoint;

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
            Intent::Reserve { list, bytes, is_window } => {
                self.end_segment_plan(list);
                let index = self.add_segment(list, address, bytes, is_window);
                self.space.make_unmapped(index);
                Committed::Prepared
            }
            Intent::Malloc { request, bytes } => {
                self.end_segment_plan(request.list);
                self.end_planned_bytes(bytes);
                let index = self.add_segment(request.list, address, bytes, false);
                let class = self.space.list(request.list).class as usize;
                self.stats.all.reserved_bytes.add(bytes);
                self.stats.classes[class].reserved_bytes.add(bytes);
                Committed::Granted(self.occupy(index, request))
            }
            Intent::Grow { request, point, handles, .. } => {
                self.finish_growth(point.unmapped, &steps, &handles);
                let index = self.space.join_growth(point);
                match request {
                    Some(request) => Committed::Granted(self.occupy(index, request)),
                    None => {
                        self.file_again(index);
                        Committed::Prepared
                    }
                }
            }
            Intent::Remap { request, window, donors } => {
                self.finish_remap(request, window, &steps, &donors);
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
                self.finish_trim(releases, steps.len());
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
                self.end_segment_plan(list);
                self.scarcity.note(Change::ReservationRefused);
            }
            Intent::Malloc { request, bytes } => {
                self.end_segment_plan(request.list);
                self.end_planned_bytes(bytes);
            }
            Intent::Grow { point, handles, has_large, .. } => {
                self.scarcity.note(Change::GrowthFailed { has_large });
                self.undo_growth(point, &plan.steps, in_effect, &handles);
            }
            Intent::Remap { window, donors, .. } => {
                self.vm.undo_remap(self.space.blocks[window].segment, steps);
                self.windows().finish_unmapping(window);
                donors.iter().for_each(|&index| self.file_again(index));
            }
            Intent::Order { .. } => self.note_recorded(steps),
            Intent::Free { block, .. } => {
                self.note_recorded(steps);
                self.quarantine(block);
            }
            // If it was the stream's last, only an idle device frees its blocks.
            Intent::Mark { .. } => {}
            Intent::Synchronize { quarantined, .. } => self.quarantine.extend(quarantined),
            Intent::Trim { releases } => self.finish_trim(releases, in_effect),
        }
    }

    /// A plan of a new segment is over.
    fn end_segment_plan(&mut self, list: ListIx) {
        let planned = &mut self.pool_of(list).planned_segments;
        assert!(*planned > 0, "a segment arrives that was not planned");
        *planned -= 1;
    }

    /// A plan of new memory is over.
    fn end_planned_bytes(&mut self, bytes: u64) {
        assert!(bytes <= self.planned_bytes, "memory arrives that was not planned");
        self.planned_bytes -= bytes;
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

    /// All memory of a growth is mapped and accessible.
    fn finish_growth(&mut self, unmapped: BlockIndex, steps: &[Step], handles: &[GranuleId]) {
        let created_bytes = created_bytes(steps);
        self.end_planned_bytes(created_bytes);
        self.stats.all.reserved_bytes.add(created_bytes);
        let created = created_bytes / self.config.granule_bytes;
        self.affordable_remaps += created / policy::CREATED_PER_REMAP;
        let block = self.space.blocks[unmapped];
        self.vm.finish_new(block.segment, &block.range(), handles);
        let class = self.space.list(block.list).class as usize;
        self.stats.classes[class].reserved_bytes.add(block.bytes);
    }

    /// A growth failed: what is not undone stays created.
    fn undo_growth(
        &mut self,
        point: GrowthPoint,
        steps: &[Step],
        in_effect: usize,
        handles: &[GranuleId],
    ) {
        self.end_planned_bytes(created_bytes(steps));
        let segment = self.space.blocks[point.unmapped].segment;
        let left_bytes = self.vm.undo_new(segment, steps, in_effect, handles);
        self.stats.all.reserved_bytes.add(left_bytes);
        self.space.make_unmapped(point.unmapped);
        for index in [point.before, point.after].into_iter().filter_map(BlockIndex::some) {
            self.file_again(index);
        }
    }
}

/// Bytes that steps create.
fn created_bytes(steps: &[Step]) -> u64 {
    let created = steps.iter().map(|step| match *step {
        Step::Create { bytes, .. } => bytes,
        _ => 0,
    });
    created.sum()
}
