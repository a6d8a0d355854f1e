//! The page table: which physical memory stands behind which addresses. It alone knows.
//!
//! Its state: the granules with their handles and the reverse map (`granule`), the forward map of
//! each mapped segment (`page`), digested into runs for windows (`run`, `window`), what a request
//! may take (`donors`, `pick`), what stays where it is (`pins`); new memory (`physical`), memory
//! mapped elsewhere and back home (`remap`), and memory given back (`release`). Callers speak of
//! addresses and of blocks; pages, mappings and the sizes of handles stay within. Keeps I13 and I16
//! (`check`).

mod check;
pub(crate) mod donors;
pub(crate) mod granule;
pub(crate) mod page;
pub(crate) mod physical;
mod pick;
mod pins;
pub(crate) mod release;
pub(crate) mod remap;
mod run;
pub(crate) mod window;

use crate::id::{GranuleId, SegmentIx};
use std::ops::{Index, Range};

use crate::policy;
use crate::size::{round_down, round_up, whole_units};
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
    pins: Pins,
    /// Granules that back another page than their home.
    remapped_granules: u64,
    /// What comes home with the block that is being freed. Kept for its memory alone.
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

    #[expect(clippy::expect_used, reason = "a mapped segment without pages is a broken heap")]
    fn pages_mut(&mut self, segment: SegmentIx) -> &mut Pages {
        self.segments[segment.index()].as_mut().expect("the segment is mapped")
    }

    // Where handles begin and end.

    /// The whole handles in a range of a segment's addresses; empty if there is none.
    pub(crate) fn whole_handles(&self, segment: SegmentIx, addresses: Range<u64>) -> Range<u64> {
        let Range { start, end } = whole_units(addresses.start, addresses.end, self.granule_bytes);
        if start >= end {
            return start..end;
        }
        let start = start + self.after(segment, start);
        let end = end - self.before(segment, end);
        start.min(end)..end
    }

    /// The handles that a range of a segment's addresses touches.
    pub(crate) fn handles_around(&self, segment: SegmentIx, addresses: Range<u64>) -> Range<u64> {
        let start = round_down(addresses.start, self.granule_bytes);
        let end = addresses.end.next_multiple_of(self.granule_bytes);
        assert!(start < end, "nothing is around no addresses");
        start - self.before(segment, start)..end + self.after(segment, end)
    }

    /// How many bytes of the handle that an address lies in come before it.
    fn before(&self, segment: SegmentIx, address: u64) -> u64 {
        let granule = self.granule_at(segment, address);
        granule.map_or(0, |id| self.granules.before(id) as u64 * self.granule_bytes)
    }

    /// How many bytes of the handle that an address lies in come after it; 0 where one begins.
    fn after(&self, segment: SegmentIx, address: u64) -> u64 {
        self.after_in_handle(self.granule_at(segment, address)) as u64 * self.granule_bytes
    }

    fn after_in_handle(&self, granule: Option<GranuleId>) -> usize {
        granule.map_or(0, |id| self.granules.after(id))
    }

    /// The granule that an address leads to, where its handle may have others.
    fn granule_at(&self, segment: SegmentIx, address: u64) -> Option<GranuleId> {
        if !self.granules.has_large_handles() {
            return None;
        }
        let pages = &self[segment];
        pages.granule(((address - pages.address) / self.granule_bytes) as usize)
    }

    /// Addresses that the last handle of a remap may need beyond the request.
    pub(crate) const fn room_for_last_handle_bytes(&self) -> u64 {
        if self.granules.has_large_handles() { policy::HANDLE_MAX_BYTES } else { 0 }
    }

    /// How many whole granules hold so many bytes; `None` beyond the range of sizes.
    pub(crate) fn granules_for(&self, bytes: u64) -> Option<usize> {
        Some((round_up(bytes, self.granule_bytes)? / self.granule_bytes) as usize)
    }

    // Pages and addresses.

    fn page_at(&self, segment: SegmentIx, address: u64) -> usize {
        let first = self[segment].address;
        assert!(address >= first, "an address lies before its segment");
        ((address - first) / self.granule_bytes) as usize
    }

    /// The pages that a range of whole granules covers.
    fn pages_in(&self, segment: SegmentIx, addresses: &Range<u64>) -> Range<usize> {
        self.page_at(segment, addresses.start)..self.page_at(segment, addresses.end)
    }

    fn address_of(&self, page: PageAddr) -> u64 {
        self[page.segment].address + u64::from(page.page) * self.granule_bytes
    }

    /// The pages of a range that lead to a granule, with what they lead to.
    fn mapped_pages(
        &self,
        segment: SegmentIx,
        addresses: &Range<u64>,
    ) -> impl Iterator<Item = (PageAddr, GranuleId)> + '_ {
        let pages = &self[segment];
        let Range { start, end } = self.pages_in(segment, addresses);
        (start..end.min(pages.len())).filter_map(move |page| {
            Some((PageAddr { segment, page: page as u32 }, pages.granule(page)?))
        })
    }

    /// Whether no address of a range leads to memory.
    pub(crate) fn is_unmapped(&self, segment: SegmentIx, addresses: &Range<u64>) -> bool {
        self.mapped_pages(segment, addresses).next().is_none()
    }

    /// What of a range leads to memory, as few ranges.
    pub(crate) fn mapped_ranges(
        &self,
        segment: SegmentIx,
        addresses: &Range<u64>,
    ) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (page, _) in self.mapped_pages(segment, addresses) {
            let start = self.address_of(page);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += self.granule_bytes,
                _ => ranges.push(start..start + self.granule_bytes),
            }
        }
        ranges
    }

    // Pins.

    /// Keeps the memory of these addresses of a mapped segment, in whole handles, where it is.
    pub(crate) fn pin(&mut self, segment: SegmentIx, addresses: Range<u64>) {
        let covered = self.handles_around(segment, addresses.clone());
        self.pins.pin(addresses, covered);
    }

    /// Keeps a block of plain memory.
    pub(crate) fn pin_plain(&mut self, addresses: Range<u64>) {
        self.pins.pin(addresses.clone(), addresses);
    }

    /// How many pins of an address are left; `None` if there was none.
    pub(crate) fn unpin(&mut self, address: u64) -> Option<u64> {
        self.pins.unpin(address)
    }

    /// Whether anything in a range is pinned.
    pub(crate) fn is_pinned(&self, addresses: Range<u64>) -> bool {
        self.pins.touch(addresses)
    }

    /// What of a range of whole handles is not pinned, in order.
    pub(crate) fn unpinned(&self, addresses: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.pins.free_of(addresses)
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

    /// How many pages beside their homes lead to granules.
    pub(crate) const fn mapping_count(&self) -> usize {
        self.granules.mapping_count()
    }

    pub(crate) fn stats(&self) -> RemapStats {
        RemapStats {
            granule_bytes: self.granule_bytes,
            remapped_granules: self.remapped_granules,
            aliases: self.granules.mapping_count() as u64,
            pinned_bytes: self.pins.bytes(),
        }
    }
}

impl Index<SegmentIx> for PageTable {
    type Output = Pages;

    #[inline]
    #[expect(clippy::expect_used, reason = "a mapped segment without pages is a broken heap")]
    fn index(&self, segment: SegmentIx) -> &Pages {
        self.segments[segment.index()].as_ref().expect("the segment is mapped")
    }
}
