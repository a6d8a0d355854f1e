//! Pages: what the granule-sized pieces of mapped segments lead to. The forward half of the map.
//!
//! A segment of homes has a granule of its own behind each page for as long as that exists. In a
//! segment of windows pages lead to granules whose home is elsewhere. The runs of each window are a
//! digest of its pages, for looking at hundreds of them at once.

use crate::id::GranuleId;
use std::collections::BTreeMap;
use std::ops::Range;

use super::granule::PageAddr;
use super::run::MappedRun;
use crate::space::block::BlockIndex;

/// Where granules of a window belong that lie beside each other, in one block at home.
#[derive(Clone, Debug)]
pub(crate) struct Return {
    /// The first page there.
    pub(super) page: PageAddr,
    /// The addresses.
    pub(crate) home: Range<u64>,
    /// The block.
    pub(crate) block: BlockIndex,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    granule: Option<GranuleId>,
    /// While its granule backs a window: the block here.
    remapped: BlockIndex,
    /// The device has access.
    is_open: bool,
}

const EMPTY: Page = Page { granule: None, remapped: BlockIndex::NONE, is_open: false };

/// The pages of one mapped segment.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Where the segment starts.
    pub(super) address: u64,
    /// Of windows, not of homes.
    pub(super) is_window: bool,
    /// As far as before mapped.
    pages: Vec<Page>,
    /// Windows by their first page.
    windows: BTreeMap<usize, Vec<MappedRun>>,
}

impl Pages {
    pub(super) const fn new(address: u64, is_window: bool) -> Self {
        Self { address, is_window, pages: Vec::new(), windows: BTreeMap::new() }
    }

    /// The granule that a page leads to.
    #[inline]
    pub(super) fn granule(&self, page: usize) -> Option<GranuleId> {
        self.pages.get(page)?.granule
    }

    /// Whether the device has access through a page.
    #[inline]
    pub(super) fn is_open(&self, page: usize) -> bool {
        self.pages.get(page).is_some_and(|page| page.is_open)
    }

    /// How many pages were ever mapped.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        if page >= self.pages.len() {
            self.pages.resize(page + 1, EMPTY);
        }
        &mut self.pages[page]
    }

    /// Lets a page lead to a granule.
    pub(super) fn map(&mut self, page: usize, granule: GranuleId, is_open: bool) {
        let page = self.page_mut(page);
        assert!(page.granule.is_none(), "a page is mapped twice");
        (page.granule, page.is_open) = (Some(granule), is_open);
    }

    /// Lets a page lead nowhere.
    pub(super) fn unmap(&mut self, page: usize) {
        let page = self.page_mut(page);
        (page.granule, page.is_open) = (None, false);
    }

    /// Notes the block whose granules back a window.
    pub(super) fn set_remapped(&mut self, pages: Range<usize>, block: BlockIndex) {
        assert!(pages.end <= self.pages.len(), "pages back a window that were never mapped");
        self.pages[pages].iter_mut().for_each(|page| page.remapped = block);
    }

    /// The block at a page whose granule backs a window.
    #[inline]
    pub(super) fn remapped(&self, page: usize) -> BlockIndex {
        self.pages.get(page).map_or(BlockIndex::NONE, |page| page.remapped)
    }

    // Windows.

    /// What the pages of the window lead to that begins at this one; nothing if none does.
    pub(super) fn runs(&self, first: usize) -> &[MappedRun] {
        self.windows.get(&first).map_or(&[], |runs| runs)
    }

    /// How many pages the window has that begins at this one; 0 if none does.
    pub(super) fn window_pages(&self, first: usize) -> usize {
        self.runs(first).iter().map(|run| run.pages).sum()
    }

    /// The windows that begin in a range of pages: their first pages, in order.
    pub(super) fn windows_in(
        &self,
        pages: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.windows.range(pages).map(|(&first, _)| first)
    }

    /// The first page of the window that has a page, or of the last one before it.
    pub(super) fn window_around(&self, page: usize) -> Option<usize> {
        Some(*self.windows.range(..=page).next_back()?.0)
    }

    /// Notes what the pages of a window lead to.
    pub(super) fn set_runs(&mut self, first: usize, runs: Vec<MappedRun>) {
        assert!(!runs.is_empty(), "a window has no pages");
        self.windows.insert(first, runs);
    }

    /// Forgets the window that begins at a page.
    pub(super) fn remove_window(&mut self, first: usize) {
        let removed = self.windows.remove(&first);
        assert!(removed.is_some(), "a window is forgotten that there is not");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_never_mapped_lead_nowhere() {
        let mut pages = Pages::new(0, true);
        assert_eq!((pages.granule(3), pages.len()), (None, 0));
        pages.map(2, GranuleId(7), true);
        assert_eq!((pages.granule(1), pages.granule(2)), (None, Some(GranuleId(7))));
        pages.unmap(2);
        assert_eq!((pages.granule(2), pages.len()), (None, 3));
    }
}
