//! How a window serves a request: what of its front is backed by free memory already, what is to
//! be mapped, and what is in the way.

use crate::id::SegmentIx;
use std::ops::Range;

use super::PageTable;
use super::donors::Donors;
use super::run::{self, MappedRun, Target};
use super::span::Span;

/// What the first pages of a window lead to, as many as a request takes.
#[derive(Debug, Default)]
pub(crate) struct WindowFit {
    /// In the order of the pages. What is a hit can be taken there, each run from one donor.
    pub(super) runs: Vec<MappedRun>,
    /// Driver calls before all pages are backed, if each handle is one granule.
    pub(crate) calls: usize,
    /// How many unmapped pages follow: the last handle may take them, too.
    pub(super) room: usize,
}

impl WindowFit {
    /// That of addresses that lead nowhere, with room for what the last handle has too much.
    pub(crate) fn unmapped(pages: usize, room: usize) -> Self {
        let runs = vec![MappedRun { pages, to: Target::Unmapped }];
        Self { runs, calls: pages, room }
    }

    /// Adds pages to the last gap, for what else the last handle has.
    pub(super) fn lengthen(&mut self, excess: usize) {
        let last = self.runs.last_mut();
        assert!(excess == 0 || last.is_some(), "a window without pages is made longer");
        if let Some(last) = last {
            last.pages += excess;
        }
    }

    /// How many pages there are.
    pub(super) fn pages(&self) -> usize {
        self.runs.iter().map(|run| run.pages).sum()
    }

    /// How many pages are to be mapped between the hits, range by range.
    pub(super) fn gaps(&self) -> Vec<usize> {
        let is_hit = |run: &MappedRun| matches!(run.to, Target::Hit(_));
        let gaps = self.runs.split(is_hit).filter(|gap| !gap.is_empty());
        gaps.map(|gap| gap.iter().map(|run| run.pages).sum()).collect()
    }

    /// Where the granules are free that the hits lead to, by address.
    pub(super) fn hits(&self, granule_bytes: u64) -> Vec<Range<u64>> {
        let range = |run: &MappedRun| match run.to {
            Target::Hit(first) => Some(first..first + run.pages as u64 * granule_bytes),
            Target::Unmapped | Target::Stale => None,
        };
        let mut hits: Vec<Range<u64>> = self.runs.iter().filter_map(range).collect();
        hits.sort_by_cached_key(|range| range.start);
        hits
    }

    /// Whether two pages lead to the same granule.
    fn has_doubles(&self, granule_bytes: u64) -> bool {
        let hits = self.hits(granule_bytes);
        hits.windows(2).any(|pair| pair[0].end > pair[1].start)
    }
}

impl Span<'_> {
    /// How a request of so many granules fits into a window, at its front. `None` if to back it
    /// takes as many driver calls as `most`, something is in the way, or no free handles fit.
    pub(crate) fn fit(&self, granules: usize, donors: &Donors, most: usize) -> Option<WindowFit> {
        let fit = self.fit_runs(granules, donors, most)?;
        // Single granules always fit into the gaps.
        let has_picks =
            || !self.table.granules.has_large_handles || self.table.pick(&fit, donors).1 == 0;
        (!fit.has_doubles(self.table.granule_bytes) && has_picks()).then_some(fit)
    }

    /// The same, whatever else leads to the same memory.
    fn fit_runs(&self, granules: usize, donors: &Donors, most: usize) -> Option<WindowFit> {
        let mut fit = WindowFit::default();
        let (table, first) = (self.table, self.pages().start);
        let (pages, mut left) = (table.pages(self.segment), granules);
        for &run in pages.runs(first) {
            let mut rest = MappedRun { pages: run.pages.min(left), ..run };
            left -= rest.pages;
            if run.to == Target::Unmapped {
                fit.calls += rest.pages;
                fit.room = run.pages - rest.pages;
            }
            if fit.calls >= most {
                return None;
            }
            while rest.pages > 0 {
                fit.runs.push(donors.first_run(&mut rest, table.granule_bytes)?);
            }
            if left == 0 {
                // A handle is taken as a whole.
                let after = pages.granule(first + granules);
                if let Some(MappedRun { pages, to: Target::Hit(_) }) = fit.runs.last_mut() {
                    *pages += after.map_or(0, |id| table.granules.after(id));
                }
                return Some(fit);
            }
        }
        None
    }
}

impl PageTable {
    /// What a window leads to, found page by page.
    pub(super) fn runs_from_pages(&self, segment: SegmentIx, first: usize) -> Vec<MappedRun> {
        let pages = self.pages(segment);
        let all = first..first + pages.window_pages(first);
        let targets = all.map(|page| match pages.granule(page) {
            None => Target::Unmapped,
            // Without access the granule cannot be used there.
            Some(granule) => match self.granules.home(granule) {
                Some(home) if pages.is_open(page) => Target::Hit(self.address_of(home)),
                _ => Target::Stale,
            },
        });
        run::runs(targets, self.granule_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: u64 = 2 << 20;

    /// Runs that go on from each other may lie in two free blocks, of two streams: only pages that
    /// lead to the same granule are too many.
    #[test]
    fn i13_a_window_with_one_granule_twice_does_not_fit() {
        let hit = |pages, first: u64| MappedRun { pages, to: Target::Hit(first * GRANULE) };
        let has_doubles = |runs| WindowFit { runs, ..WindowFit::default() }.has_doubles(GRANULE);
        assert!(!has_doubles(vec![hit(3, 5), hit(2, 8), hit(4, 17)]));
        assert!(has_doubles(vec![hit(3, 5), hit(4, 17), hit(2, 18)]));
        assert!(has_doubles(vec![hit(3, 7), hit(4, 7)]));
    }
}
