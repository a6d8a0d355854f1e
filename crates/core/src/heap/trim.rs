//! Trim: giving unused memory and addresses back to the device.
//!
//! Only memory whose last use is known to be complete is given back, and none that is pinned:
//! unmapping does not wait for kernels. Private pools keep theirs while they live (I12), and until
//! the device was idle after that: graphs hold their addresses, and may still run.

use std::ops::Range;

use super::Heap;
use crate::fence::Fence;
use crate::id::PoolId;
use crate::plan::{Intent, Plan, Release, Step};
use crate::policy::SegmentKind;
use crate::space::block::{BlockIndex, BlockState};
use crate::space::segment::{Segment, SegmentIx};
use crate::vm::granule::GranuleId;

impl Heap {
    /// Plans to give back all that can be given back without waiting; `None` if there is nothing.
    ///
    /// Addresses follow in a plan of their own once nothing is mapped behind them, so: trim until
    /// there is nothing, or a plan fails.
    pub fn plan_trim(&mut self) -> Option<Plan> {
        self.send_all_home();
        let (mut releases, mut steps) = (Vec::new(), Vec::new());
        self.claim_aliases(&mut releases, &mut steps);
        if releases.is_empty() {
            self.claim_memory(&mut releases, &mut steps);
        }
        (!releases.is_empty()).then_some(Plan { steps, intent: Intent::Trim { releases } })
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

    // Mappings beside homes.

    /// Plans to unmap these ranges of an unfiled block without backing.
    pub(super) fn plan_to_unmap(&mut self, index: BlockIndex, ranges: Vec<Range<u64>>) -> Plan {
        let (mut releases, mut steps) = (Vec::new(), Vec::new());
        self.claim_to_unmap(index, ranges, &mut releases, &mut steps);
        Plan { steps, intent: Intent::Trim { releases } }
    }

    /// Claims an unfiled block without backing, and adds the unmapping of these of its ranges.
    pub(super) fn claim_to_unmap(
        &mut self,
        index: BlockIndex,
        ranges: Vec<Range<u64>>,
        releases: &mut Vec<Release>,
        steps: &mut Vec<Step>,
    ) {
        self.space.blocks.set_state(index, BlockState::Claimed);
        steps.extend(
            ranges
                .iter()
                .map(|range| Step::Unmap { address: range.start, bytes: range.end - range.start }),
        );
        releases.push(Release::Aliases { block: index, ranges });
    }

    /// Adds the unmapping of what keeps granules from being released, and forgets idle windows that
    /// lead nowhere.
    fn claim_aliases(&mut self, releases: &mut Vec<Release>, steps: &mut Vec<Step>) {
        let complete = self.complete_ranges();
        let segments = self.space.segments.iter();
        let mapped = segments.filter(|(_, segment)| segment.kind == SegmentKind::Mapped);
        let blocks: Vec<BlockIndex> =
            mapped.flat_map(|(_, segment)| self.space.blocks.onward(segment.first)).collect();
        for index in blocks {
            let block = self.space.blocks[index];
            let is_idle = block.state == BlockState::IdleWindow && self.is_complete(index);
            if !is_idle && block.state != BlockState::Unmapped {
                continue;
            }
            let (segment, range) = (block.segment, block.range());
            let is_whole = is_idle && self.vm.is_whole_window(segment, &range);
            if self.vm.leads_to_any(segment, &range, &complete) {
                match block.state {
                    BlockState::Unmapped => self.space.unlink_unmapped(index),
                    _ if is_whole => self.space.idle_windows.remove(self.window_key(index)),
                    _ => {}
                }
                let ranges = self.vm.mapped_ranges(segment, &range);
                self.claim_to_unmap(index, ranges, releases, steps);
            } else if is_whole && self.vm.is_unmapped(segment, &range) {
                self.space.idle_windows.remove(self.window_key(index));
                self.space.blocks.set_state(index, BlockState::Claimed);
                self.finish_unmapping(index);
            }
        }
    }

    /// Where granules of open pools are free at home and their last uses complete, by address.
    fn complete_ranges(&self) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (ix, segment) in self.space.segments.in_address_order() {
            if segment.kind == SegmentKind::Plain || !self.is_open(segment.list) {
                continue;
            }
            let mut end = 0;
            for index in self.space.blocks.onward(segment.first) {
                let start = self.space.blocks[index].address;
                if start >= end {
                    end = self.complete_run_end(index);
                    ranges.push(self.vm.whole_handles(ix, start..end));
                }
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    /// A claimed block of which aliases were unmapped stands where it belongs again.
    pub(super) fn finish_unmapping(&mut self, index: BlockIndex) {
        let block = self.space.blocks[index];
        if !block.is_window {
            return self.space.make_unmapped(index);
        }
        let (segment, range) = (block.segment, block.range());
        self.vm.renew_runs(segment, range.clone());
        if self.vm.is_whole_window(segment, &range) && self.vm.is_unmapped(segment, &range) {
            self.vm.forget_window(segment, block.address);
            self.space.make_unmapped(index);
        } else {
            self.make_idle(index);
        }
    }

    // Memory and addresses.

    fn claim_memory(&mut self, releases: &mut Vec<Release>, steps: &mut Vec<Step>) {
        let segments = self.space.segments.in_address_order();
        let open = segments.filter(|(_, segment)| self.is_open(segment.list));
        for ix in open.map(|(ix, _)| ix).collect::<Vec<_>>() {
            self.claim_segment(ix, releases, steps);
        }
        // Last, since giving these back has failed before: nothing waits behind them.
        for granule in self.vm.take_releasable_idle() {
            steps.push(Step::Release { granule });
            releases.push(Release::Idle { handle: granule });
        }
    }

    /// Claims what a segment can give back.
    fn claim_segment(&mut self, ix: SegmentIx, releases: &mut Vec<Release>, steps: &mut Vec<Step>) {
        let Segment { kind, address, bytes, first, is_window, .. } = self.space.segments[ix];
        let whole = &self.space.blocks[first];
        if whole.bytes == bytes && whole.state == BlockState::Unmapped {
            if self.vm.is_unmapped(ix, &(address..address + bytes)) {
                self.space.unlink_unmapped(first);
                self.space.blocks.set_state(first, BlockState::Claimed);
                self.space.segments.withdraw(ix);
                steps.push(Step::Unreserve { address, bytes });
                releases.push(Release::Addresses { segment: ix });
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
                next = self.space.blocks[index].next;
                continue;
            }
            let claimed = self.space.claim_range(index, range.start, range.end);
            // All its uses are complete; points of different streams would not compare.
            self.space.blocks[claimed].free_after = 0;
            next = self.space.blocks[claimed].next;
            releases.push(match kind {
                SegmentKind::Mapped => {
                    let handles = self.vm.plan_release(ix, &range, steps);
                    Release::Backing { block: claimed, handles }
                }
                SegmentKind::Plain => {
                    self.space.segments.withdraw(ix);
                    steps.push(Step::Free { address, bytes });
                    Release::Plain { segment: ix }
                }
            });
        }
    }

    /// What can be given back of the run of free blocks that starts at this one.
    fn releasable(&self, ix: SegmentIx, index: BlockIndex) -> Range<u64> {
        let start = self.space.blocks[index].address;
        let run = start..self.complete_run_end(index);
        match self.space.segments[ix] {
            _ if run.is_empty() => run,
            Segment { kind: SegmentKind::Mapped, .. } => self.vm.releasable(ix, run),
            Segment { address, bytes, .. } => {
                let is_whole = run == (address..address + bytes) && !self.vm.is_pinned(run.clone());
                if is_whole { run } else { start..start }
            }
        }
    }

    /// Takes back a trim of which the first `done` steps were done.
    pub(super) fn finish_trim(&mut self, releases: Vec<Release>, done: usize) {
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
                    self.finish_unmapping(block);
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
        self.memory_is_scarce &= !is_done;
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
            return self.file(index);
        }
        self.vm.unmap_home(block.segment, &block.range());
        let class = self.space.list(self.space.segments[block.segment].list).class as usize;
        self.stats.classes[class].reserved_bytes.take(block.bytes);
        for (&handle, &is_released) in handles.iter().zip(released) {
            self.finish_release(handle, is_released);
        }
        self.space.make_unmapped(index);
    }

    fn finish_plain(&mut self, ix: SegmentIx, is_done: bool) {
        let Segment { first, bytes, list, .. } = self.space.segments[ix];
        if !is_done {
            self.space.segments.restore(ix);
            return self.file(first);
        }
        let class = self.space.list(list).class as usize;
        self.stats.all.reserved_bytes.take(bytes);
        self.stats.classes[class].reserved_bytes.take(bytes);
        self.memory_is_scarce = false;
        self.remove_segment(ix);
    }

    fn finish_addresses(&mut self, ix: SegmentIx, is_done: bool) {
        if is_done {
            self.vm.remove_segment(ix);
            self.remove_segment(ix);
            self.addresses_are_scarce = false;
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
