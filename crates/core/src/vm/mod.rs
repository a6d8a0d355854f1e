//! The page table: which physical memory stands behind which addresses. It alone knows.
//!
//! Its state: the granules with their handles and the reverse map (`granule`), the forward map of
//! each mapped segment (`page`), digested into runs for windows (`run`), what stays where it is
//! (`pins`). What is asked of a range of addresses is a `span`'s; how a request fits into a window
//! is told by `window`, from what it may take (`donors`). What a block is made of: `handles`. What
//! is asked of the driver: new memory (`physical`), and memory mapped elsewhere (`remap`). What
//! changes the map: what became of that, and the way home (`change`). Callers speak of addresses
//! and of blocks; pages, mappings and the sizes of handles stay within. Keeps I13 and I16
//! (`check`).

mod change;
mod check;
pub(crate) mod donors;
pub(crate) mod granule;
pub(crate) mod handles;
pub(crate) mod mesh;
pub(crate) mod moves;
pub(crate) mod page;
pub(crate) mod physical;
pub(crate) mod pins;
pub(crate) mod remap;
mod run;
pub(crate) mod span;
#[cfg(test)]
mod tests;
pub(crate) mod window;

use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

use granule::{Granules, PageAddr};
use page::{Pages, Return};
use pins::{PinKey, Pins};

/// All physical memory of a heap's mapped segments, and where it is mapped.
#[derive(Debug)]
pub(crate) struct PageTable {
    granule_bytes: u64,
    granules: Granules,
    segments: Vec<Option<Pages>>,
    /// What stays where it is.
    pins: Pins,
    /// Pages that share the granule of another one.
    guests: Vec<PageAddr>,
    /// Granules that back another page than their home.
    remapped_granules: u64,
    /// Where memory came home with the block that is being freed. Kept for its memory: a free
    /// allocates none.
    returns: Vec<Return>,
}

/// What a page table holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// How many granules exist, or will once the plans under way are done.
    pub(crate) granules: usize,
    /// Bytes of created granules that back nothing.
    pub(crate) idle_bytes: u64,
    /// Granules that back another page than their home.
    pub(crate) remapped_granules: u64,
    /// Pages beside their homes that lead to granules.
    pub(crate) mappings: usize,
    /// Bytes of the handles that are pinned.
    pub(crate) pinned_bytes: u64,
    /// Bytes of the host's memory that stand for what comes back to the device.
    pub(crate) on_host_bytes: u64,
}

impl PageTable {
    pub(crate) fn new(granule_bytes: u64) -> Self {
        assert!(granule_bytes.is_power_of_two(), "a granule's size is a power of two");
        Self {
            granule_bytes,
            granules: Granules::default(),
            segments: Vec::new(),
            pins: Pins::default(),
            guests: Vec::new(),
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

    // Pages and addresses.

    #[inline]
    fn page_at(&self, segment: SegmentIx, address: u64) -> usize {
        self.page_of(self.pages(segment), address)
    }

    /// The same, of a segment's pages. By a shift: this is asked of every donor.
    #[inline]
    const fn page_of(&self, pages: &Pages, address: u64) -> usize {
        assert!(address >= pages.address, "an address lies before its segment");
        ((address - pages.address) >> self.granule_bytes.trailing_zeros()) as usize
    }

    fn address_of(&self, page: PageAddr) -> u64 {
        self.pages(page.segment).address + u64::from(page.page) * self.granule_bytes
    }

    /// Size of a granule's handle.
    fn handle_bytes(&self, id: GranuleId) -> u64 {
        self.granules.handle(id).len() as u64 * self.granule_bytes
    }

    /// What a page leads to that is backed.
    #[expect(clippy::expect_used, reason = "memory in use without a granule is a broken heap")]
    fn granule_behind(&self, page: PageAddr) -> GranuleId {
        let granule = self.pages(page.segment).granule(page.page as usize);
        granule.expect("a page in use is backed")
    }

    // Pins.

    /// Pins addresses of a segment: every handle that they lead to a byte of; of plain memory, them
    /// alone.
    pub(crate) fn pin(&mut self, key: PinKey, segment: SegmentIx, addresses: Range<u64>) {
        let is_mapped = self.segments.get(segment.index()).is_some_and(Option::is_some);
        let covered = || self.span(segment, addresses.clone()).handles_around();
        let covered = if is_mapped { covered() } else { addresses.clone() };
        self.pins.pin(key, addresses, covered);
    }

    /// Takes a pin back; `None` if there was none. What it covered, if it was the last of its key.
    pub(crate) fn unpin(&mut self, key: PinKey) -> Option<Option<Range<u64>>> {
        self.pins.unpin(key)
    }

    /// How much there is of everything.
    pub(crate) fn figures(&self) -> Figures {
        Figures {
            granules: self.granules.len(),
            idle_bytes: self.granules.idle_count as u64 * self.granule_bytes,
            remapped_granules: self.remapped_granules,
            mappings: self.granules.mapping_count,
            pinned_bytes: self.pins.bytes,
            on_host_bytes: self.granules.on_host_count() as u64 * self.granule_bytes,
        }
    }
}
