//! Remaps: a request that fits nowhere is served by free granules, mapped side by side in a window.
//!
//! Taken are handles of which every byte is free and none pinned, of the default pool and of open
//! ones: graphs hold the addresses of a private pool. I10: the request's stream is ordered after
//! the last use of what it takes. When a window is free its granules go home at once (`free`), and
//! it keeps its mappings: as long as they lead to granules that are free, the next remap there
//! costs no driver call.
//!
//! Of windows that serve equally well the smallest is taken, at the lowest address: not the one
//! used last, which would depend on what the program did before. With the same memory free, the
//! same request is served by the same granules, and a program that repeats itself settles.

use super::search::{Stale, Window};
use super::trim::Trim;
use super::windows::Windows;
use super::{Heap, Outcome, Reuse};
use crate::fence::Fence;
use crate::plan::{Intent, Plan, Request, Step};
use crate::policy;
use crate::space::Granted;
use crate::space::block::{BlockIndex, BlockState};
use crate::vm::donors::{Donors, Picked};
use crate::vm::remap::Remap;

impl Heap {
    /// Serves a request by a remap that takes no driver call, if one can be had at a glance.
    ///
    /// Not in private pools: graphs may be captured there, and what a captured stream may take is
    /// for the full request to say.
    #[cold]
    pub(super) fn remap_again(&mut self, request: Request) -> Option<Granted> {
        let granules = self.vm.granules_for(request.bytes)?;
        let mut large_enough = self.space.idle_windows.of_size(request.list, granules as u32);
        if large_enough.next().is_none() || !self.is_open(request.list) {
            return None;
        }
        drop(large_enough);
        let list = self.space.list(request.list);
        if list.overlooked(&self.space.blocks, request.bytes).is_some() {
            return None;
        }
        let donors = self.search(request).donors(Reuse::Ordered, true);
        if donors.ordered_bytes() < granules as u64 * self.config.granule_bytes {
            return None;
        }
        let window = self.search(request).idle_window(granules, &donors, Stale::Now, 1)?;
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
        let mut window = self.search(request).best_window(donors, Stale::Later)?;
        if window.fit.is_stale() && !self.streams.is_complete(&self.space, window.index) {
            // Worth a fence: if it has passed already, the window can be used.
            if reuse == Reuse::MayWait
                && let Some(plan) = self.plan_fence_of(window.index, request)
            {
                return Some(Outcome::Plan(plan));
            }
            window = self.search(request).best_window(donors, Stale::Now)?;
        }
        let Window { index, fit } = window;
        if fit.is_stale() {
            let stale = self.vm.stale_ranges(&fit, self.space.blocks[index].address);
            self.windows().take_idle(index);
            return Some(Outcome::Plan(Trim::unmapping(self, [(index, stale)])));
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

    // Carrying it out.

    /// The blocks and the page table, to change both together.
    pub(super) const fn windows(&mut self) -> Windows<'_> {
        Windows { space: &mut self.space, vm: &mut self.vm }
    }

    /// Claims a window, and what a remap takes at home: as few blocks as possible.
    fn claim_remap(
        &mut self,
        index: BlockIndex,
        remap: &Remap,
        donors: &Donors,
    ) -> Vec<BlockIndex> {
        self.windows().claim(index, remap.bytes);
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
            let is_whole = block.bytes.is_multiple_of(self.config.granule_bytes);
            assert!(is_whole, "a remap takes part of a granule");
            self.stats.classes[class].reserved_bytes.take(block.bytes);
            self.stats.granule_remaps += block.bytes / self.config.granule_bytes;
            if block.is_window {
                self.windows().make_idle(index);
            } else {
                self.space.blocks.set_state(index, BlockState::Remapped);
                self.vm.leave_home(block.segment, &block.range(), index);
            }
        }
        let maps = steps.iter().map(|step| match *step {
            Step::Map { bytes, .. } => bytes / self.config.granule_bytes,
            _ => 0,
        });
        self.affordable_remaps = self.affordable_remaps.saturating_sub(maps.sum());
        let block = &self.space.blocks[window];
        assert!(block.is_window, "memory is remapped to what is no window");
        assert!(block.state == BlockState::Claimed, "memory is remapped to a window in use");
        self.vm.finish_remap(block.segment, &block.range(), steps);
        let list = self.space.list(request.list);
        let (class, stream) = (list.class as usize, list.stream);
        let block = &mut self.space.blocks[window];
        self.stats.classes[class].reserved_bytes.add(block.bytes);
        // What is left over is free to the request's stream at once; to others from its next fence
        // on, which covers those of the streams it waited for.
        (block.list, block.free_after) = (request.list, self.streams.at(stream).free_after());
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
                if !self.streams.is_complete(&self.space, index) || ranges.is_empty() {
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
        (!taken.is_empty()).then(|| Trim::unmapping(self, taken))
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
        if state.is_retired || state.is_passing || free_after <= state.recorded {
            return None;
        }
        let fence = Fence { stream, point: state.issue() };
        let steps = vec![Step::Record { fence }];
        Some(Plan { steps, intent: Intent::Order { user, fences: Vec::new() } })
    }
}
