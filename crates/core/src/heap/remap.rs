//! Remaps: a request that fits nowhere is served by free granules, mapped side by side in a window.
//!
//! Taken are handles of which every byte is free and none pinned, of the default pool and of open
//! ones: graphs hold the addresses of a private pool. I10: the request's stream is ordered after the
//! last use of what it takes. When a window is free its granules go home at once (`free`), and it
//! keeps its mappings: as long as they lead to granules that are free, the next remap there costs no
//! driver call.
//!
//! Of windows that serve equally well the smallest is taken, at the lowest address: not the one used
//! last, which would depend on what the program did before. With the same memory free, the same
//! request is served by the same granules, and a program that repeats itself settles.

use super::{Heap, Outcome, Reuse};
use crate::fence::{Fence, StreamOrder};
use crate::plan::{Intent, Plan, Request, Step};
use crate::policy::{self, CrossStream, SegmentKind};
use crate::space::Granted;
use crate::space::block::{BlockIndex, BlockState};
use crate::space::free_list::ListIx;
use crate::space::idle_windows::WindowKey;
use crate::vm::donors::{Donor, Donors, Picked};
use crate::vm::remap::Remap;
use crate::vm::window::WindowFit;

/// A window that a request could be served in.
#[derive(Debug)]
struct Window {
    index: BlockIndex,
    fit: WindowFit,
}

/// Which windows may have to be unmapped in part before they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stale {
    /// Those that can be now.
    Now,
    /// Also those whose last use is not known to be complete.
    Later,
}

impl Heap {
    /// Serves a request by a remap that takes no driver call, if one can be had at a glance.
    ///
    /// Not in private pools: graphs may be captured there, and what a captured stream may take is
    /// for the full request to say.
    #[cold]
    pub(super) fn remap_again(&mut self, request: Request) -> Option<Granted> {
        let granules = self.vm.granules_for(request.bytes)?;
        let mut large_enough = self.space.idle_windows.from_size(request.list, granules as u32);
        if large_enough.next().is_none() || !self.is_open(request.list) {
            return None;
        }
        drop(large_enough);
        let list = self.space.list(request.list);
        if list.overlooked(&self.space.blocks, request.bytes).is_some() {
            return None;
        }
        let stream = list.stream;
        let donors = self.donors_in(request, Reuse::Ordered, Some(stream));
        if donors.ordered_bytes() < granules as u64 * self.config.granule_bytes {
            return None;
        }
        let window = self.idle_window(request, granules, &donors, Stale::Now, 1)?;
        let remap = self.vm.remap(window.fit, Vec::new());
        let taken = self.claim_remap(window.index, &remap, &donors);
        self.finish_remap(request, window.index, &[], &taken);
        Some(self.occupy(window.index, request))
    }

    /// Serves a request by a remap, or plans what has to be done first. There are granules enough.
    /// `None` if addresses have to be reserved.
    pub(super) fn remap(
        &mut self,
        request: Request,
        reuse: Reuse,
        donors: &Donors,
    ) -> Option<Outcome> {
        let mut window = self.best_window(request, donors, Stale::Later)?;
        if window.fit.is_stale() && !self.is_complete(window.index) {
            // Worth a fence: if it has passed already, the window can be used.
            if reuse == Reuse::MayWait
                && let Some(plan) = self.plan_fence_of(window.index, request)
            {
                return Some(Outcome::Plan(plan));
            }
            window = self.best_window(request, donors, Stale::Now)?;
        }
        let Window { index, fit } = window;
        if fit.is_stale() {
            let stale = self.vm.stale_ranges(&fit, self.space.blocks[index].address);
            self.space.idle_windows.remove(self.window_key(index));
            return Some(Outcome::Plan(self.plan_to_unmap(index, stale)));
        }
        if let Some(plan) = self.plan_within_budget(request, reuse, fit.calls) {
            return Some(Outcome::Plan(plan));
        }
        let picked: Vec<Picked> = self.vm.pick(&fit, donors)?;
        let remap = self.vm.remap(fit, picked);
        let taken = self.claim_remap(index, &remap, donors);
        if remap.is_mapped() {
            self.finish_remap(request, index, &[], &taken);
            return Some(Outcome::Granted(self.occupy(index, request)));
        }
        let steps = self.vm.remap_steps(self.space.blocks[index].address, &remap);
        let intent = Intent::Remap { request, window: index, donors: taken };
        Some(Outcome::Plan(Plan { steps, intent }))
    }

    // What it takes.

    /// The free memory from which a request may take whole handles.
    pub(super) fn donors(&self, request: Request, reuse: Reuse) -> Donors {
        self.donors_in(request, reuse, None)
    }

    /// The same, of one stream or of all.
    fn donors_in(&self, request: Request, reuse: Reuse, stream: Option<u32>) -> Donors {
        let mut donors = Vec::with_capacity(policy::DONORS);
        let user = self.space.list(request.list).stream;
        for (at, list) in self.space.lists().iter().enumerate() {
            let is_among = list.kind == SegmentKind::Mapped
                && stream.is_none_or(|stream| list.stream == stream)
                && self.is_open(ListIx(at as u32));
            if !is_among {
                continue;
            }
            for index in list.filed_from(&self.space.blocks, self.config.granule_bytes) {
                let free = &self.space.blocks[index];
                let (block, segment) = (index, free.segment);
                let whole = self.vm.whole_handles(segment, free.range());
                if whole.is_empty() {
                    continue;
                }
                if let Some(is_ordered) = self.is_ordered(index, list.stream, user, reuse) {
                    let is_foreign = list.stream != user;
                    donors.extend(self.vm.unpinned(whole).map(|part| Donor {
                        block,
                        segment,
                        start: part.start,
                        end: part.end,
                        is_foreign,
                        is_ordered,
                    }));
                }
            }
        }
        Donors::new(donors)
    }

    /// Whether a stream may take of a free block at once; `None` if not even after a wait.
    fn is_ordered(&self, index: BlockIndex, owner: u32, user: u32, reuse: Reuse) -> Option<bool> {
        let is_over = self.is_complete(index);
        if reuse == Reuse::OwnStream {
            // Captured work runs later, on any stream: only memory that nobody uses is safe.
            return is_over.then_some(true);
        }
        if is_over || owner == user {
            return Some(true);
        }
        match self.stream_order(index, user) {
            _ if self.config.cross_stream == CrossStream::Never => None,
            StreamOrder::Ordered => Some(true),
            StreamOrder::Recorded | StreamOrder::Unrecorded => Some(false),
            StreamOrder::Never => None,
        }
    }

    // Where to.

    /// The window in which a request is served with the fewest driver calls; `None` if addresses
    /// have to be reserved first.
    fn best_window(&self, request: Request, donors: &Donors, stale: Stale) -> Option<Window> {
        let granules = self.vm.granules_for(request.bytes)?;
        let most = granules / policy::WORTH_UNMAPPING + 1;
        let idle = self.idle_window(request, granules, donors, stale, most);
        let unmapped = idle.or_else(|| self.unmapped_window(request, granules));
        unmapped.or_else(|| self.idle_window(request, granules, donors, Stale::Now, usize::MAX))
    }

    /// A window of addresses that lead nowhere, with room for all of the last handle after it.
    fn unmapped_window(&self, request: Request, granules: usize) -> Option<Window> {
        let room = self.vm.room_for_last_handle_bytes();
        let bytes = granules as u64 * self.config.granule_bytes + room;
        let mut unmapped = self.space.unmapped_blocks(request.list, true);
        let index = unmapped.find(|&index| self.space.blocks[index].bytes >= bytes)?;
        Some(Window { index, fit: self.vm.fit_unmapped(granules, room) })
    }

    /// The idle window that costs the fewest driver calls, and fewer than `most`.
    fn idle_window(
        &self,
        request: Request,
        granules: usize,
        donors: &Donors,
        stale: Stale,
        most: usize,
    ) -> Option<Window> {
        let mut best: Option<Window> = None;
        let large_enough = self.space.idle_windows.from_size(request.list, granules as u32);
        for index in large_enough.take(policy::windows_to_look_at(granules)) {
            let most = best.as_ref().map_or(most, |best| best.fit.calls);
            let can_unmap = stale == Stale::Later || self.is_complete(index);
            let block = &self.space.blocks[index];
            let (segment, address) = (block.segment, block.address);
            let fit = self.vm.fit_window(segment, address, granules, donors, can_unmap, most);
            if let Some(fit) = fit
                && self.vm.has_picks(&fit, donors)
            {
                let is_good = policy::is_good_enough(fit.calls, granules);
                best = Some(Window { index, fit });
                if is_good {
                    break;
                }
            }
        }
        best
    }

    pub(crate) fn window_key(&self, index: BlockIndex) -> WindowKey {
        let block = &self.space.blocks[index];
        let granules = (block.bytes / self.config.granule_bytes) as u32;
        WindowKey { list: block.list, granules, address: block.address }
    }

    // Carrying it out.

    /// Claims a window, and what a remap takes at home: as few blocks as possible.
    fn claim_remap(
        &mut self,
        index: BlockIndex,
        remap: &Remap,
        donors: &Donors,
    ) -> Vec<BlockIndex> {
        if self.space.blocks[index].state == BlockState::IdleWindow {
            self.space.idle_windows.remove(self.window_key(index));
            if self.space.blocks[index].bytes > remap.bytes {
                self.space.blocks.cut(index, remap.bytes);
            }
            self.space.blocks.set_state(index, BlockState::Claimed);
        } else {
            self.space.claim_unmapped(index, remap.bytes);
            let block = &self.space.blocks[index];
            self.vm.add_window(block.segment, &block.range());
        }
        let mut claimed = Vec::with_capacity(remap.taken.len());
        let mut left = remap.taken.as_slice();
        // From the last to the first: what is cut off a block stands behind what it keeps.
        while let Some((last, mut before)) = left.split_last() {
            let mut start = last.start;
            let donor = donors.holding(last.start, last.end).copied();
            assert!(donor.is_some(), "a remap takes what no donor has");
            if let Some(donor) = donor {
                while let Some((next, others)) = before.split_last()
                    && next.end == start
                    && next.start >= donor.start
                {
                    start = next.start;
                    before = others;
                }
                claimed.push(self.space.claim_range(donor.block, start, last.end));
            }
            left = before;
        }
        claimed
    }

    /// All granules of a remap are mapped and accessible in its window, the last by these steps.
    pub(super) fn finish_remap(
        &mut self,
        request: Request,
        window: BlockIndex,
        steps: &[Step],
        taken: &[BlockIndex],
    ) {
        for &index in taken {
            let class = self.space.list_of(index).class as usize;
            let block = self.space.blocks[index];
            self.stats.classes[class].reserved_bytes.take(block.bytes);
            self.stats.granule_remaps += block.bytes / self.config.granule_bytes;
            if block.is_window {
                self.make_idle(index);
            } else {
                self.space.blocks.set_state(index, BlockState::Remapped);
                self.vm.leave_home(block.segment, &block.range(), index);
            }
        }
        let block = &mut self.space.blocks[window];
        self.vm.finish_remap(block.segment, &block.range(), steps);
        let list = self.space.list(request.list);
        let (class, stream) = (list.class as usize, list.stream);
        let block = &mut self.space.blocks[window];
        self.stats.classes[class].reserved_bytes.add(block.bytes);
        // What is left over is free to the request's stream at once; to others from its next fence
        // on, which covers those of the streams it waited for.
        (block.list, block.free_after) = (request.list, self.streams.at(stream).free_after());
    }

    /// Makes a claimed block of a segment of windows idle: whole windows in it can be used again.
    pub(super) fn make_idle(&mut self, index: BlockIndex) {
        let block = self.space.blocks[index];
        // From the last window in it to the first.
        for start in self.vm.windows_within(block.segment, &block.range()).into_iter().rev() {
            let part = self.space.blocks.cut(index, start - block.address);
            self.make_part_idle(part);
        }
        self.make_part_idle(index);
    }

    /// Makes a block within one window idle, joined with the idle parts around it that were used in
    /// the same stream's order, or not at all.
    fn make_part_idle(&mut self, index: BlockIndex) {
        let mut index = index;
        self.space.blocks.set_state(index, BlockState::IdleWindow);
        let block = self.space.blocks[index];
        if self.vm.is_unmapped(block.segment, &block.range()) {
            let list = self.space.segments[block.segment].list;
            let block = &mut self.space.blocks[index];
            (block.list, block.free_after) = (list, 0);
        }
        if self.joins_idle(index, block.next) {
            self.space.blocks.absorb_next(index);
        }
        if self.joins_idle(block.previous, index) {
            self.space.blocks.absorb_next(block.previous);
            index = block.previous;
        }
        let block = &self.space.blocks[index];
        if self.vm.is_whole_window(block.segment, &block.range()) {
            self.space.idle_windows.insert(self.window_key(index), index);
            let most = 2 * self.vm.mapping_count() + policy::WINDOWS_TO_PASS_OVER;
            self.space.idle_windows.tidy(most);
        }
    }

    /// Whether two neighbours are idle parts of one window that go together.
    fn joins_idle(&self, first: BlockIndex, second: BlockIndex) -> bool {
        let idle = |index: BlockIndex| {
            let block = index.some().map(|index| self.space.blocks[index]);
            block.filter(|block| block.state == BlockState::IdleWindow)
        };
        let (Some(first), Some(second)) = (idle(first), idle(second)) else { return false };
        first.list == second.list && !self.vm.is_window_start(second.segment, second.address)
    }

    // The budget of mappings.

    /// Plans to unmap windows whose use is over: all of them, for when the driver has no mappings
    /// left. `None` if there are none.
    pub fn plan_eviction(&mut self) -> Option<Plan> {
        self.plan_eviction_of(u64::MAX, usize::MAX)
    }

    /// Plans to unmap up to so many bytes of idle windows, and the rest of the same ones: of the
    /// oldest. Passes over so many that are not to be had.
    fn plan_eviction_of(&mut self, bytes: u64, patience: usize) -> Option<Plan> {
        let mut windows = std::mem::take(&mut self.space.idle_windows);
        let (evicted, passed_over) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let mut taken = Vec::new();
        windows.take_oldest(
            || evicted.get() < bytes && passed_over.get() < patience,
            |index| {
                let block = &self.space.blocks[index];
                let ranges = self.vm.mapped_ranges(block.segment, &block.range());
                if !self.is_complete(index) || ranges.is_empty() {
                    // A slow stream holds up no other's.
                    passed_over.set(passed_over.get() + 1);
                    return false;
                }
                let mapped: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                evicted.set(evicted.get() + mapped);
                taken.push((index, ranges));
                true
            },
        );
        self.space.idle_windows = windows;
        let (mut releases, mut steps) = (Vec::new(), Vec::new());
        for (index, ranges) in taken {
            self.claim_to_unmap(index, ranges, &mut releases, &mut steps);
        }
        (!releases.is_empty()).then_some(Plan { steps, intent: Intent::Trim { releases } })
    }

    /// Plans to keep within the budget of mappings before a remap. Where the uses of the oldest
    /// windows are not known to be over, only a fence is recorded that will tell.
    fn plan_within_budget(&mut self, request: Request, reuse: Reuse, calls: usize) -> Option<Plan> {
        let over = self.vm.mappings_over_budget(calls);
        if over == 0 {
            return None;
        }
        let bytes = over as u64 * self.config.granule_bytes;
        if let Some(plan) = self.plan_eviction_of(bytes, policy::WINDOWS_TO_PASS_OVER) {
            return Some(plan);
        }
        let oldest = self.space.idle_windows.oldest().filter(|_| reuse == Reuse::MayWait)?;
        self.plan_fence_of(oldest, request)
    }

    /// Plans to record a fence that will tell whether the last use through a window is over; `None`
    /// if one is recorded.
    pub(super) fn plan_fence_of(&mut self, index: BlockIndex, request: Request) -> Option<Plan> {
        let free_after = self.space.blocks[index].free_after;
        let stream = self.streams.id_at(self.space.list_of(index).stream);
        let user = self.streams.id_at(self.space.list(request.list).stream);
        let state = self.streams.at_mut(stream.index);
        if state.is_retired || free_after <= state.recorded {
            return None;
        }
        let fence = Fence { stream, point: state.issue() };
        let steps = vec![Step::Record { fence }];
        Some(Plan { steps, intent: Intent::Order { user, fences: Vec::new() } })
    }
}
