//! How a window serves a request: what of its front is backed by free memory already, what is to
//! be mapped, and what is in the way.

use crate::id::SegmentIx;
use std::ops::Range;

use super::PageTable;
use super::donors::Donors;
use super::run::{self, MappedRun, Target};
use super::span::Span;
use crate::size::push_range;

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

    /// Adds a run, unless that makes as many driver calls as `most`. What is stale beside each
    /// other is unmapped at once.
    fn push(&mut self, run: MappedRun, most: usize) -> Option<()> {
        let both_stale =
            |last: &&mut MappedRun| (last.to, run.to) == (Target::Stale, Target::Stale);
        let last = self.runs.last_mut().filter(both_stale);
        self.calls += run.calls() - usize::from(last.is_some());
        if self.calls >= most {
            return None;
        }
        match last {
            Some(last) => last.pages += run.pages,
            None => self.runs.push(run),
        }
        Some(())
    }

    /// Whether something has to be unmapped first.
    pub(crate) fn is_stale(&self) -> bool {
        self.runs.iter().any(|run| run.to == Target::Stale)
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
        in_order(self.runs.iter().filter_map(range).collect())
    }

    /// The addresses that are stale, of a window that starts here, range by range.
    fn stale(&self, window: u64, granule_bytes: u64) -> Vec<Range<u64>> {
        let mut start = window;
        let mut stale: Vec<Range<u64>> = Vec::new();
        for run in &self.runs {
            let end = start + run.pages as u64 * granule_bytes;
            if run.to == Target::Stale {
                push_range(&mut stale, start..end);
            }
            start = end;
        }
        stale
    }

    /// Of pages that lead to the same granule the first keeps it.
    fn lose_doubles(&mut self, granule_bytes: u64) {
        if self.runs.len() < 2 {
            return;
        }
        let hits = self.hits(granule_bytes);
        if hits.windows(2).all(|pair| pair[0].end <= pair[1].start) {
            return;
        }
        let mut seen: Vec<Range<u64>> = Vec::new();
        let mut fit = WindowFit { room: self.room, ..Self::default() };
        for run in &self.runs {
            // Never with the run before: a hit lies in one donor.
            let is_seen = |granule| seen.iter().any(|range| range.contains(&granule));
            let pages = (0..run.pages as u64).map(|at| match run.to {
                Target::Hit(first) if is_seen(first + at * granule_bytes) => Target::Stale,
                Target::Hit(first) => Target::Hit(first + at * granule_bytes),
                to => to,
            });
            for run in run::runs(pages, granule_bytes) {
                // Never refused: there is no most.
                let _ = fit.push(run, usize::MAX);
            }
            if let Target::Hit(first) = run.to {
                seen.push(first..first + run.pages as u64 * granule_bytes);
            }
        }
        *self = fit;
    }
}

/// Ranges of addresses, sorted.
fn in_order(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_cached_key(|range| range.start);
    ranges
}

impl Span<'_> {
    /// How a request of so many granules fits into a window, at its front. `None` if to back it
    /// takes as many driver calls as `most`, something has to be unmapped that cannot be, or no
    /// free handles fit.
    pub(crate) fn fit(
        &self,
        granules: usize,
        donors: &Donors,
        can_unmap: bool,
        most: usize,
    ) -> Option<WindowFit> {
        let mut fit = self.fit_runs(granules, donors, can_unmap, most)?;
        fit.lose_doubles(self.table.granule_bytes);
        let is_fit = fit.calls < most && (can_unmap || !fit.is_stale());
        (is_fit && self.table.has_picks(&fit, donors)).then_some(fit)
    }

    /// The same, whatever else leads to the same memory.
    fn fit_runs(
        &self,
        granules: usize,
        donors: &Donors,
        can_unmap: bool,
        most: usize,
    ) -> Option<WindowFit> {
        let mut fit = WindowFit::default();
        let (table, first) = (self.table, self.pages().start);
        let (pages, mut left) = (table.pages(self.segment), granules);
        for &run in pages.runs(first) {
            let mut rest = MappedRun { pages: run.pages.min(left), ..run };
            left -= rest.pages;
            if run.to == Target::Unmapped {
                fit.room = run.pages - rest.pages;
            }
            while rest.pages > 0 {
                let run = donors.first_run(&mut rest, table.granule_bytes);
                if run.to == Target::Stale && !can_unmap {
                    return None;
                }
                fit.push(run, most)?;
            }
            if left == 0 {
                // A handle is taken, or unmapped, as a whole.
                let after = pages.granule(first + granules);
                let rest = after.map_or(0, |id| table.granules.after(id));
                match fit.runs.last_mut() {
                    Some(MappedRun { pages, to: Target::Hit(_) }) => *pages += rest,
                    Some(MappedRun { to: Target::Stale, .. }) => fit.room = rest,
                    _ => {}
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

impl Span<'_> {
    /// What is stale in a window, as whole mappings: the ranges that are to be unmapped.
    pub(crate) fn stale(&self, fit: &WindowFit) -> Vec<Range<u64>> {
        let mut whole: Vec<Range<u64>> = Vec::new();
        for range in fit.stale(self.addresses.start, self.table.granule_bytes) {
            push_range(&mut whole, self.table.span(self.segment, range).handles_around());
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: u64 = 2 << 20;

    fn hit(pages: usize, first: u64) -> MappedRun {
        MappedRun { pages, to: Target::Hit(first * GRANULE) }
    }

    fn stale(pages: usize) -> MappedRun {
        MappedRun { pages, to: Target::Stale }
    }

    /// Two runs that go on from each other lie in two free blocks, of two streams: each is claimed
    /// on its own.
    #[test]
    fn i13_runs_of_two_donors_stay_apart_where_others_lose_doubles() {
        let runs = vec![hit(3, 5), hit(2, 8), hit(4, 17), hit(2, 18)];
        let mut fit = WindowFit { runs, ..WindowFit::default() };
        fit.lose_doubles(GRANULE);
        assert_eq!(fit.runs, [hit(3, 5), hit(2, 8), hit(4, 17), stale(2)]);
        assert_eq!((fit.calls, fit.gaps()), (3, vec![2]));
        let taken = fit.hits(GRANULE);
        assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start), "{taken:?}");
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn of_a_run_only_the_pages_are_lost_that_are_doubled() {
        let mut fit = WindowFit { runs: vec![hit(3, 7), hit(4, 7)], ..WindowFit::default() };
        fit.lose_doubles(GRANULE);
        assert_eq!(fit.runs, [hit(3, 7), stale(3), hit(1, 10)]);
    }
}
