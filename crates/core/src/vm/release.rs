//! Giving memory back: unmapping what only leads to memory that is used elsewhere, and releasing
//! handles at home.

use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

use super::PageTable;
use super::granule::{GranuleState, PageAddr};
use super::window::WindowFit;
use crate::plan::Step;

impl PageTable {
    /// The ranges of a window that have to be unmapped before it can be used so.
    pub(crate) fn stale_ranges(&self, fit: &WindowFit, window: u64) -> Vec<Range<u64>> {
        fit.stale(window, self.granule_bytes)
    }

    /// A range that led to memory beside its home was unmapped.
    pub(crate) fn unmap_aliases(&mut self, segment: SegmentIx, range: &Range<u64>) {
        for page in self.pages_in(segment, range) {
            if let Some(granule) = self[segment].granule(page) {
                self.granules.remove_mapping(granule, PageAddr { segment, page: page as u32 });
            }
            self.pages_mut(segment).unmap(page);
        }
    }

    /// Whether a range leads to memory that backs nothing, or one of these ranges, by address.
    pub(crate) fn leads_to_any(
        &self,
        segment: SegmentIx,
        range: &Range<u64>,
        ranges: &[Range<u64>],
    ) -> bool {
        self.mapped_pages(segment, range).any(|(_, granule)| match self.granules.state(granule) {
            GranuleState::Backing(page) => {
                let address = self.address_of(page);
                let after = ranges.partition_point(|range| range.start <= address);
                ranges[..after].last().is_some_and(|range| address < range.end)
            }
            _ => true,
        })
    }

    /// The first handles in a range of free memory at home that can all be released: not pinned,
    /// and mapped nowhere else. An empty range if there are none.
    pub(crate) fn releasable(&self, segment: SegmentIx, range: Range<u64>) -> Range<u64> {
        let Range { start, end } = self.whole_handles(segment, range);
        if start >= end {
            return end..end;
        }
        let pages = &self[segment];
        let is_releasable = |&address: &u64| {
            let granule = pages.granule(self.page_at(segment, address));
            !self.pins.touch(address..address + self.granule_bytes)
                && granule.is_some_and(|id| self.granules.mappings(id).is_empty())
        };
        let mut addresses = (start..end).step_by(self.granule_bytes as usize);
        let start = addresses.find(is_releasable).unwrap_or(end);
        let end = addresses.find(|address| !is_releasable(address)).unwrap_or(end);
        start..end
    }

    /// Plans to unmap a range at home and to release what is behind it: adds the steps, and returns
    /// the handles.
    pub(crate) fn plan_release(
        &mut self,
        segment: SegmentIx,
        range: &Range<u64>,
        steps: &mut Vec<Step>,
    ) -> Vec<GranuleId> {
        let granules = self.mapped_pages(segment, range).map(|(_, granule)| granule);
        let handles: Vec<GranuleId> =
            granules.filter(|&granule| self.granules.before(granule) == 0).collect();
        assert!(!handles.is_empty(), "memory is released where there is none");
        assert!(!self.pins.touch(range.clone()), "pinned memory is released");
        steps.push(Step::Unmap { address: range.start, bytes: range.end - range.start });
        for &granule in &handles {
            assert!(
                self.granules.mappings(granule).is_empty(),
                "a handle is released with aliases"
            );
            steps.push(Step::Release { granule });
            self.granules.plan(granule);
        }
        handles
    }

    /// Takes the handles for a plan that are created, back nothing and are mapped nowhere.
    pub(crate) fn take_releasable_idle(&mut self) -> Vec<GranuleId> {
        let mut idle = self.granules.idle().to_vec();
        idle.retain(|&granule| self.granules.mappings(granule).is_empty());
        self.granules.take_idle(&idle);
        idle
    }

    /// A handle that is mapped nowhere was released, or could not be. Returns the bytes released.
    pub(crate) fn finish_release(&mut self, handle: GranuleId, is_done: bool) -> u64 {
        if is_done {
            let granules = self.granules.handle(handle).len() as u64;
            self.granules.set_vacant(handle);
            granules * self.granule_bytes
        } else {
            self.granules.set_idle(handle);
            0
        }
    }

    /// A range at home could not be unmapped: it is backed as before.
    pub(crate) fn keep_backing(&mut self, segment: SegmentIx, range: &Range<u64>) {
        let pages: Vec<_> = self.mapped_pages(segment, range).collect();
        for (page, granule) in pages {
            self.granules.set_backing(granule, page);
        }
    }

    /// A range at home was unmapped.
    pub(crate) fn unmap_home(&mut self, segment: SegmentIx, range: &Range<u64>) {
        assert!(!self[segment].is_window, "a window is unmapped as a home");
        for page in self.pages_in(segment, range) {
            self.pages_mut(segment).unmap(page);
        }
    }
}
