//! What breaks a page table, to check the checks.

use super::PageTable;
use crate::broken::Broken;
use crate::id::SegmentIx;

impl PageTable {
    /// Swaps the first two runs that are noted of a window.
    pub(crate) fn corrupt_runs(&mut self, segment: SegmentIx, window: u64) {
        let first = self.page_at(segment, window);
        let mut runs = self.pages(segment).runs(first).to_vec();
        assert!(runs.len() > 1);
        runs.swap(0, 1);
        self.pages_mut(segment).set_runs(first, runs);
    }

    /// Lets a page lead where another does, or nowhere, and tells nobody.
    pub(crate) fn corrupt_map(&mut self, segment: SegmentIx, from: Option<usize>, to: usize) {
        let granule = from.and_then(|from| self.pages(segment).granule(from));
        let pages = self.pages_mut(segment);
        pages.unmap(to);
        if let Some(granule) = granule {
            pages.map(to, granule, true);
        }
    }

    /// Proves I16 alone: what breaks it breaks I13 first.
    pub(crate) fn check_pins(&self) -> Result<(), Broken> {
        self.check_i16_pinned_memory_stays(|_| false)
    }
}
