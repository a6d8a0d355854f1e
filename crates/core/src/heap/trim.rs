//! Trim: giving unused memory and addresses back to the device.
//!
//! Only memory whose last use is known to be complete is given back, and none that is pinned:
//! unmapping does not wait for kernels. Private pools keep theirs while they live (I12), and until
//! the device was idle after that: graphs hold their addresses, and may still run. What a block
//! that grows has given up is no graph's any more.

use std::ops::Range;

use super::Heap;
use crate::id::{PoolId, SegmentIx};
use crate::plan::{Intent, Plan, Release, Step};
use crate::policy::{self, SegmentKind};
use crate::pool::{Pool, Pools};
use crate::space::block::{BlockIndex, BlockState};
use crate::space::free_list::FreeList;
use crate::space::segment::Segment;
use crate::vm::handles::HandleAt;

/// How many blocks one plan gives back at most: with the heap's lock held, to claim them takes some
/// 50 us. A trim goes on until there is no plan.
pub(super) const RELEASED_AT_ONCE: usize = 512;

/// A trim that is being planned: what it gives back, with the steps that takes.
#[derive(Debug)]
pub(super) struct Trim<'a> {
    pub(super) heap: &'a mut Heap,
    pub(super) releases: Vec<Release>,
    pub(super) steps: Vec<Step>,
    /// Whether the default pool keeps what it has cached.
    is_of_released: bool,
}

impl<'a> Trim<'a> {
    pub(super) const fn new(heap: &'a mut Heap) -> Self {
        Self { heap, releases: Vec::new(), steps: Vec::new(), is_of_released: false }
    }

    /// Whether this plan gives back as much as one does.
    const fn is_full(&self) -> bool {
        self.releases.len() >= RELEASED_AT_ONCE
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

    pub(super) fn into_plan(self) -> Plan {
        Plan { steps: self.steps, intent: Intent::Trim { releases: self.releases } }
    }

    /// Claims an unfiled block without backing, and adds the unmapping of these of its ranges.
    fn claim_to_unmap(&mut self, index: BlockIndex, ranges: Vec<Range<u64>>) {
        self.heap.space.blocks.set_state(index, BlockState::Claimed);
        self.steps.extend(ranges.into_iter().map(unmap));
        self.releases.push(Release::Aliases { block: index });
    }

    /// Adds the unmapping of what keeps granules from being released, and forgets idle windows that
    /// lead nowhere.
    #[inline(never)]
    pub(super) fn claim_aliases(&mut self) {
        let complete = self.complete_ranges();
        let space = &self.heap.space;
        let windows = space.segments.iter().filter(|(_, segment)| segment.is_window);
        let in_windows = windows.flat_map(|(_, segment)| space.blocks.onward(segment.first));
        let lists = space.lists().iter();
        let unmapped = lists.flat_map(|list| space.blocks.filed_from(list.unmapped[0]));
        for index in in_windows.chain(unmapped).collect::<Vec<_>>() {
            if self.is_full() {
                return;
            }
            let block = self.heap.space.blocks[index];
            let is_idle = block.state == BlockState::IdleWindow
                && self.heap.streams.is_complete(&self.heap.space, index);
            if !is_idle && block.state != BlockState::Unmapped {
                continue;
            }
            let span = self.heap.vm.under(&block);
            let is_whole = is_idle && span.is_whole_window();
            if span.leads_to_any(&complete) {
                let ranges = span.mapped_ranges();
                match block.state {
                    BlockState::Unmapped => self.heap.space.unlink_unmapped(index),
                    _ if is_whole => self.heap.windows().take_idle(index),
                    _ => {}
                }
                self.claim_to_unmap(index, ranges);
            } else if is_whole && span.is_unmapped() {
                self.heap.windows().take_idle(index);
                self.heap.space.blocks.set_state(index, BlockState::Claimed);
                self.heap.windows().finish_unmapping(index);
            }
        }
    }

    /// Where granules of open pools are free at home and their last uses complete, by address.
    fn complete_ranges(&self) -> Vec<Range<u64>> {
        if self.heap.vm.figures().mappings == 0 {
            // Nobody asks where nothing leads anywhere but home.
            return Vec::new();
        }
        let takes = self.takes();
        let is_open = |pools: &Pools<Pool>, list: &FreeList| {
            list.kind == SegmentKind::Mapped && pools.is_open(list) && takes(list)
        };
        let (mut ranges, mut end) = (Vec::new(), 0);
        for (start, index) in self.run_starts(is_open) {
            if start >= end {
                end = self.heap.streams.complete_run_end(&self.heap.space, index);
                let segment = self.heap.space.blocks[index].segment;
                ranges.push(self.heap.vm.span(segment, start..end).whole_handles());
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    /// The free blocks of some lists with which a run may begin that has something to give back,
    /// by address: those of a whole unit or handle, and those beside free blocks of other lists.
    /// However many smaller ones there are, they are not looked at.
    pub(super) fn run_starts(
        &self,
        may_give: impl Fn(&Pools<Pool>, &FreeList) -> bool,
    ) -> Vec<(u64, BlockIndex)> {
        let Heap { space, pools, .. } = &*self.heap;
        let lists = space.lists().iter().filter(|list| may_give(pools, list));
        let has_whole =
            |index| !self.heap.vm.under(&space.blocks[index]).whole_handles().is_empty();
        let starts = lists.flat_map(|list| {
            let unit_bytes = policy::unit_bytes(list.kind, self.heap.config().granule_bytes);
            let filed = list.filed_from(&space.blocks, unit_bytes);
            let whole = filed.filter(|&index| list.kind == SegmentKind::Plain || has_whole(index));
            whole.chain(list.borders.blocks().iter().copied())
        });
        let mut starts: Vec<_> = starts.map(|index| (space.blocks[index].address, index)).collect();
        starts.sort_by_cached_key(|&(address, _)| address);
        starts
    }

    fn is_open(&self, segment: &Segment) -> bool {
        self.heap.pools.is_open(self.heap.space.list(segment.list))
    }

    // Memory and addresses.

    /// Whether the trim is of a list's pool.
    fn takes(&self) -> impl Fn(&FreeList) -> bool + Copy + use<> {
        let is_of_released = self.is_of_released;
        move |list| !is_of_released || list.pool != PoolId::DEFAULT.index
    }

    fn claim_memory(&mut self) {
        let takes = self.takes();
        let gives_back =
            move |pools: &Pools<Pool>, list: &FreeList| pools.gives_back(list) && takes(list);
        let starts = self.run_starts(gives_back);
        for ix in self.segments_that(gives_back) {
            self.claim_segment(ix, within(&starts, &self.heap.space.segments[ix]));
            if self.is_full() {
                return;
            }
        }
        // Last, since giving these back has failed before: nothing waits behind them.
        self.heap.vm.plan_idle_release(None, &mut self.steps);
    }

    /// The segments of some lists, in address order.
    pub(super) fn segments_that(
        &self,
        may_give: impl Fn(&Pools<Pool>, &FreeList) -> bool,
    ) -> Vec<SegmentIx> {
        let Heap { space, pools, .. } = &*self.heap;
        let segments = space.segments.in_address_order();
        let may_give = segments.filter(|(_, one)| may_give(pools, space.list(one.list)));
        may_give.map(|(ix, _)| ix).collect()
    }

    /// Claims what a segment can give back, in which runs may begin with these blocks.
    #[inline(never)]
    pub(super) fn claim_segment(&mut self, ix: SegmentIx, starts: &[(u64, BlockIndex)]) {
        let Segment { address, bytes, first, is_window, .. } = self.heap.space.segments[ix];
        let whole = &self.heap.space.blocks[first];
        if whole.bytes == bytes && whole.state == BlockState::Unmapped {
            // A block that grows keeps its room.
            let is_over = self.is_open(&self.heap.space.segments[ix]);
            if is_over && self.heap.vm.under(whole).is_unmapped() {
                self.heap.space.unlink_unmapped(first);
                self.heap.space.blocks.set_state(first, BlockState::Claimed);
                self.heap.space.segments.withdraw(ix);
                self.releases.push(Release::Segment { segment: ix, step: self.steps.len() });
                self.steps.push(Step::Unreserve { address, bytes });
            }
            return;
        }
        if is_window {
            // Its granules are released at their homes.
            return;
        }
        let mut end = 0;
        for &(start, index) in starts {
            // What a run has left over is cut anew: it is gone through from its first block.
            if start < end {
                continue;
            }
            end = self.heap.streams.complete_run_end(&self.heap.space, index);
            let mut next = index;
            while let range = self.releasable(ix, next)
                && !range.is_empty()
            {
                let claimed = self.heap.space.claim_range(next, range.start, range.end);
                // All its uses are complete; points of different streams would not compare.
                self.heap.space.blocks[claimed].free_after = 0;
                self.release(ix, claimed);
                if self.is_full() {
                    return;
                }
                match self.heap.space.blocks[claimed].next.some() {
                    Some(index) => next = index,
                    None => break,
                }
            }
        }
    }

    /// Adds the release of claimed memory at home.
    #[inline(never)]
    pub(super) fn release(&mut self, ix: SegmentIx, claimed: BlockIndex) {
        let Segment { kind, address, bytes, .. } = self.heap.space.segments[ix];
        match kind {
            SegmentKind::Mapped => {
                let handles = self.claim_backing(claimed);
                self.steps
                    .extend(handles.into_iter().map(|of| Step::Release { granule: of.granule }));
            }
            SegmentKind::Plain => {
                self.heap.space.segments.withdraw(ix);
                self.releases.push(Release::Segment { segment: ix, step: self.steps.len() });
                self.steps.push(Step::Free { address, bytes });
            }
        }
    }

    /// Adds the unmapping of a claimed block at home, and tells the handles behind it.
    pub(super) fn claim_backing(&mut self, claimed: BlockIndex) -> Vec<HandleAt> {
        let block = &self.heap.space.blocks[claimed];
        let handles = self.heap.vm.under(block).handles();
        assert!(!handles.is_empty(), "memory is released where there is none");
        self.steps.push(unmap(block.range()));
        self.releases.push(Release::Backing { block: claimed });
        handles
    }

    /// What can be given back of the run of free blocks that starts at this one.
    pub(super) fn releasable(&self, ix: SegmentIx, index: BlockIndex) -> Range<u64> {
        let start = self.heap.space.blocks[index].address;
        let run = start..self.heap.streams.complete_run_end(&self.heap.space, index);
        match self.heap.space.segments[ix] {
            _ if run.is_empty() => run,
            Segment { kind: SegmentKind::Mapped, .. } => self.heap.vm.span(ix, run).releasable(),
            Segment { address, bytes, .. } => {
                let is_whole = run == (address..address + bytes)
                    && !self.heap.vm.span(ix, run.clone()).is_pinned();
                if is_whole { run } else { start..start }
            }
        }
    }
}

fn unmap(range: Range<u64>) -> Step {
    Step::Unmap { address: range.start, bytes: range.end - range.start }
}

/// Those of some blocks that stand in a segment.
pub(super) fn within<'a>(
    starts: &'a [(u64, BlockIndex)],
    segment: &Segment,
) -> &'a [(u64, BlockIndex)] {
    let first = starts.partition_point(|&(start, _)| start < segment.address);
    let end = starts.partition_point(|&(start, _)| start < segment.address + segment.bytes);
    &starts[first..end]
}

impl Heap {
    /// Plans to give back all that can be given back without waiting; `None` if there is nothing.
    ///
    /// A plan gives back a bounded number of blocks, and addresses only once nothing is mapped
    /// behind them, so: trim until there is nothing, or a plan fails.
    pub fn plan_trim(&mut self) -> Option<Plan> {
        self.plan_trim_of(false)
    }

    /// The same without the default pool, which keeps what it has cached.
    pub fn plan_trim_released(&mut self) -> Option<Plan> {
        self.plan_trim_of(true)
    }

    fn plan_trim_of(&mut self, is_of_released: bool) -> Option<Plan> {
        self.space.end_trails();
        self.windows().send_all_home();
        let unshared = Trim::unsharing(self);
        if unshared.is_some() {
            return unshared;
        }
        let mut trim = Trim { is_of_released, ..Trim::new(self) };
        trim.claim_aliases();
        if trim.steps.is_empty() {
            trim.claim_memory();
        }
        (!trim.steps.is_empty()).then(|| trim.into_plan())
    }
}
