//! Remaps: a request that fits nowhere is served by free granules, mapped side by side in a window.
//!
//! Taken are handles of which every byte is free and none pinned, of the default pool and of open
//! ones, and by a private pool its own. I10: the request's stream is ordered after the last use of
//! what it takes. When a window is free its granules go home at once (`free`), and it keeps its
//! mappings: as long as they lead to granules that are free, the next remap there costs no driver
//! call. Those of a private pool stay until it is released (I12).
//!
//! Of windows that serve equally well the smallest is taken, at the lowest address: not the one
//! used last, which would depend on what the program did before. With the same memory free, the
//! same request is served by the same granules, and a program that repeats itself settles.

use super::search::Window;
use super::trim::{RELEASED_AT_ONCE, Trim};
use super::{Heap, Outcome};
use crate::plan::{Intent, Plan, Request, Reuse};
use crate::policy;
use crate::space::block::BlockIndex;
use crate::space::{Granted, Space};
use crate::vm::donors::Donors;
use crate::vm::span::Span;
use crate::vm::{Figures, PageTable};

impl Heap {
    /// Serves a request by a remap that takes no driver call, if one can be had at a glance.
    ///
    /// Not in private pools: graphs may be captured there, and what a captured stream may take is
    /// for the full request to say.
    #[cold]
    pub(super) fn remap_again(&mut self, request: Request) -> Option<Granted> {
        let granules = request.bytes.div_ceil(self.vm.granule_bytes());
        let Space { idle_windows, blocks, .. } = &self.space;
        let list = self.space.list(request.list);
        if idle_windows.of_size(request.list, granules as u32).next().is_none()
            || !self.pools.is_open(list)
            || list.overlooked(blocks, request.bytes).is_some()
        {
            return None;
        }
        self.space.end_trails();
        let donors = self.search(request).donors(true);
        if donors.ordered_bytes() < granules * self.vm.granule_bytes() {
            return None;
        }
        let Window { index, fit } = self.search(request).idle_window(&donors, 1)?;
        let remap = self.vm.plan_remap(&self.space.blocks[index], fit, &donors)?;
        let taken = self.windows().claim(index, &remap);
        self.windows().finish_remap(request.list, index, &taken);
        Some(self.occupy(index, request))
    }

    /// Serves a request by a remap, or plans what has to be done first. There are granules enough.
    /// `None` if addresses have to be reserved.
    pub(super) fn remap(&mut self, request: Request, donors: &Donors) -> Option<Outcome> {
        let search = self.search(request);
        let idle = search.idle_window(donors, usize::MAX);
        let Window { index, fit } = idle.or_else(|| search.unmapped_window())?;
        if !is_within_budget(&self.vm, fit.calls) {
            if let Some(plan) = self.plan_fewer_mappings(request) {
                return Some(Outcome::Plan(plan));
            }
            // Those of a private pool stay. It grows.
            if !self.pools.is_open(self.space.list(request.list)) {
                return None;
            }
        }
        let remap = self.vm.plan_remap(&self.space.blocks[index], fit, donors)?;
        let taken = self.windows().claim(index, &remap);
        if remap.steps.is_empty() {
            self.windows().finish_remap(request.list, index, &taken);
            return Some(Outcome::Granted(self.occupy(index, request)));
        }
        let intent = Intent::Remap { request, window: index, donors: taken };
        Some(Outcome::Plan(Plan { steps: remap.steps, intent }))
    }

    // The budget of mappings.

    /// Plans to unmap windows whose use is over, so many at once: for when the driver has no
    /// mappings left, or nearly none. `None` if there are none.
    pub(crate) fn plan_eviction(&mut self) -> Option<Plan> {
        plan_eviction_of(self, |span| !span.is_unmapped())
    }

    /// Plans for fewer mappings. Where no use of a window is known to be over, only a fence is
    /// recorded that will tell.
    fn plan_fewer_mappings(&mut self, request: Request) -> Option<Plan> {
        self.plan_eviction().or_else(|| {
            let mut windows = self.space.idle_windows.iter().map(|(_, index)| index);
            let can_end = |index: &BlockIndex| {
                self.pools.is_open(self.space.list_of(*index))
                    && self.streams.can_be_recorded(&self.space, *index)
            };
            let window = windows.find(can_end).filter(|_| request.reuse == Reuse::MayWait)?;
            let user = self.space.list(request.list).stream;
            self.streams.plan_wait(&self.space, user, &[window], false)
        })
    }
}

/// Whether there may be so many mappings more.
fn is_within_budget(vm: &PageTable, calls: usize) -> bool {
    let Figures { granules, mappings, .. } = vm.figures();
    calls == 0 || granules + mappings + calls <= policy::mapping_budget(granules)
}

/// Plans to unmap those of these windows whose use is over, so many at once. `None` if there are
/// none.
pub(super) fn plan_eviction_of(
    heap: &mut Heap,
    is_meant: impl Fn(&Span<'_>) -> bool,
) -> Option<Plan> {
    let is_over = |index: &BlockIndex| heap.streams.is_complete(&heap.space, *index);
    let is_open = |index: &BlockIndex| heap.pools.is_open(heap.space.list_of(*index));
    let windows = heap.space.idle_windows.iter().map(|(_, index)| index);
    let windows = windows.filter(|index| is_open(index) && is_over(index));
    let spans = windows.map(|index| (index, heap.vm.under(&heap.space.blocks[index])));
    let meant = spans.filter(|(_, span)| is_meant(span) && !span.is_pinned());
    let ranges = meant.map(|(index, span)| (index, span.mapped_ranges()));
    let evicted: Vec<_> = ranges.take(RELEASED_AT_ONCE).collect();
    evicted.iter().for_each(|&(index, _)| heap.windows().take_idle(index));
    (!evicted.is_empty()).then(|| Trim::unmapping(heap, evicted))
}
