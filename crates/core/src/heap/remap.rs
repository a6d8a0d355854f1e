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
use super::{Heap, Outcome};
use crate::plan::{Intent, Plan, Request, Reuse};
use crate::policy;
use crate::space::Granted;
use crate::space::block::BlockIndex;
use crate::vm::Figures;
use crate::vm::donors::Donors;

impl Heap {
    /// Serves a request by a remap that takes no driver call, if one can be had at a glance.
    ///
    /// Not in private pools: graphs may be captured there, and what a captured stream may take is
    /// for the full request to say.
    #[cold]
    pub(super) fn remap_again(&mut self, request: Request) -> Option<Granted> {
        let granules = request.bytes.div_ceil(self.vm.granule_bytes());
        let mut large_enough = self.space.idle_windows.of_size(request.list, granules as u32);
        let list = self.space.list(request.list);
        if large_enough.next().is_none() || !self.pools.is_open(list) {
            return None;
        }
        drop(large_enough);
        if list.overlooked(&self.space.blocks, request.bytes).is_some() {
            return None;
        }
        self.space.end_trails();
        let donors = self.search(request).donors(true);
        if donors.ordered_bytes() < granules * self.vm.granule_bytes() {
            return None;
        }
        let Window { index, fit } = self.search(request).idle_window(&donors, Stale::Now, 1)?;
        let remap = self.vm.plan_remap(&self.space.blocks[index], fit, &donors)?;
        let taken = self.windows().claim(index, &remap);
        self.windows().finish_remap(request, index, &taken);
        Some(self.occupy(index, request))
    }

    /// Serves a request by a remap, or plans what has to be done first. There are granules enough.
    /// `None` if addresses have to be reserved.
    pub(super) fn remap(&mut self, request: Request, donors: &Donors) -> Option<Outcome> {
        let mut window = self.search(request).best_window(donors, Stale::Later)?;
        if window.fit.is_stale() && !self.streams.is_complete(&self.space, window.index) {
            // Worth a fence: if it has passed already, the window can be used.
            if request.reuse == Reuse::MayWait
                && let Some(plan) = self.plan_fence(window.index, request)
            {
                return Some(Outcome::Plan(plan));
            }
            window = self.search(request).best_window(donors, Stale::Now)?;
        }
        let Window { index, fit } = window;
        if fit.is_stale() {
            let stale = self.vm.under(&self.space.blocks[index]).stale(&fit);
            self.windows().take_idle(index);
            return Some(Outcome::Plan(Trim::unmapping(self, [(index, stale)])));
        }
        if let Some(plan) = self.plan_within_budget(request, fit.calls) {
            return Some(Outcome::Plan(plan));
        }
        let remap = self.vm.plan_remap(&self.space.blocks[index], fit, donors)?;
        let taken = self.windows().claim(index, &remap);
        if remap.steps.is_empty() {
            self.windows().finish_remap(request, index, &taken);
            return Some(Outcome::Granted(self.occupy(index, request)));
        }
        let intent = Intent::Remap { request, window: index, donors: taken };
        Some(Outcome::Plan(Plan { steps: remap.steps, intent }))
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
                let ranges = self.vm.under(block).mapped_ranges();
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
    fn plan_within_budget(&mut self, request: Request, calls: usize) -> Option<Plan> {
        let Figures { granules, mappings, .. } = self.vm.figures();
        let over = policy::mappings_over_budget(granules, mappings, calls);
        if over == 0 {
            return None;
        }
        let bytes = over as u64 * self.vm.granule_bytes();
        if let Some(plan) = self.plan_eviction_of(bytes, policy::WINDOWS_TO_PASS_OVER) {
            return Some(plan);
        }
        let oldest =
            self.space.idle_windows.oldest().filter(|_| request.reuse == Reuse::MayWait)?;
        self.plan_fence(oldest, request)
    }

    /// Plans a fence that will tell whether the last use through a window is over.
    pub(super) fn plan_fence(&mut self, index: BlockIndex, request: Request) -> Option<Plan> {
        let user = self.space.list(request.list).stream;
        self.streams.plan_fence(&self.space, index, user)
    }
}
