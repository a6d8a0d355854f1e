//! A range of a mapped segment's addresses, and what can be asked of it. Nothing here changes the
//! map.

use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

use super::PageTable;
use super::granule::{GranuleState, PageAddr};
use crate::size::{between, push_range, round_down, whole_units};
use crate::space::block::{Block, BlockIndex};

/// Addresses of one mapped segment.
#[derive(Clone, Debug)]
pub(crate) struct Span<'a> {
    pub(super) table: &'a PageTable,
    pub(super) segment: SegmentIx,
    pub(super) addresses: Range<u64>,
}

impl PageTable {
    /// A range of a segment's addresses.
    pub(crate) const fn span(&self, segment: SegmentIx, addresses: Range<u64>) -> Span<'_> {
        Span { table: self, segment, addresses }
    }

    /// The addresses of a block.
    pub(crate) const fn under(&self, block: &Block) -> Span<'_> {
        self.span(block.segment, block.range())
    }
}

impl<'a> Span<'a> {
    /// Other addresses of the same segment.
    #[inline]
    fn part(&self, addresses: Range<u64>) -> Self {
        Self { addresses, ..self.clone() }
    }

    // Where handles begin and end.

    /// The whole handles within; empty if there is none.
    #[inline]
    pub(crate) fn whole_handles(&self) -> Range<u64> {
        let Range { start, end } = self.granules();
        if start >= end || !self.table.granules.has_large_handles {
            return start..end;
        }
        let start = start + self.cut(start).1;
        // Most holes in large handles need but one look.
        if start >= end {
            return end..end;
        }
        let end = end - self.cut(end).0;
        start.min(end)..end
    }

    /// The whole granules within; empty if there is none.
    #[inline]
    pub(crate) fn granules(&self) -> Range<u64> {
        let Range { start, end } = self.addresses;
        whole_units(start, end, self.table.granule_bytes)
    }

    /// Bytes of whole granules within, of handles that are not.
    pub(crate) fn beside_live_bytes(&self) -> u64 {
        let (granules, handles) = (self.granules(), self.whole_handles());
        granules.end.saturating_sub(granules.start) - (handles.end - handles.start)
    }

    /// The first whole handles within, of so many bytes at most; or the first alone, if that
    /// reaches beyond by no more than it may.
    pub(crate) fn first_handles(&self, bytes: u64, beyond_bytes: u64) -> Range<u64> {
        let Range { start, end } = self.addresses;
        let fits = self.part(start..end.min(start.saturating_add(bytes))).whole_handles();
        if start >= end || !fits.is_empty() {
            return fits;
        }
        let first = start..self.part(start..start + self.table.granule_bytes).handles_around().end;
        let is_near = first.end - start <= bytes.saturating_add(beyond_bytes);
        if is_near && first.end <= end { first } else { start..start }
    }

    /// Tells what a request may take of a free block: ranges of whole handles that nobody has
    /// pinned.
    #[inline]
    pub(crate) fn to_take(&self, mut tell: impl FnMut(Range<u64>)) {
        let (whole, pins) = (self.whole_handles(), &self.table.pins);
        if whole.is_empty() {
            return;
        }
        if pins.is_empty() { tell(whole) } else { pins.free_of(whole).for_each(tell) }
    }

    /// What of a free block of a window can go home now that `freed` of it became so: whole
    /// handles. Empty if there are none.
    pub(crate) fn to_send_home(&self, freed: Range<u64>) -> Range<u64> {
        let whole = self.whole_handles();
        if whole.is_empty() {
            return whole;
        }
        let touched = self.part(freed).handles_around();
        whole.start.max(touched.start)..whole.end.min(touched.end)
    }

    /// The handles that it touches.
    pub(crate) fn handles_around(&self) -> Range<u64> {
        let start = round_down(self.addresses.start, self.table.granule_bytes);
        let end = self.addresses.end.next_multiple_of(self.table.granule_bytes);
        assert!(start < end, "nothing is around no addresses");
        if !self.table.granules.has_large_handles {
            return start..end;
        }
        start - self.cut(start).0..end + self.cut(end).1
    }

    /// How many bytes of the handle that an address lies in come before it and after it; 0 and 0
    /// where one begins.
    #[inline]
    fn cut(&self, address: u64) -> (u64, u64) {
        let Self { table, segment, .. } = *self;
        let granule = table.pages(segment).granule(table.page_at(segment, address));
        let (before, after) = granule.map_or((0, 0), |id| table.granules.cut(id));
        (u64::from(before) * table.granule_bytes, u64::from(after) * table.granule_bytes)
    }

    // What it leads to.

    /// The pages that it covers; it is one of whole granules.
    pub(super) fn pages(&self) -> Range<usize> {
        let page_at = |address| self.table.page_at(self.segment, address);
        page_at(self.addresses.start)..page_at(self.addresses.end)
    }

    /// The pages that lead to a granule, with what they lead to.
    pub(super) fn mapped_pages(&self) -> impl Iterator<Item = (PageAddr, GranuleId)> + use<'a> {
        let (segment, pages) = (self.segment, self.table.pages(self.segment));
        let Range { start, end } = self.pages();
        (start..end.min(pages.len())).filter_map(move |page| {
            Some((PageAddr { segment, page: page as u32 }, pages.granule(page)?))
        })
    }

    /// Whether no address leads to memory.
    pub(crate) fn is_unmapped(&self) -> bool {
        self.mapped_pages().next().is_none()
    }

    /// What leads to memory, as few ranges.
    pub(crate) fn mapped_ranges(&self) -> Vec<Range<u64>> {
        let granule_bytes = self.table.granule_bytes;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (page, _) in self.mapped_pages() {
            let start = self.table.address_of(page);
            push_range(&mut ranges, start..start + granule_bytes);
        }
        ranges
    }

    /// Where the granules behind it belong, range by range, each with the address here. A range
    /// lies in one segment.
    pub(crate) fn homes(&self) -> Vec<(u64, Range<u64>)> {
        let granule_bytes = self.table.granule_bytes;
        let mut homes: Vec<(u64, Range<u64>)> = Vec::new();
        let mut segment = None;
        for (page, id) in self.mapped_pages() {
            let Some(home) = self.table.granules.home(id) else { continue };
            let start = self.table.address_of(home);
            let is_same = segment.replace(home.segment) == Some(home.segment);
            match homes.last_mut() {
                Some((_, last)) if is_same && last.end == start => last.end += granule_bytes,
                _ => homes.push((self.table.address_of(page), start..start + granule_bytes)),
            }
        }
        homes
    }

    /// What of it leads to granules that belong to such segments, as few ranges.
    pub(crate) fn of_segments(&self, is_meant: impl Fn(SegmentIx) -> bool) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (page, id) in self.mapped_pages() {
            if self.table.granules.home(id).is_some_and(|home| is_meant(home.segment)) {
                let start = self.table.address_of(page);
                push_range(&mut ranges, start..start + self.table.granule_bytes);
            }
        }
        ranges
    }

    /// What leads to none.
    pub(crate) fn unmapped_ranges(&self) -> Vec<Range<u64>> {
        between(&self.addresses, self.mapped_ranges().into_iter())
    }

    /// Whether it leads to memory that backs nothing, or one of these ranges, by address.
    pub(crate) fn leads_to_any(&self, ranges: &[Range<u64>]) -> bool {
        self.mapped_pages().any(|(_, granule)| match self.table.granules.state(granule) {
            GranuleState::Backing(page) => {
                let address = self.table.address_of(page);
                let after = ranges.partition_point(|range| range.start <= address);
                ranges[..after].last().is_some_and(|range| address < range.end)
            }
            _ => true,
        })
    }

    /// The first handles of free memory at home that can all be released: not pinned, and mapped
    /// nowhere else. An empty range if there are none.
    pub(crate) fn releasable(&self) -> Range<u64> {
        let (table, pages) = (self.table, self.table.pages(self.segment));
        let Range { start, end } = self.whole_handles();
        if start >= end {
            return end..end;
        }
        let is_releasable = |&address: &u64| {
            let granule = pages.granule(table.page_at(self.segment, address));
            !table.pins.touch(address..address + table.granule_bytes)
                && granule.is_some_and(|id| table.granules.mappings(id).is_empty())
        };
        let mut addresses = (start..end).step_by(table.granule_bytes as usize);
        let start = addresses.find(is_releasable).unwrap_or(end);
        let end = addresses.find(|address| !is_releasable(address)).unwrap_or(end);
        start..end
    }

    // Pins.

    /// Whether others have the handle that it begins in.
    pub(crate) fn is_shared(&self) -> bool {
        let page = self.table.page_at(self.segment, self.addresses.start);
        let granule = self.table.pages(self.segment).granule(page);
        granule.is_some_and(|id| self.table.granules.is_shared(id))
    }

    /// Whether anything of it is pinned.
    pub(crate) fn is_pinned(&self) -> bool {
        self.table.pins.touch(self.addresses.clone())
    }

    /// What of whole handles is not pinned.
    pub(crate) fn unpinned(&self, whole: Range<u64>) -> Vec<Range<u64>> {
        self.table.pins.free_of(whole).collect()
    }

    /// How many bytes of whole handles are not pinned.
    pub(crate) fn unpinned_bytes(&self) -> u64 {
        let mut bytes = 0;
        self.to_take(|whole| bytes += whole.end - whole.start);
        bytes
    }

    /// The block at home that stands at its start, and whose granules are elsewhere.
    pub(crate) fn remapped(&self) -> BlockIndex {
        self.table.pages(self.segment).remapped(self.pages().start)
    }

    // Windows.

    /// The windows that begin within but not at its start, in order.
    pub(crate) fn windows_within(&self) -> Vec<u64> {
        let (pages, granule_bytes) = (self.table.pages(self.segment), self.table.granule_bytes);
        let Range { start, end } = self.pages();
        let inside = pages.windows_in(start + 1..end);
        inside.map(|page| pages.address + page as u64 * granule_bytes).collect()
    }

    /// Whether a window begins at its start.
    pub(crate) fn begins_window(&self) -> bool {
        self.table.pages(self.segment).window_pages(self.pages().start) > 0
    }

    /// Whether it is a window from end to end.
    pub(crate) fn is_whole_window(&self) -> bool {
        let pages = self.pages();
        self.table.pages(self.segment).window_pages(pages.start) == pages.len()
    }
}
