//! What becomes of the steps of a plan, and what backs what: all that changes the map.
//!
//! The page table follows the driver by the very steps that it was asked for: those that were done
//! ([`PageTable::commit`]), and those of a plan that failed ([`PageTable::abandon`]). Whatever the
//! plan was for, a page leads where the last step there left it.

use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

use super::PageTable;
use super::granule::PageAddr;
use super::page::Return;
use crate::plan::Step;
use crate::space::block::{Block, BlockIndex};
use crate::space::segment::Segments;

impl PageTable {
    /// These steps are done, with all that their plan has. Returns how many bytes were released.
    pub(crate) fn commit(&mut self, segments: &Segments, steps: &[Step]) -> u64 {
        let (mut windows, mut homeless) = (Vec::new(), Vec::new());
        let is_mesh = steps.iter().any(|step| matches!(step, Step::CopyTo { .. }));
        for step in steps {
            match *step {
                Step::Map { address, granule, .. } => {
                    let first = self.page_in(segments, address);
                    self.guests.extend(is_mesh.then_some(first));
                    let is_home = self.granules.home(granule).is_none();
                    self.map(first, granule, true, is_home);
                    self.add_windows(first, self.granules.handle(granule).len(), &mut windows);
                }
                Step::Unmap { address, bytes } | Step::Lift { address, bytes, .. } => {
                    let first = self.page_in(segments, address);
                    let pages = (bytes / self.granule_bytes) as usize;
                    // What was lifted has its copy there, which who is told of it may have pinned.
                    let is_pinned = self.pins.touch(address..address + bytes);
                    let is_lifted = matches!(step, Step::Lift { .. });
                    assert!(is_lifted || !is_pinned, "pinned memory is unmapped");
                    self.unmap(first, pages, &mut homeless);
                    self.add_windows(first, pages, &mut windows);
                }
                _ => {}
            }
        }
        homeless.into_iter().for_each(|handle| self.make_idle(handle));
        self.renew_runs(windows);
        self.release(steps)
    }

    /// Forgets the handles that steps release. Returns how many bytes they have.
    fn release(&mut self, steps: &[Step]) -> u64 {
        let mut released_bytes = 0;
        for step in steps {
            if let Step::Release { granule } = *step {
                released_bytes += self.handle_bytes(granule);
                self.granules.set_vacant(granule);
            }
        }
        if released_bytes > 0 {
            self.granules.forget_taken();
        }
        released_bytes
    }

    /// These steps are those of a plan that failed, or what is left of one that stands as far as it
    /// went: the first are still in effect. What could not be released stays idle; what could not
    /// be unmapped leads to its granule still, without access as far as anybody knows.
    pub(crate) fn abandon(&mut self, segments: &Segments, steps: &[Step], in_effect: usize) {
        assert!(in_effect <= steps.len(), "more steps are in effect than were planned");
        let mut windows = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let is_done = at < in_effect;
            match *step {
                Step::Create { granule, .. } if is_done => self.granules.set_idle(granule),
                Step::Create { granule, .. } => self.granules.set_vacant(granule),
                Step::Map { address, granule, .. } => {
                    if is_done {
                        let first = self.page_in(segments, address);
                        self.map(first, granule, false, false);
                        self.add_windows(first, self.granules.handle(granule).len(), &mut windows);
                    }
                    self.granules.end_plan(granule);
                }
                Step::Release { granule } => self.granules.end_plan(granule),
                _ => {}
            }
        }
        self.renew_runs(windows);
    }

    /// The page at an address.
    #[expect(clippy::expect_used, reason = "a step outside of all segments is a broken heap")]
    fn page_in(&self, segments: &Segments, address: u64) -> PageAddr {
        let segment = segments.containing(address).expect("a step is in a segment");
        PageAddr { segment, page: self.page_at(segment, address) as u32 }
    }

    /// Lets pages from the first on lead to a handle: their home, or beside it.
    fn map(&mut self, first: PageAddr, handle: GranuleId, is_open: bool, is_home: bool) {
        assert!(self.granules.before(handle) == 0, "a handle is mapped in part");
        for (at, granule) in (first.page..).zip(self.granules.of_handle(handle)) {
            let page = PageAddr { page: at, ..first };
            self.pages_mut(page.segment).map(at as usize, granule, is_open);
            if is_home {
                self.granules.set_backing(granule, page);
            } else {
                self.granules.add_mapping(granule, page);
            }
        }
    }

    /// Lets pages lead nowhere, and tells the handles that have no home any more.
    fn unmap(&mut self, first: PageAddr, count: usize, homeless: &mut Vec<GranuleId>) {
        for at in (first.page..).take(count) {
            let page = PageAddr { page: at, ..first };
            let Some(granule) = self.pages(page.segment).granule(at as usize) else { continue };
            self.pages_mut(page.segment).unmap(at as usize);
            self.guests.retain(|&guest| guest != page);
            if self.granules.home(granule) != Some(page) {
                self.granules.remove_mapping(granule, page);
            } else if self.granules.before(granule) == 0 {
                homeless.push(granule);
            }
        }
    }

    /// A handle that was unmapped at home backs nothing any more.
    fn make_idle(&mut self, handle: GranuleId) {
        let is_alone = self.granules.mappings(handle).is_empty();
        assert!(is_alone, "memory loses its home that others lead to");
        let is_away = !self.granules.is_home(handle);
        self.remapped_granules -=
            if is_away { self.granules.handle(handle).len() as u64 } else { 0 };
        self.granules.set_idle(handle);
    }

    // Windows.

    /// Adds the first pages of the windows that have any of so many pages.
    fn add_windows(&self, first: PageAddr, count: usize, windows: &mut Vec<PageAddr>) {
        let (pages, page) = (self.pages(first.segment), first.page as usize);
        let around = pages.window_around(page).unwrap_or(page);
        for window in pages.windows_in(around..page + count) {
            let window = PageAddr { page: window as u32, ..first };
            if windows.last() != Some(&window) {
                windows.push(window);
            }
        }
    }

    /// Notes anew what the windows lead to that begin with these pages.
    fn renew_runs(&mut self, mut windows: Vec<PageAddr>) {
        windows.sort_by_cached_key(|first| first.number());
        windows.dedup();
        for PageAddr { segment, page } in windows {
            let runs = self.runs_from_pages(segment, page as usize);
            self.pages_mut(segment).set_runs(page as usize, runs);
        }
    }

    /// Forgets the window that a block is, if it leads nowhere. Whether it is none, or none any
    /// more.
    pub(crate) fn forget_window(&mut self, block: &Block) -> bool {
        let span = self.under(block);
        let is_over = block.is_window && span.is_whole_window() && span.is_unmapped();
        if is_over {
            let first = span.pages().start;
            self.pages_mut(block.segment).remove_window(first);
        }
        is_over || !block.is_window
    }

    // What backs what.

    /// What of a window is mapped is accessible: it is backed by what it leads to.
    pub(crate) fn back(&mut self, segment: SegmentIx, addresses: Range<u64>) {
        let mapped: Vec<_> = self.span(segment, addresses).mapped_pages().collect();
        for (page, granule) in mapped {
            self.remapped_granules += u64::from(self.granules.is_home(granule));
            self.granules.set_backing(granule, page);
        }
    }

    /// Notes which block stands at home for granules that are elsewhere: they find it by that.
    pub(crate) fn set_remapped(&mut self, home: &Block, index: BlockIndex) {
        assert!(!home.is_window, "memory of a window leaves home");
        let pages = self.under(home).pages();
        self.pages_mut(home.segment).set_remapped(pages, index);
    }

    /// The granules behind a block of a window back their homes again. Where these are, is told by
    /// `next_return`. `start_of` tells where a block at home begins.
    pub(crate) fn bring_home(&mut self, window: &Block, start_of: impl Fn(BlockIndex) -> u64) {
        assert!(window.is_window, "memory at home comes home");
        assert!(self.returns.is_empty(), "memory comes home within a homecoming");
        let segment = window.segment;
        let mut left = self.under(window).pages();
        assert!(left.len() as u64 <= self.remapped_granules, "more comes home than has left");
        self.remapped_granules -= left.len() as u64;
        while let Some((pages, last)) = self.last_return(segment, left.clone(), &start_of) {
            left.end = pages.start;
            for (home, page) in (last.page.page..).zip(pages) {
                let granule = self.granule_behind(PageAddr { segment, page: page as u32 });
                self.granules.set_backing(granule, PageAddr { page: home, ..last.page });
            }
            self.returns.push(last);
        }
        assert!(left.is_empty(), "memory of a window has no home");
        self.returns.sort_by_cached_key(|piece| piece.page.number());
    }

    /// Where memory came home, block by block. From the last to the first: what is cut off stands
    /// behind what a block at home keeps.
    pub(crate) fn next_return(&mut self) -> Option<Return> {
        self.returns.pop()
    }

    /// The last of these pages of a window whose granules belong beside each other.
    fn last_return(
        &self,
        segment: SegmentIx,
        pages: Range<usize>,
        start_of: impl Fn(BlockIndex) -> u64,
    ) -> Option<(Range<usize>, Return)> {
        let window = self.pages(segment);
        let home_of = |page: usize| self.granules.home(window.granule(page)?);
        let last = pages.clone().next_back()?;
        let home = home_of(last)?;
        let block = self.pages(home.segment).remapped(home.page as usize).some()?;
        let room = (self.address_of(home) - start_of(block)) / self.granule_bytes;
        let before = (pages.start..last).rev().take(room as usize).zip((0..home.page).rev());
        let is_beside = |&(at, page): &(usize, u32)| home_of(at) == Some(PageAddr { page, ..home });
        let beside = before.take_while(is_beside).count();
        let page = PageAddr { page: home.page - beside as u32, ..home };
        let end = self.address_of(home) + self.granule_bytes;
        let home = self.address_of(page)..end;
        Some((last - beside..pages.end, Return { page, home, block }))
    }
}
