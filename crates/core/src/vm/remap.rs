//! Remapping: granules that are free at home back a window, and come home when nothing there uses
//! them any more.

use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

use super::PageTable;
use super::donors::Picked;
use super::granule::PageAddr;
use super::page::Return;
use super::run::{MappedRun, Target};
use super::window::{WindowFit, in_order};
use crate::plan::Step;
use crate::space::block::BlockIndex;

/// What a remap takes, and where to.
#[derive(Debug)]
pub(crate) struct Remap {
    /// Size of the front of the window that is used.
    pub(crate) bytes: u64,
    /// What is taken at home, by address.
    pub(crate) taken: Vec<Range<u64>>,
    /// To be mapped where the window leads nowhere, in order.
    granules: Vec<GranuleId>,
    runs: Vec<MappedRun>,
}

impl Remap {
    /// Whether the window leads to all of it already.
    pub(crate) fn is_mapped(&self) -> bool {
        self.granules.is_empty()
    }
}

impl PageTable {
    /// A remap into a window that fits so, with what was picked for what is to be mapped.
    pub(crate) fn remap(&self, mut fit: WindowFit, picked: Vec<Picked>) -> Remap {
        let mut taken = fit.hits(self.granule_bytes);
        let granules: Vec<GranuleId> =
            picked.iter().flat_map(|(segment, range)| self.granules_at(*segment, range)).collect();
        let gaps: usize = fit.gaps().iter().sum();
        assert!(granules.len() >= gaps, "fewer granules were picked than there are gaps");
        fit.lengthen(granules.len() - gaps);
        if !picked.is_empty() {
            taken.extend(picked.into_iter().map(|(_, range)| range));
            taken = in_order(taken);
        }
        let bytes = fit.pages() as u64 * self.granule_bytes;
        Remap { bytes, taken, granules, runs: fit.runs }
    }

    /// The granules behind a range, in order.
    fn granules_at(&self, segment: SegmentIx, range: &Range<u64>) -> Vec<GranuleId> {
        self.mapped_pages(segment, range).map(|(_, granule)| granule).collect()
    }

    /// A range of addresses that lead nowhere becomes a window.
    pub(crate) fn add_window(&mut self, segment: SegmentIx, window: &Range<u64>) {
        let pages = self.pages_in(segment, window);
        assert!(self[segment].runs(pages.start).is_empty(), "a window is added twice");
        assert!(self[segment].is_window, "a window is added among homes");
        let run = MappedRun { pages: pages.len(), to: Target::Unmapped };
        self.pages_mut(segment).set_runs(pages.start, vec![run]);
    }

    /// One map for each handle where a window leads nowhere, then access, once for each range.
    pub(crate) fn remap_steps(&self, window: u64, remap: &Remap) -> Vec<Step> {
        let granule_bytes = self.granule_bytes;
        let mut steps = Vec::with_capacity(remap.granules.len() + remap.runs.len());
        let mut granules = remap.granules.iter();
        let mut address = window;
        for &MappedRun { pages, to } in &remap.runs {
            let end = address + pages as u64 * granule_bytes;
            if to == Target::Unmapped {
                let addresses = (address..end).step_by(granule_bytes as usize);
                let places = addresses.zip(granules.by_ref());
                let handles = places.filter(|&(_, &id)| self.granules.before(id) == 0);
                steps.extend(handles.map(|(address, &granule)| {
                    let bytes = self.granules.handle(granule).len() as u64 * granule_bytes;
                    Step::Map { address, bytes, granule }
                }));
                steps.push(Step::SetAccess { address, bytes: end - address });
            }
            address = end;
        }
        assert!(granules.next().is_none(), "more granules were picked than there are gaps");
        assert!(address == window + remap.bytes, "a window has another size than its runs");
        steps
    }

    /// All of a window is mapped and accessible, the last of it by these steps: it is backed.
    pub(crate) fn finish_remap(&mut self, segment: SegmentIx, window: &Range<u64>, steps: &[Step]) {
        self.note_mapped(segment, steps, true);
        if !steps.is_empty() {
            self.renew_runs(segment, window.clone());
        }
        let mut backed = 0;
        for page in self.pages_in(segment, window) {
            if let Some(granule) = self[segment].granule(page) {
                self.granules.set_backing(granule, PageAddr { segment, page: page as u32 });
                backed += 1;
            }
        }
        assert!(backed == self.pages_in(segment, window).len(), "a window is backed in part");
    }

    /// A remap failed. What could not be unmapped leads to its granule without access, as far as
    /// anybody knows.
    pub(crate) fn undo_remap(&mut self, segment: SegmentIx, in_effect: &[Step]) {
        self.note_mapped(segment, in_effect, false);
    }

    /// The granules of a block at home back a window from now on.
    pub(crate) fn leave_home(&mut self, segment: SegmentIx, home: &Range<u64>, block: BlockIndex) {
        assert!(!self[segment].is_window, "memory of a window leaves home");
        let is_whole = (home.end - home.start).is_multiple_of(self.granule_bytes);
        assert!(is_whole && home.start < home.end, "other than whole granules leave home");
        self.remapped_granules += (home.end - home.start) / self.granule_bytes;
        self.set_remapped_block(segment, home, block);
    }

    /// Notes which block stands at home for granules that are elsewhere: they find it by that.
    pub(crate) fn set_remapped_block(
        &mut self,
        segment: SegmentIx,
        home: &Range<u64>,
        block: BlockIndex,
    ) {
        let pages = self.pages_in(segment, home);
        self.pages_mut(segment).set_remapped(pages, block);
    }

    /// Where the granules behind a range of a window belong, block by block: the last home first.
    /// `start_of` tells where a block at home begins. To be given back with `keep_returns`.
    pub(crate) fn returns(
        &mut self,
        segment: SegmentIx,
        range: &Range<u64>,
        start_of: impl Fn(BlockIndex) -> u64,
    ) -> Vec<Return> {
        let mut pages = self.pages_in(segment, range);
        let mut returns = std::mem::take(&mut self.returns);
        while let Some(last) = self.last_return(segment, pages.clone(), &start_of) {
            pages.end = last.pages.start;
            returns.push(last);
        }
        assert!(pages.is_empty(), "memory of a window has no home");
        // From the last to the first: what is cut off stands behind what a block at home keeps.
        returns.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.home));
        returns
    }

    /// Keeps the memory of a list of returns for the next one: a free allocates none.
    pub(crate) fn keep_returns(&mut self, mut returns: Vec<Return>) {
        assert!(self.returns.is_empty(), "memory comes home within a homecoming");
        returns.clear();
        self.returns = returns;
    }

    /// The last of these pages of a window whose granules belong beside each other.
    fn last_return(
        &self,
        segment: SegmentIx,
        pages: Range<usize>,
        start_of: impl Fn(BlockIndex) -> u64,
    ) -> Option<Return> {
        let window = &self[segment];
        let home_of = |page: usize| self.granules.home(window.granule(page)?);
        let last = pages.clone().next_back()?;
        let home = home_of(last)?;
        let block = self[home.segment].remapped(home.page as usize).some()?;
        let room = (self.address_of(home) - start_of(block)) / self.granule_bytes;
        let before = (pages.start..last).rev().take(room as usize).zip((0..home.page).rev());
        let is_beside = |&(at, page): &(usize, u32)| home_of(at) == Some(PageAddr { page, ..home });
        let beside = before.take_while(is_beside).count();
        let home = PageAddr { page: home.page - beside as u32, ..home };
        Some(Return { segment, pages: last - beside..pages.end, home, block })
    }

    /// Where the granules of a return belong.
    pub(crate) fn home_of(&self, piece: &Return) -> Range<u64> {
        let start = self.address_of(piece.home);
        start..start + piece.pages.len() as u64 * self.granule_bytes
    }

    /// The granules of a return back their homes again.
    pub(crate) fn come_home(&mut self, piece: &Return) {
        let pages = piece.pages.len() as u64;
        assert!(pages <= self.remapped_granules, "more granules come home than have left");
        self.remapped_granules -= pages;
        for (page, at) in (piece.home.page..).zip(piece.pages.clone()) {
            let granule = self[piece.segment].granule(at);
            assert!(granule.is_some(), "a page without memory comes home");
            if let Some(granule) = granule {
                self.granules.set_backing(granule, PageAddr { page, ..piece.home });
            }
        }
    }
}
