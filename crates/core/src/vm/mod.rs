//! The page table: which physical memory stands behind which addresses. It alone knows.
//!
//! Its state: the granules with their handles and the reverse map (`granule`), the forward map of
//! each mapped segment (`page`), digested into runs for windows (`run`), what stays where it is
//! (`pins`). What is asked of a range of addresses is a `span`'s; how a request fits into a window
//! is told by `window`, from what it may take (`donors`). What a block is made of: `handles`. What
//! changes the map: new memory (`physical`), memory mapped elsewhere and back home (`remap`), and
//! memory given back (`release`). Callers speak of addresses and of blocks; pages, mappings and the
//! sizes of handles stay within. Keeps I13 and I16 (`check`).

mod check;
pub(crate) mod donors;
pub(crate) mod granule;
pub(crate) mod handles;
pub(crate) mod page;
pub(crate) mod physical;
mod pins;
pub(crate) mod release;
pub(crate) mod remap;
mod run;
pub(crate) mod span;
#[cfg(test)]
mod tests;
pub(crate) mod window;

use crate::id::{GranuleId, SegmentIx};
use crate::policy;
use crate::stats::RemapStats;
use granule::{Granules, PageAddr};
use page::{Pages, Return};
use pins::Pins;

/// All physical memory of a heap's mapped segments, and where it is mapped.
#[derive(Debug)]
pub(crate) struct PageTable {
    granule_bytes: u64,
    granules: Granules,
    segments: Vec<Option<Pages>>,
    /// What stays where it is.
    pub(crate) pins: Pins,
    /// Granules that back another page than their home.
    remapped_granules: u64,
    /// Where memory came home with the block that is being freed. Kept for its memory: a free
    /// allocates none.
    returns: Vec<Return>,
}

impl PageTable {
    pub(crate) fn new(granule_bytes: u64) -> Self {
        assert!(granule_bytes.is_power_of_two(), "a granule's size is a power of two");
        Self {
            granule_bytes,
            granules: Granules::default(),
            segments: Vec::new(),
            pins: Pins::default(),
            remapped_granules: 0,
            returns: Vec::new(),
        }
    }

    /// Size of a granule.
    pub(crate) const fn granule_bytes(&self) -> u64 {
        self.granule_bytes
    }

    /// A mapped segment was reserved.
    pub(crate) fn add_segment(&mut self, segment: SegmentIx, address: u64, is_window: bool) {
        assert!(address.is_multiple_of(self.granule_bytes), "a segment begins within a granule");
        if self.segments.len() <= segment.index() {
            self.segments.resize_with(segment.index() + 1, || None);
        }
        let former = self.segments[segment.index()].replace(Pages::new(address, is_window));
        assert!(former.is_none(), "a segment has two page tables");
    }

    /// A mapped segment was given back.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIx) {
        let removed = self.segments[segment.index()].take();
        assert!(removed.is_some(), "a segment had no page table");
    }

    #[inline]
    #[expect(clippy::expect_used, reason = "a mapped segment without pages is a broken heap")]
    fn pages(&self, segment: SegmentIx) -> &Pages {
        self.segments[segment.index()].as_ref().expect("the segment is mapped")
    }

    #[expect(clippy::expect_used, reason = "a mapped segment without pages is a broken heap")]
    fn pages_mut(&mut self, segment: SegmentIx) -> &mut Pages {
        self.segments[segment.index()].as_mut().expect("the segment is mapped")
    }

    /// Addresses that a remap may need before the request, and as many behind it: for what others
    /// use of the first and the last handle.
    pub(crate) const fn room_for_rims_bytes(&self) -> u64 {
        (self.granules.largest() as u64).saturating_sub(1) * self.granule_bytes
    }

    // Pages and addresses.

    fn page_at(&self, segment: SegmentIx, address: u64) -> usize {
        let first = self.pages(segment).address;
        assert!(address >= first, "an address lies before its segment");
        ((address - first) / self.granule_bytes) as usize
    }

    fn address_of(&self, page: PageAddr) -> u64 {
        self.pages(page.segment).address + u64::from(page.page) * self.granule_bytes
    }

    /// What a page leads to that is backed.
    #[expect(clippy::expect_used, reason = "memory in use without a granule is a broken heap")]
    fn granule_behind(&self, page: PageAddr) -> GranuleId {
        let granule = self.pages(page.segment).granule(page.page as usize);
        granule.expect("a page in use is backed")
    }

    // Figures.

    /// Bytes of created granules that back nothing.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.granules.idle_count() as u64 * self.granule_bytes
    }

    /// How many granules exist, or will once the plans under way are done.
    pub(crate) fn granule_count(&self) -> usize {
        self.granules.len()
    }

    /// How many mappings are more than may be once so many are added; 0 within the budget.
    pub(crate) fn mappings_over_budget(&self, added: usize) -> usize {
        let budget = policy::mapping_budget(self.granules.len());
        let mappings = self.granules.len() + self.granules.mapping_count() + added;
        // An eighth more than needed, so that it is not done again at once.
        if mappings <= budget || added == 0 { 0 } else { mappings - budget + budget / 8 }
    }

    /// What is mapped away from home, and what is pinned.
    pub(crate) fn stats(&self) -> RemapStats {
        RemapStats {
            granule_bytes: self.granule_bytes,
            remapped_granules: self.remapped_granules,
            aliases: self.granules.mapping_count() as u64,
            pinned_bytes: self.pins.bytes(),
        }
    }
}
