//! Proves I13, as far as it is about pages and granules, and I16: what stands behind the addresses.

use std::ops::RangeInclusive;

use crate::id::SegmentIx;

use super::PageTable;
use super::granule::{GranuleState, PageAddr};
use super::span::Span;
use crate::broken::{Broken, hold};
use crate::space::block::BlockIndex;

/// What the checks of the blocks ask of the page that one lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageView {
    /// Backed by the granule it leads to.
    pub(crate) is_backed: bool,
    /// And so is another page.
    pub(crate) is_shared: bool,
    /// The home of a granule that backs another page.
    pub(crate) is_remapped: bool,
    /// The block that is noted there for that.
    pub(crate) remapped: BlockIndex,
}

impl Span<'_> {
    /// The pages that it touches.
    pub(crate) fn views(&self) -> impl Iterator<Item = PageView> + '_ {
        let (table, segment) = (self.table, self.segment);
        self.touched().map(move |at| {
            let page = PageAddr { segment, page: at as u32 };
            let granule = table.pages(segment).granule(at);
            let owner = granule.filter(|&id| table.granules.home(id) == Some(page));
            let is_remapped = owner.is_some_and(|id| {
                let state = table.granules.state(id);
                matches!(state, GranuleState::Backing(other) if other != page)
            });
            let remapped = table.pages(segment).remapped(at);
            let is_shared = granule.is_some_and(|id| {
                table.guests.iter().any(|&guest| table.granule_behind(guest) == id)
            });
            PageView { is_backed: table.is_backed(page), is_shared, is_remapped, remapped }
        })
    }

    fn touched(&self) -> RangeInclusive<usize> {
        let page_at = |address| self.table.page_at(self.segment, address);
        page_at(self.addresses.start)..=page_at(self.addresses.end - 1)
    }

    /// Whether all of it is backed; or, in a private pool, leads to memory (I12).
    #[inline(never)]
    pub(crate) fn stays(&self, is_private: bool) -> bool {
        let (table, segment) = (self.table, self.segment);
        self.touched().all(|at| {
            let page = PageAddr { segment, page: at as u32 };
            let is_mapped = table.pages(segment).granule(at).is_some();
            table.is_backed(page) || is_private && is_mapped
        })
    }

    /// How many bytes are backed, those of shared granules at their own pages.
    pub(crate) fn backed_bytes(&self) -> u64 {
        let table = self.table;
        let is_own = |page| table.is_backed(page) && !table.guests.contains(&page);
        let backed = self.mapped_pages().filter(|&(page, _)| is_own(page));
        backed.count() as u64 * self.table.granule_bytes
    }
}

impl PageTable {
    /// Proves that the two halves of the map agree, and that handles stay whole; and that what is
    /// reserved beyond the classes is idle (I8); and that whatever is pinned is backed (I16).
    /// `is_private` tells of an address whether it is, or was, a private pool's; `None` where plain
    /// memory is.
    pub(crate) fn check(
        &self,
        reserved_bytes: u64,
        classes_bytes: u64,
        is_private: impl Fn(u64) -> Option<bool>,
    ) -> Result<(), Broken> {
        self.check_i13_windows_know_their_runs()?;
        self.check_i13_granules_and_pages_agree()?;
        self.check_i13_handles_stay_whole()?;
        self.check_i8_the_rest_is_idle(reserved_bytes, classes_bytes)?;
        self.check_i16_pinned_memory_stays(is_private)
    }

    pub(super) fn check_i16_pinned_memory_stays(
        &self,
        is_private: impl Fn(u64) -> Option<bool>,
    ) -> Result<(), Broken> {
        for (address, end) in self.pins.ranges() {
            let last = self.tables().filter(|(_, pages)| pages.address <= address);
            let table = last.max_by_key(|(_, pages)| pages.address);
            let stays = is_private(address).is_none_or(|is_private| {
                table.is_some_and(|(ix, _)| self.span(ix, address..end).stays(is_private))
            });
            hold(16, stays, || format!("pinned {address:#x} to {end:#x} is not backed"))?;
        }
        Ok(())
    }

    /// The mapped segments, by their names.
    fn tables(&self) -> impl Iterator<Item = (SegmentIx, &super::page::Pages)> {
        let tables = self.segments.iter().enumerate();
        tables.filter_map(|(ix, pages)| Some((SegmentIx(ix as u32), pages.as_ref()?)))
    }

    fn is_backed(&self, page: PageAddr) -> bool {
        let granule = self.pages(page.segment).granule(page.page as usize);
        granule.is_some_and(|id| match self.granules.state(id) {
            GranuleState::Backing(backed) => backed == page || self.guests.contains(&page),
            GranuleState::Planned | GranuleState::Idle | GranuleState::Vacant => false,
        })
    }

    /// Reserved bytes of all are those of both classes and the idle granules. Of granules in plans
    /// under way only the plans know.
    fn check_i8_the_rest_is_idle(&self, reserved: u64, classes: u64) -> Result<(), Broken> {
        let count = |state| self.granules.iter().filter(|granule| granule.1 == state).count();
        let bytes = |state| count(state) as u64 * self.granule_bytes;
        let least = classes + bytes(GranuleState::Idle);
        let most = least + bytes(GranuleState::Planned);
        hold(8, (least..=most).contains(&reserved), || {
            format!("{reserved} bytes reserved, from {least} to {most} accounted for")
        })
    }

    fn check_i13_windows_know_their_runs(&self) -> Result<(), Broken> {
        for (ix, pages) in self.tables() {
            let mut end = 0;
            for first in pages.windows_in(0..usize::MAX) {
                let (noted, found) = (pages.runs(first), self.runs_from_pages(ix, first));
                let is_beside = first >= end;
                end = first + pages.window_pages(first);
                hold(13, noted == found && is_beside, || {
                    format!("window {first} to {end} of {ix:?}: {noted:?}, not {found:?}")
                })?;
            }
        }
        Ok(())
    }

    /// Every page that leads to a granule is its home or one of its other mappings, and the other
    /// way round; a granule backs one of them, or none.
    fn check_i13_granules_and_pages_agree(&self) -> Result<(), Broken> {
        let mut mapped = 0;
        for (segment, pages) in self.tables() {
            for at in 0..pages.len() {
                let Some(id) = pages.granule(at) else { continue };
                let page = PageAddr { segment, page: at as u32 };
                mapped += 1;
                let is_home = self.granules.home(id) == Some(page);
                let is_known = is_home || self.granules.mappings(id).contains(&page);
                hold(13, is_known && !(is_home && pages.is_window), || {
                    format!("{page:?} leads to {id:?}, which does not know")
                })?;
            }
        }
        let mut known = 0;
        for (id, state) in self.granules.iter() {
            let home = self.granules.home(id);
            let all: Vec<PageAddr> =
                home.into_iter().chain(self.granules.mappings(id).iter().copied()).collect();
            for &page in &all {
                let pages = self.segments.get(page.segment.index()).and_then(Option::as_ref);
                let found = pages.and_then(|pages| pages.granule(page.page as usize));
                hold(13, found == Some(id), || format!("{id:?} is not at {page:?}: {found:?}"))?;
            }
            let agrees = match state {
                GranuleState::Backing(page) => all.contains(&page) && home.is_some(),
                GranuleState::Idle | GranuleState::Planned => home.is_none(),
                GranuleState::Vacant => all.is_empty(),
            };
            hold(13, agrees, || format!("{id:?} is {state:?}, home {home:?}, leads from {all:?}"))?;
            known += all.len();
        }
        let homes = self.granules.iter().filter(|&(id, _)| self.granules.home(id).is_some());
        let counted = homes.count() + self.granules.mapping_count;
        hold(13, known == counted && known == mapped, || {
            format!("{mapped} pages lead to granules, {known} are known, {counted} counted")
        })?;
        let is_away = |&(id, state): &(_, GranuleState)| match state {
            GranuleState::Backing(page) => self.granules.home(id) != Some(page),
            _ => false,
        };
        let (away, noted) = (self.granules.iter().filter(is_away).count(), self.remapped_granules);
        hold(13, away as u64 == noted, || format!("{away} granules are remapped, {noted} noted"))
    }

    /// The granules of a handle lie beside each other, in order, wherever they are.
    fn check_i13_handles_stay_whole(&self) -> Result<(), Broken> {
        let next_to = |state| match state {
            GranuleState::Backing(page) => GranuleState::Backing(page.next()),
            other => other,
        };
        for (id, state) in self.granules.iter().filter(|&(id, _)| self.granules.before(id) > 0) {
            let before = self.granules.of_handle(id).take_while(|&other| other != id).last();
            let Some(before) = before else { continue };
            let mappings = |id| self.granules.mappings(id).iter().copied();
            let is_beside = state == next_to(self.granules.state(before))
                && self.granules.home(id) == self.granules.home(before).map(PageAddr::next)
                && mappings(before).map(PageAddr::next).eq(mappings(id));
            hold(13, is_beside, || format!("{id:?} does not follow {before:?} of its handle"))?;
        }
        Ok(())
    }
}
