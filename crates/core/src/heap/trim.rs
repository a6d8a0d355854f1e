//! Trim: giving unused memory and addresses back to the device.
//!
//! Only memory whose last use is known to be complete is given back, and none that is pinned:
//! unmapping does not wait for kernels. Private pools keep theirs while they live (I12), and until
//! the device was idle after that: graphs hold their addresses, and may still run. What a block
//! that grows has given up is no graph's any more.

use std::ops::Range;

use super::Heap;
use crate::fence::Points;
use crate::id::{ListIx, PoolId, SegmentIx};
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

/// Whose free memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// What may be given back: that of open pools, and what blocks that grow have given up.
    All,
    /// The same without the default pool, which keeps what it has cached.
    Released,
    /// Mapped memory of open pools.
    Open,
    /// That, and what blocks that grow have given up, except the one that wants it.
    AllFor(ListIx),
    /// What blocks that grow have given up.
    GivenUp,
}

impl Whose {
    /// Whether free memory of a list may be taken.
    pub(super) fn takes_from(self, pools: &Pools<Pool>, list: &FreeList) -> bool {
        let is_mapped = list.kind == SegmentKind::Mapped;
        match self {
            Whose::All => pools.gives_back(list),
            Whose::Released => pools.gives_back(list) && list.pool != PoolId::DEFAULT.index,
            Whose::Open => is_mapped && pools.is_open(list),
            Whose::AllFor(_) => is_mapped && pools.gives_back(list),
            Whose::GivenUp => pools.is_growing(list),
        }
    }
}

/// How much memory is claimed.
pub(super) struct Missing<'a> {
    /// How many bytes are missing.
    pub(super) bytes: u64,
    /// How far the last handle may reach beyond them.
    pub(super) beyond_bytes: u64,
    /// Only what has been free since then.
    pub(super) since: Option<&'a Points>,
    /// How many ranges one plan has at most.
    pub(super) most: usize,
}

/// A trim that is being planned: what it gives back, with the steps that takes.
#[derive(Debug)]
pub(super) struct Trim<'a> {
    pub(super) heap: &'a mut Heap,
    pub(super) releases: Vec<Release>,
    pub(super) steps: Vec<Step>,
    whose: Whose,
}

impl<'a> Trim<'a> {
    pub(super) const fn of(heap: &'a mut Heap, whose: Whose) -> Self {
        Self { heap, releases: Vec::new(), steps: Vec::new(), whose }
    }

    /// Whether this plan gives back as much as one does.
    pub(super) const fn is_full(&self) -> bool {
        self.releases.len() >= RELEASED_AT_ONCE
    }

    /// A plan to unmap these ranges of unfiled blocks without backing.
    pub(super) fn unmapping(
        heap: &'a mut Heap,
        blocks: impl IntoIterator<Item = (BlockIndex, Vec<Range<u64>>)>,
    ) -> Plan {
        let mut trim = Self::of(heap, Whose::All);
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

    /// Adds the unmapping of what keeps granules from being released, and of idle windows whose
    /// pool is gone; and forgets those that lead nowhere.
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
            let (is_whole, is_unmapped) = (is_idle && span.is_whole_window(), span.is_unmapped());
            // Nobody asks for one whose pool is gone.
            let of = self.heap.space.of_segment(block.segment);
            let has_ended = is_idle && Whose::Released.takes_from(&self.heap.pools, of);
            if !is_unmapped && (has_ended || span.leads_to_any(&complete)) && !span.is_pinned() {
                let ranges = span.mapped_ranges();
                match block.state {
                    BlockState::Unmapped => self.heap.space.unlink_unmapped(index),
                    _ if is_whole => self.heap.windows().take_idle(index),
                    _ => {}
                }
                self.claim_to_unmap(index, ranges);
            } else if is_whole && is_unmapped {
                self.heap.windows().take_idle(index);
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
        let (mut ranges, mut end) = (Vec::new(), 0);
        for (start, index) in self.run_starts() {
            let segment = self.heap.space.blocks[index].segment;
            if start >= end && self.heap.space.segments[segment].kind == SegmentKind::Mapped {
                end = self.heap.streams.unused_run_end(&self.heap.space, index, None);
                ranges.push(self.heap.vm.span(segment, start..end).whole_handles());
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    /// The free blocks with which a run may begin that has something to take, by address: those of
    /// a whole unit or handle, and those beside free blocks of other lists. However many smaller
    /// ones there are, they are not looked at.
    pub(super) fn run_starts(&self) -> Vec<(u64, BlockIndex)> {
        let Heap { space, vm, pools, .. } = &*self.heap;
        let lists = space.lists().iter().filter(|list| self.whose.takes_from(pools, list));
        let has_whole = |index| !vm.under(&space.blocks[index]).whole_handles().is_empty();
        let starts = lists.flat_map(|list| {
            let filed =
                list.filed_from(&space.blocks, policy::unit_bytes(list.kind, vm.granule_bytes()));
            let whole = filed.filter(|&index| list.kind == SegmentKind::Plain || has_whole(index));
            whole.chain(list.borders.blocks().iter().copied())
        });
        let mut starts: Vec<_> = starts.map(|index| (space.blocks[index].address, index)).collect();
        starts.sort_by_cached_key(|&(address, _)| address);
        starts
    }

    // Memory and addresses.

    /// Claims free memory at home, as far as it is missing, and has each piece taken: whole handles
    /// and whole plain segments.
    #[inline(never)]
    pub(super) fn claim_free(
        &mut self,
        mut missing: Missing<'_>,
        take: fn(&mut Self, SegmentIx, BlockIndex),
    ) {
        let mut end = 0;
        for (start, index) in self.run_starts() {
            if missing.bytes == 0 || self.releases.len() >= missing.most {
                return;
            }
            // What a run has left over is cut anew: it is gone through from its first block.
            if start < end {
                continue;
            }
            let ix = self.heap.space.blocks[index].segment;
            let Segment { list, is_window, .. } = self.heap.space.segments[ix];
            if is_window || self.whose == Whose::AllFor(list) {
                continue;
            }
            end = self.heap.streams.unused_run_end(&self.heap.space, index, missing.since);
            let mut next = index.some();
            while let Some(index) = next.filter(|_| missing.bytes > 0)
                && self.releases.len() < missing.most
                && self.heap.space.blocks[index].address < end
                && let free = self.releasable(ix, self.heap.space.blocks[index].address..end)
                && !free.is_empty()
            {
                let range = self.first_of(ix, free, &missing);
                if range.is_empty() {
                    next = self.heap.space.blocks[index].next.some();
                    continue;
                }
                let claimed = self.heap.space.claim_range(index, range.start, range.end);
                // All its uses are complete; points of different streams would not compare.
                self.heap.space.blocks[claimed].free_after = 0;
                missing.bytes = missing.bytes.saturating_sub(range.end - range.start);
                take(self, ix, claimed);
                next = self.heap.space.blocks[claimed].next.some();
            }
        }
    }

    /// What of a run of free blocks can be taken, up to the first that cannot.
    fn releasable(&self, ix: SegmentIx, run: Range<u64>) -> Range<u64> {
        let Segment { kind, address, bytes, .. } = self.heap.space.segments[ix];
        let span = self.heap.vm.span(ix, run.clone());
        match kind {
            SegmentKind::Mapped => span.releasable(),
            SegmentKind::Plain if run == (address..address + bytes) && !span.is_pinned() => run,
            SegmentKind::Plain => run.end..run.end,
        }
    }

    /// As much of that as is missing.
    fn first_of(&self, ix: SegmentIx, free: Range<u64>, missing: &Missing<'_>) -> Range<u64> {
        let Missing { bytes, beyond_bytes, .. } = *missing;
        match self.heap.space.segments[ix].kind {
            SegmentKind::Mapped => self.heap.vm.span(ix, free).first_handles(bytes, beyond_bytes),
            SegmentKind::Plain if free.end - free.start <= bytes.saturating_add(beyond_bytes) => {
                free
            }
            SegmentKind::Plain => free.end..free.end,
        }
    }

    /// Adds the addresses of segments in which nothing is mapped. A block that grows keeps its
    /// room.
    fn claim_addresses(&mut self) {
        let Heap { space, pools, .. } = &*self.heap;
        let takes = |list| self.whose.takes_from(pools, space.list(list));
        let all = space.segments.in_address_order();
        let taken = all.filter(|(_, segment)| takes(segment.list)).map(|(ix, _)| ix);
        for ix in taken.collect::<Vec<_>>() {
            let Segment { address, bytes, first, list, .. } = self.heap.space.segments[ix];
            let whole = &self.heap.space.blocks[first];
            if whole.bytes == bytes
                && whole.state == BlockState::Unmapped
                && self.heap.vm.under(whole).is_unmapped()
                && self.heap.pools.is_open(self.heap.space.list(list))
                && !self.is_full()
            {
                self.heap.space.claim_unmapped(first, bytes);
                self.heap.space.segments.withdraw(ix);
                self.releases.push(Release::Segment { segment: ix, step: self.steps.len() });
                self.steps.push(Step::Unreserve { address, bytes });
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
}

fn unmap(range: Range<u64>) -> Step {
    Step::Unmap { address: range.start, bytes: range.end - range.start }
}

impl Heap {
    /// Plans to give back all that can be given back without waiting; `None` if there is nothing.
    ///
    /// A plan gives back a bounded number of blocks, and addresses only once nothing is mapped
    /// behind them, so: trim until there is nothing, or a plan fails.
    pub fn plan_trim(&mut self) -> Option<Plan> {
        self.plan_trim_of(Whose::All)
    }

    /// The same without the default pool, which keeps what it has cached.
    pub fn plan_trim_released(&mut self) -> Option<Plan> {
        self.plan_trim_of(Whose::Released)
    }

    fn plan_trim_of(&mut self, whose: Whose) -> Option<Plan> {
        self.windows().send_all_home();
        let unshared = Trim::unsharing(self);
        if unshared.is_some() {
            return unshared;
        }
        let mut trim = Trim::of(self, whose);
        trim.claim_aliases();
        if trim.steps.is_empty() {
            let (bytes, most) = (u64::MAX, RELEASED_AT_ONCE);
            let all = Missing { bytes, beyond_bytes: 0, since: None, most };
            trim.claim_free(all, Trim::release);
            trim.claim_addresses();
            if !trim.is_full() {
                // Last, since giving these back has failed before: nothing waits behind them.
                trim.heap.vm.plan_idle_release(None, &mut trim.steps);
            }
        }
        (!trim.steps.is_empty()).then(|| trim.into_plan())
    }
}
