//! Picking: which free handles fill the gaps of a window.

use crate::id::SegmentIx;
use std::ops::Range;

use super::PageTable;
use super::donors::{Donors, Picked};
use super::window::WindowFit;

impl PageTable {
    /// What is free for the pages of a window that are to be mapped, in order: of the request's own
    /// stream first, from large blocks first and there from the end, so that few are cut. `None` if
    /// no handles fit; the last one may have as much too much as there is room for.
    pub(crate) fn pick(&self, fit: &WindowFit, donors: &Donors) -> Option<Vec<Picked>> {
        let gaps = fit.gaps();
        let mut picked = Vec::new();
        if gaps.is_empty() {
            return Some(picked);
        }
        let mut stock = donors.without(&fit.hits(self.granule_bytes));
        for (at, &gap) in gaps.iter().enumerate() {
            let mut left = gap as u64 * self.granule_bytes;
            for (segment, range) in &mut stock {
                let last = self.last_handles(*segment, range, left);
                assert!(last.end - last.start <= left, "more is picked than a gap takes");
                left -= last.end - last.start;
                range.end = last.start;
                if !last.is_empty() {
                    picked.push((*segment, last));
                }
                if left == 0 {
                    break;
                }
            }
            if left > 0 {
                if at + 1 < gaps.len() {
                    return None;
                }
                let most = left + fit.room as u64 * self.granule_bytes;
                let lasts = stock.iter().filter_map(|(segment, range)| {
                    Some((*segment, self.last_handle(*segment, range)?))
                });
                let bytes = |last: &Picked| last.1.end - last.1.start;
                let lasts = lasts.filter(|last| bytes(last) <= most);
                picked.push(lasts.min_by_key(bytes)?);
            }
        }
        Some(picked)
    }

    /// Whether free handles fit into the gaps of a window. Single granules always do.
    pub(crate) fn has_picks(&self, fit: &WindowFit, donors: &Donors) -> bool {
        !self.granules.has_large_handles() || self.pick(fit, donors).is_some()
    }

    /// The last whole handles of a range of them, of so many bytes at most.
    fn last_handles(&self, segment: SegmentIx, range: &Range<u64>, bytes: u64) -> Range<u64> {
        let last = range.start.max(range.end.saturating_sub(bytes))..range.end;
        if last.is_empty() || !self.granules.has_large_handles() {
            return last;
        }
        self.whole_handles(segment, last)
    }

    /// The last handle of a range of whole ones; `None` if it is empty.
    fn last_handle(&self, segment: SegmentIx, range: &Range<u64>) -> Option<Range<u64>> {
        let last = range.end - self.granule_bytes..range.end;
        (!range.is_empty()).then(|| self.handles_around(segment, last))
    }
}
