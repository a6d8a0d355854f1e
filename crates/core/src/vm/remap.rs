//! Remapping: which granules that are free at home will back a window, and the steps that takes.

use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

use super::PageTable;
use super::donors::{Donor, Donors, Picked};
use super::run::{MappedRun, Target};
use super::window::WindowFit;
use crate::plan::Step;
use crate::policy;
use crate::space::block::Block;

/// What a remap takes, and what it does to the device.
#[derive(Debug)]
pub(crate) struct Remap {
    /// Size of what is used of the window.
    pub(crate) bytes: u64,
    /// What is taken at home, by address.
    pub(crate) taken: Vec<Picked>,
    /// One map for each handle where the window leads nowhere, then access, once for each range.
    pub(crate) steps: Vec<Step>,
}

impl PageTable {
    /// Plans a remap into the front of a block that fits so: a window, or addresses that lead
    /// nowhere, of which as many become one as it takes. `None`, and nothing has changed, if no
    /// free handles fit.
    pub(crate) fn plan_remap(
        &mut self,
        window: &Block,
        mut fit: WindowFit,
        donors: &Donors,
    ) -> Option<Remap> {
        assert!(window.is_window, "memory is remapped to homes");
        let (picked, 0) = self.pick(&fit, donors) else { return None };
        let spans = picked.iter().map(|part| self.span(part.segment, part.range.clone()));
        let granules: Vec<GranuleId> =
            spans.flat_map(|span| span.mapped_pages()).map(|page| page.1).collect();
        let gaps: usize = fit.gaps().iter().sum();
        assert!(granules.len() >= gaps, "fewer granules were picked than there are gaps");
        fit.lengthen(granules.len() - gaps);
        let bytes = fit.pages() as u64 * self.granule_bytes;
        let mut taken = picked;
        for range in fit.hits(self.granule_bytes) {
            let donor = donors.holding(range.start, range.end);
            assert!(donor.is_some(), "a window leads to what no donor has");
            let part = |&Donor { block, segment, .. }: &_| Picked { block, segment, range };
            taken.extend(donor.map(part));
        }
        taken.sort_by_cached_key(|part| part.range.start);
        let steps = self.remap_steps(window.address, &fit, &granules);
        let first = self.page_at(window.segment, window.address);
        let windows = self.pages_mut(window.segment);
        if windows.runs(first).is_empty() {
            let run = MappedRun { pages: fit.pages(), to: Target::Unmapped };
            windows.set_runs(first, vec![run]);
        }
        Some(Remap { bytes, taken, steps })
    }

    /// What is free for the pages of a window that are to be mapped, in order: of the request's own
    /// stream first, from large blocks first and there from the end, so that few are cut. The last
    /// one may have as much too much as there is room for. Also tells how many bytes nothing that
    /// is free fits into.
    pub(super) fn pick(&self, fit: &WindowFit, donors: &Donors) -> (Vec<Picked>, u64) {
        let gaps = fit.gaps();
        let mut picked = Vec::new();
        if gaps.is_empty() {
            return (picked, 0);
        }
        let hits = fit.hits(self.granule_bytes);
        let mut stock = donors.without(&hits);
        for (at, &gap) in gaps.iter().enumerate() {
            let bytes = gap as u64 * self.granule_bytes;
            let (before, mut left) = (picked.len(), bytes);
            for at in 0.. {
                let Some(Picked { block, segment, range }) = stock.piece(at) else { break };
                let start = range.start.max(range.end.saturating_sub(left));
                let last = self.span(*segment, start..range.end).whole_handles();
                assert!(last.end - last.start <= left, "more is picked than a gap takes");
                left -= last.end - last.start;
                range.end = last.start;
                if !last.is_empty() {
                    picked.push(Picked { block: *block, segment: *segment, range: last });
                }
                if left == 0 {
                    break;
                }
            }
            if left == 0 {
                continue;
            }
            if at + 1 < gaps.len() {
                return (picked, left);
            }
            let room_bytes = fit.room as u64 * self.granule_bytes;
            let most = left + room_bytes.min(policy::LAST_HANDLE_BEYOND_BYTES);
            if let Some(last) = self.pick_last(most, stock.all()) {
                picked.push(last);
            } else if at == 0 {
                picked.truncate(before);
                let left = self.pick_by_size(bytes, donors.without(&hits).all(), &mut picked);
                return (picked, left);
            } else {
                return (picked, left);
            }
        }
        (picked, 0)
    }

    /// Picks handles for so many bytes, the largest first, or the largest but some: where 64 and 64
    /// fill 128, 112 would leave a rest. Returns how many bytes they leave.
    fn pick_by_size(&self, bytes: u64, stock: &[Picked], picked: &mut Vec<Picked>) -> u64 {
        let mut handles: Vec<Picked> = stock.iter().flat_map(|piece| self.handles(piece)).collect();
        let size = |handle: &Picked| handle.range.end - handle.range.start;
        handles.sort_by_cached_key(|handle| u64::MAX - size(handle));
        let take =
            |left, handle: &Picked| left - if size(handle) <= left { size(handle) } else { 0 };
        let (mut best, mut first, mut at) = (u64::MAX, 0, 0);
        while let Some(largest) = handles.get(at).filter(|_| best > 0) {
            let left = handles[at..].iter().fold(bytes, take);
            if left < best {
                (best, first) = (left, at);
            }
            let is_as_large = |handle: &&Picked| size(handle) == size(largest);
            at += handles[at..].iter().take_while(is_as_large).count();
        }
        handles.drain(..first);
        let mut left = bytes;
        handles.retain(|handle| {
            let before = left;
            left = take(left, handle);
            left < before
        });
        picked.append(&mut handles);
        left
    }

    /// The whole handles of a part, the last first.
    fn handles(&self, part: &Picked) -> impl Iterator<Item = Picked> + use<'_> {
        let part = part.clone();
        let mut left = part.range.clone();
        std::iter::from_fn(move || {
            let range = self.last_handle(part.segment, &left)?;
            left.end = range.start;
            Some(Picked { range, ..part.clone() })
        })
    }

    /// How many handles a remap to a window that fits so takes, and of how many bytes it is short.
    pub(crate) fn to_take(&self, fit: &WindowFit, donors: &Donors) -> (u64, u64) {
        let (picked, missing_bytes) = self.pick(fit, donors);
        (picked.iter().map(|part| self.handles(part).count() as u64).sum(), missing_bytes)
    }

    /// What serves the last bytes: the smallest handle that they fit into, if it is no larger than
    /// it may be.
    fn pick_last(&self, most: u64, stock: &[Picked]) -> Option<Picked> {
        let lasts = stock.iter().filter_map(|piece| {
            let range = self.last_handle(piece.segment, &piece.range)?;
            (range.end - range.start <= most).then(|| Picked { range, ..piece.clone() })
        });
        lasts.min_by_key(|last| last.range.end - last.range.start)
    }

    /// The last handle of a range of whole ones; `None` if it is empty.
    fn last_handle(&self, segment: SegmentIx, range: &Range<u64>) -> Option<Range<u64>> {
        let last = range.end - self.granule_bytes..range.end;
        (!range.is_empty()).then(|| self.span(segment, last).handles_around())
    }

    /// The steps that map granules, in order, where a window leads nowhere.
    fn remap_steps(&self, window: u64, fit: &WindowFit, granules: &[GranuleId]) -> Vec<Step> {
        let granule_bytes = self.granule_bytes;
        let mut steps = Vec::with_capacity(granules.len() + fit.runs.len());
        let mut granules = granules.iter();
        let mut address = window;
        for &MappedRun { pages, to } in &fit.runs {
            let end = address + pages as u64 * granule_bytes;
            if to == Target::Unmapped {
                let addresses = (address..end).step_by(granule_bytes as usize);
                let places = addresses.zip(granules.by_ref());
                let handles = places.filter(|&(_, &id)| self.granules.before(id) == 0);
                steps.extend(handles.map(|(address, &granule)| {
                    let bytes = self.handle_bytes(granule);
                    Step::Map { address, bytes, granule }
                }));
                steps.push(Step::SetAccess { address, bytes: end - address });
            }
            address = end;
        }
        assert!(granules.next().is_none(), "more granules were picked than there are gaps");
        steps
    }
}
