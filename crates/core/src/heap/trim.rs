//! Trim: giving unused memory and addresses back to the device.
//!
//! Only memory whose last use is known to be complete is given back, and none that is pinned:
//! unmapping does not wait for kernels. Private pools keep theirs while they live (I12), and until
//! the device was idle after that: graphs hold their addresses, and may still run.

use std::ops::Range;

use super::Heap;
use crate::fence::Fence;
use crate::id::{GranuleId, PoolId, SegmentIx};
use crate::plan::{Intent, Plan, Release, Step};
use crate::policy::SegmentKind;
use crate::scarcity::Change;
use crate::space::block::{BlockIndex, BlockState};
use crate::space::segment::Segment;

/// A trim that is being planned: what it gives back, with the steps that takes.
#[derive(Debug)]
pub(super) struct Trim<'a> {
    heap: &'a mut Heap,
    releases: Vec<Release>,
    steps: Vec<Step>,
}

impl<'a> Trim<'a> {
    const fn new(heap: &'a mut Heap) -> Self {
        Self { heap, releases: Vec::new(), steps: Vec::new() }
    }

    /// A plan to unmap these ranges of unfiled blocks without backing.
    pub(super) fn unmapping(
        heap: &'a mut Heap,
        blocks: impl IntoIterator<Item = (BlockIndex, Vec<Range<u64>>)>,
    ) -> Plan {
        let mut trim = Self::new(heap);
        for (index, ranges) in blocks {
            trim.claim_to_unmap(index, ranges);
        }
        trim.into_plan()
    }

    fn into_plan(self) -> Plan {
        Plan { steps: self.steps, intent: Intent::Trim { releases: self.releases } }
    }

    /// Claims an unfiled block without backing, and adds the unmapping of these of its ranges.
    fn claim_to_unmap(&mut self, index: BlockIndex, ranges: Vec<Range<u64>>) {
        self.heap.space.blocks.set_state(index, BlockState::Claimed);
        self.steps.extend(
            ranges
                .iter()
                .map(|range| Step::Unmap { address: range.start, bytes: range.end - range.start }),
        );
        self.releases.push(Release::Aliases { block: index, ranges });
    }

    /// Adds the unmapping of what keeps granules from being released, and forgets idle windows that
    /// lead nowhere.
    fn claim_aliases(&mut self) {
        let complete = self.complete_ranges();
        let segments = self.heap.space.segments.iter();
        let mapped = segments.filter(|(_, segment)| segment.kind == SegmentKind::Mapped);
        let blocks: Vec<BlockIndex> =
            mapped.flat_map(|(_, segment)| self.heap.space.blocks.onward(segment.first)).collect();
        for index in blocks {
            let block = self.heap.space.blocks[index];
            let is_idle = block.state == BlockState::IdleWindow
                && self.heap.streams.is_complete(&self.heap.space, index);
            if !is_idle && block.state != BlockState::Unmapped {
                continue;
            }
            let (segment, range) = (block.segment, block.range());
            let is_whole = is_idle && self.heap.vm.is_whole_window(segment, &range);
            if self.heap.vm.leads_to_any(segment, &range, &complete) {
                match block.state {
                    BlockState::Unmapped => self.heap.space.unlink_unmapped(index),
                    _ if is_whole => self.heap.windows().take_idle(index),
                    _ => {}
                }
                let ranges = self.heap.vm.mapped_ranges(segment, &range);
                self.claim_to_unmap(index, ranges);
            } else if is_whole && self.heap.vm.is_unmapped(segment, &range) {
                self.heap.windows().take_idle(index);
                self.heap.space.blocks.set_state(index, BlockState::Claimed);
                self.heap.windows().finish_unmapping(index);
            }
        }
    }

    /// Where granules of open pools are free at home and their last uses complete, by address.
    fn complete_ranges(&self) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (ix, segment) in self.heap.space.segments.in_address_order() {
            if segment.kind == SegmentKind::Plain || !self.heap.is_open(segment.list) {
                continue;
            }
            let mut end = 0;
            for index in self.heap.space.blocks.onward(segment.first) {
                let start = self.heap.space.blocks[index].address;
                if start >= end {
                    end = self.heap.streams.complete_run_end(&self.heap.space, index);
                    ranges.push(self.heap.vm.whole_handles(ix, start..end));
                }
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    // Memory and addresses.

    fn claim_memory(&mut self) {
        let segments = self.heap.space.segments.in_address_order();
        let open = segments.filter(|(_, segment)| self.heap.is_open(segment.list));
        for ix in open.map(|(ix, _)| ix).collect::<Vec<_>>() {
            self.claim_segment(ix);
        }
        // Last, since giving these back has failed before: nothing waits behind them.
        for granule in self.heap.vm.take_releasable_idle() {
            self.steps.push(Step::Release { granule });
            self.releases.push(Release::Idle { handle: granule });
        }
    }

    /// Claims what a segment can give back.
    fn claim_segment(&mut self, ix: SegmentIx) {
        let Segment { kind, address, bytes, first, is_window, .. } = self.heap.space.segments[ix];
        let whole = &self.heap.space.blocks[first];
        if whole.bytes == bytes && whole.state == BlockState::Unmapped {
            if self.heap.vm.is_unmapped(ix, &(address..address + bytes)) {
                self.heap.space.unlink_unmapped(first);
                self.heap.space.blocks.set_state(first, BlockState::Claimed);
                self.heap.space.segments.withdraw(ix);
                self.steps.push(Step::Unreserve { address, bytes });
                self.releases.push(Release::Addresses { segment: ix });
            }
            return;
        }
        if is_window {
            // Its granules are released at their homes.
            return;
        }
        let mut next = first;
        while let Some(index) = next.some() {
            let range = self.releasable(ix, index);
            if range.is_empty() {
                next = self.heap.space.blocks[index].next;
                continue;
            }
            let claimed = self.heap.space.claim_range(index, range.start, range.end);
            // All its uses are complete; points of different streams would not compare.
            self.heap.space.blocks[claimed].free_after = 0;
            next = self.heap.space.blocks[claimed].next;
            self.releases.push(match kind {
                SegmentKind::Mapped => {
                    let handles = self.heap.vm.plan_release(ix, &range, &mut self.steps);
                    Release::Backing { block: claimed, handles }
                }
                SegmentKind::Plain => {
                    self.heap.space.segments.withdraw(ix);
                    self.steps.push(Step::Free { address, bytes });
                    Release::Plain { segment: ix }
                }
            });
        }
    }

    /// What can be given back of the run of free blocks that starts at this one.
    fn releasable(&self, ix: SegmentIx, index: BlockIndex) -> Range<u64> {
        let start = self.heap.space.blocks[index].address;
        let run = start..self.heap.streams.complete_run_end(&self.heap.space, index);
        match self.heap.space.segments[ix] {
            _ if run.is_empty() => run,
            Segment { kind: SegmentKind::Mapped, .. } => self.heap.vm.releasable(ix, run),
            Segment { address, bytes, .. } => {
                let is_whole =
                    run == (address..address + bytes) && !self.heap.vm.is_pinned(run.clone());
                if is_whole { run } else { start..start }
            }
        }
    }
}

impl Heap {
    /// Plans to give back all that can be given back without waiting; `None` if there is nothing.
    ///
    /// Addresses follow in a plan of their own once nothing is mapped behind them, so: trim until
    /// there is nothing, or a plan fails.
    pub fn plan_trim(&mut self) -> Option<Plan> {
        self.send_all_home();
        let mut trim = Trim::new(self);
        trim.claim_aliases();
        if trim.releases.is_empty() {
            trim.claim_memory();
        }
        (!trim.releases.is_empty()).then(|| trim.into_plan())
    }

    /// Plans to wait until the device is idle. Afterwards every block freed before is usable
    /// everywhere, pending ones are free, and a trim gives all of it back.
    pub fn plan_synchronize(&mut self) -> Plan {
        let quarantined = std::mem::take(&mut self.quarantine);
        self.streams.plan_idle(quarantined, self.pools.open_when_idle())
    }

    pub(super) fn finish_synchronize(
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
            self.stats.quarantined_bytes -= self.space.blocks[index].bytes;
            self.finish_free(index);
        }
        if !pools.is_empty() {
            // What they had borrowed.
            self.send_all_home();
        }
    }

    // What became of it.

    /// Takes back a trim of which the first `done` steps were done.
    pub(super) fn finish_trim(&mut self, releases: Vec<Release>, done: usize) {
        assert!(!releases.is_empty(), "a trim gives nothing back");
        let mut left = done;
        let mut take = move || {
            let is_done = left > 0;
            left = left.saturating_sub(1);
            is_done
        };
        for release in releases {
            match release {
                Release::Idle { handle } => self.finish_release(handle, take()),
                Release::Aliases { block, ranges } => {
                    let segment = self.space.blocks[block].segment;
                    for range in ranges {
                        if take() {
                            self.vm.unmap_aliases(segment, &range);
                        }
                    }
                    self.windows().finish_unmapping(block);
                }
                Release::Backing { block, handles } => {
                    let is_unmapped = take();
                    let released: Vec<bool> = handles.iter().map(|_| take()).collect();
                    self.finish_backing(block, is_unmapped, &handles, &released);
                }
                Release::Plain { segment } => self.finish_plain(segment, take()),
                Release::Addresses { segment } => self.finish_addresses(segment, take()),
            }
        }
    }

    fn finish_release(&mut self, handle: GranuleId, is_done: bool) {
        if is_done {
            self.scarcity.note(Change::MemoryGivenBack);
        }
        let bytes = self.vm.finish_release(handle, is_done);
        self.stats.all.reserved_bytes.take(bytes);
    }

    /// A claimed block was unmapped and its handles released, as far as that went.
    fn finish_backing(
        &mut self,
        index: BlockIndex,
        is_unmapped: bool,
        handles: &[GranuleId],
        released: &[bool],
    ) {
        let block = self.space.blocks[index];
        if !is_unmapped {
            self.vm.keep_backing(block.segment, &block.range());
            return self.file_again(index);
        }
        self.vm.unmap_home(block.segment, &block.range());
        let class = self.space.list(self.space.segments[block.segment].list).class as usize;
        self.stats.classes[class].reserved_bytes.take(block.bytes);
        assert!(handles.len() == released.len(), "it is not known what became of a handle");
        for (&handle, &is_released) in handles.iter().zip(released) {
            self.finish_release(handle, is_released);
        }
        self.space.make_unmapped(index);
    }

    fn finish_plain(&mut self, ix: SegmentIx, is_done: bool) {
        let Segment { first, bytes, list, .. } = self.space.segments[ix];
        if !is_done {
            self.space.segments.restore(ix);
            return self.file_again(first);
        }
        let class = self.space.list(list).class as usize;
        self.stats.all.reserved_bytes.take(bytes);
        self.stats.classes[class].reserved_bytes.take(bytes);
        self.scarcity.note(Change::MemoryGivenBack);
        self.remove_segment(ix);
    }

    fn finish_addresses(&mut self, ix: SegmentIx, is_done: bool) {
        if is_done {
            let first = &self.space.blocks[self.space.segments[ix].first];
            assert!(first.state == BlockState::Claimed, "addresses in use are given back");
            self.vm.remove_segment(ix);
            self.remove_segment(ix);
            self.scarcity.note(Change::AddressesGivenBack);
        } else {
            let first = self.space.segments[ix].first;
            self.space.segments.restore(ix);
            self.space.make_unmapped(first);
        }
    }

    /// Forgets a withdrawn segment and the one block that covers it.
    fn remove_segment(&mut self, ix: SegmentIx) {
        let class = self.space.list(self.space.segments[ix].list).class as usize;
        self.stats.all.segments.take(1);
        self.stats.classes[class].segments.take(1);
        self.space.remove_segment(ix);
    }
}
