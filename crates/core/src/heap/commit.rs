//! What becomes of a plan: committed when all its steps are done, abandoned when one failed.
//!
//! Promise P4: whichever it is, the heap is valid afterwards and the same request can be tried
//! again. I13: the page table follows what is really mapped, also after half a plan.

use super::Heap;
use super::compact::Compaction;
use crate::fence::Fence;
use crate::id::{ListIx, PoolId, SegmentIx};
use crate::plan::{self, Committed, Intent, Move, Plan, Release, Step};
use crate::policy::SegmentKind;
use crate::space::block::{BlockIndex, BlockState};
use crate::space::segment::Segment;
use crate::state_machine::StateMachine;
use crate::vm::pins::PinKey;

impl Heap {
    /// Takes back a plan whose steps are all done. `address` is what its `Reserve` or `Malloc`
    /// step gave; it is ignored for plans that have neither.
    pub fn commit(&mut self, plan: Plan, address: u64) -> Committed {
        let steps = plan.steps;
        match plan.intent {
            Intent::Reserve { list, bytes, is_window } => {
                self.pools.at_mut(self.space.list(list).pool).end_segment_plan();
                let index = self.add_segment(list, address, bytes, is_window);
                self.space.make_unmapped(index);
            }
            Intent::Malloc { request, bytes } => {
                self.pools.at_mut(self.space.list(request.list).pool).end_segment_plan();
                self.headroom.end_plan(bytes);
                let index = self.add_segment(request.list, address, bytes, false);
                let class = self.space.list(request.list).class as usize;
                self.stats.all.reserved_bytes.add(bytes);
                self.stats.classes[class].reserved_bytes.add(bytes);
                return Committed::Granted(self.occupy(index, request));
            }
            Intent::Grow { request, point, created_bytes, .. } => {
                self.headroom.end_plan(created_bytes);
                self.headroom.note_created(&self.stats, plan::created(&steps).sum());
                self.stats.all.reserved_bytes.add(created_bytes);
                self.vm.commit(&self.space.segments, &steps);
                let block = self.space.blocks[point.unmapped];
                let class = self.space.list(block.list).class as usize;
                self.stats.classes[class].reserved_bytes.add(block.bytes);
                let index = self.space.join_growth(point);
                match request {
                    Some(request) => return Committed::Granted(self.occupy(index, request)),
                    None => self.windows().file(index),
                }
            }
            Intent::Remap { request, window, donors } => {
                self.vm.commit(&self.space.segments, &steps);
                self.windows().finish_remap(request.list, window, &donors);
                return Committed::Granted(self.occupy(window, request));
            }
            Intent::Move(one) => Compaction::of(self).finish_move(one, &steps),
            Intent::Mesh { guests, home, meshed } => {
                Compaction::of(self).finish_mesh(&guests, home, meshed, &steps)
            }
            Intent::Order { user, fences } => {
                self.note_recorded(&steps);
                self.streams.note_waited(user, &fences);
                if fences.is_empty() {
                    return Committed::Recorded;
                }
            }
            Intent::Free { block, fences } => {
                self.publish_pending(block, &fences);
                return Committed::Done;
            }
            Intent::Mark { fence } => {
                self.streams.note_recorded(fence);
                return Committed::Done;
            }
            Intent::Synchronize { fences, quarantined, pools } => {
                self.finish_synchronize(&fences, quarantined, &pools);
            }
            Intent::Trim { releases } => self.finish_trim(releases, &steps, steps.len()),
        }
        Committed::Prepared
    }

    /// Takes back a plan that failed. `in_effect` is how many leading steps are still done: after
    /// a complete undo 0, and the number of steps done for plans that are not all or nothing.
    pub fn abandon(&mut self, plan: Plan, in_effect: usize) {
        assert!(in_effect <= plan.steps.len(), "more steps are in effect than were planned");
        let steps = &plan.steps[..in_effect];
        match plan.intent {
            Intent::Reserve { list, .. } => {
                let list = self.space.list(list);
                self.pools.at_mut(list.pool).end_segment_plan();
                // What a program names as room may be any size: others' may be had still.
                if !self.pools.is_growing(list) {
                    self.headroom.note_refused_addresses();
                }
            }
            Intent::Malloc { request, bytes } => {
                self.pools.at_mut(self.space.list(request.list).pool).end_segment_plan();
                self.headroom.end_plan(bytes);
            }
            Intent::Grow { point, created_bytes, has_large, .. } => {
                self.headroom.end_plan(created_bytes);
                self.headroom.note_growth_failed(has_large);
                // What is not undone stays created.
                self.stats.all.reserved_bytes.add(plan::created(steps).sum());
                self.vm.abandon(&self.space.segments, &plan.steps, in_effect);
                self.space.make_unmapped(point.unmapped);
                for index in [point.before, point.after].into_iter().filter_map(BlockIndex::some) {
                    self.windows().file(index);
                }
            }
            Intent::Remap { window, donors, .. } => {
                self.vm.abandon(&self.space.segments, &plan.steps, in_effect);
                self.windows().finish_unmapping(window);
                donors.iter().for_each(|&index| self.windows().file(index));
            }
            Intent::Move(Move { addresses, emptied, created_bytes, .. }) => {
                assert_is_put_back(steps);
                self.vm.unpin(PinKey::Move(addresses.start));
                self.headroom.end_plan(created_bytes);
                self.stats.all.reserved_bytes.add(plan::created(steps).sum());
                self.vm.abandon(&self.space.segments, &plan.steps, in_effect);
                emptied.into_iter().for_each(|index| self.windows().file(index));
            }
            Intent::Mesh { guests, meshed, .. } => {
                Compaction::of(self).abandon_mesh(&guests, meshed, steps)
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

    // What is over, and what was given back.

    fn finish_synchronize(
        &mut self,
        fences: &[Fence],
        quarantined: Vec<BlockIndex>,
        pools: &[PoolId],
    ) {
        for &pool in pools {
            self.pools.open(pool);
        }
        for &fence in fences {
            self.fence_passed(fence);
        }
        for index in quarantined {
            if self.space.blocks[index].state == BlockState::Claimed {
                // Copies that nobody waits for any more went there.
                self.windows().file(index);
                continue;
            }
            self.stats.rare.quarantined_bytes -= self.space.blocks[index].bytes;
            self.space.end_leaving(index);
            self.finish_free(index);
        }
        if !pools.is_empty() {
            // What they had borrowed.
            self.windows().send_all_home();
        }
    }

    /// Takes back a trim of which the first `done` steps were done.
    fn finish_trim(&mut self, releases: Vec<Release>, steps: &[Step], done: usize) {
        let (done_steps, undone) = steps.split_at(done);
        let released_bytes = self.vm.commit(&self.space.segments, done_steps);
        self.vm.abandon(&self.space.segments, undone, 0);
        self.stats.all.reserved_bytes.take(released_bytes);
        if released_bytes > 0 {
            self.headroom.note_given_back(released_bytes);
        }
        for release in releases {
            match release {
                Release::Aliases { block } => self.windows().finish_unmapping(block),
                Release::Backing { block } => self.finish_backing(block),
                Release::Guest { block, own, host } => {
                    Compaction::of(self).finish_guest(block, &own, host)
                }
                Release::Segment { segment, step } => self.finish_segment(segment, step < done),
            }
        }
    }

    /// A claimed block at home was unmapped, or could not be.
    pub(super) fn finish_backing(&mut self, index: BlockIndex) {
        let block = &self.space.blocks[index];
        if !self.vm.under(block).is_unmapped() {
            return self.windows().file(index);
        }
        let class = self.space.of_segment(block.segment).class as usize;
        self.stats.classes[class].reserved_bytes.take(block.bytes);
        self.space.make_unmapped(index);
    }

    /// A withdrawn segment was given back, with the one block that covers it, or stays.
    fn finish_segment(&mut self, ix: SegmentIx, is_done: bool) {
        let Segment { kind, first, bytes, list, .. } = self.space.segments[ix];
        if !is_done {
            self.space.segments.restore(ix);
            return match kind {
                SegmentKind::Plain => self.windows().file(first),
                SegmentKind::Mapped => self.space.make_unmapped(first),
            };
        }
        let class = self.space.list(list).class as usize;
        match kind {
            SegmentKind::Plain => {
                self.stats.all.reserved_bytes.take(bytes);
                self.stats.classes[class].reserved_bytes.take(bytes);
                self.headroom.note_given_back(bytes);
            }
            SegmentKind::Mapped => {
                self.vm.remove_segment(ix);
                self.headroom.note_given_back_addresses();
            }
        }
        self.stats.all.segments.take(1);
        self.stats.classes[class].segments.take(1);
        self.space.remove_segment(ix);
    }
}

/// Memory in use is where it was before these steps, of which the others are undone.
pub(super) fn assert_is_put_back(steps: &[Step]) {
    let is_lifted = steps.iter().any(|step| matches!(step, Step::Lift { .. }));
    assert!(!is_lifted, "the driver refuses to map live memory again where it was");
}
