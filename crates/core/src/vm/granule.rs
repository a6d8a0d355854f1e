//! Granules: the store of physical memory, and who backs what.
//!
//! The device creates, maps and releases memory by handles. A handle is one granule or a few that
//! lie beside each other wherever they are mapped; its first granule names it. The heap knows the
//! names, whoever carries plans out keeps the driver's own value for each.
//!
//! Keeps I13: each granule is created once and released once, and reserved bytes are the bytes of
//! created granules, mapped or not. A granule has a home, where it was mapped first and stays
//! mapped, and backs one page at most: its home, or one of a window. Every page that leads to it
//! beside its home is known. The granules of a handle go everywhere together.

use std::ops::Range;

use crate::id::{GranuleId, SegmentIx};
use crate::shared::SharedBy;

/// A granule-sized piece of a mapped segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageAddr {
    pub(crate) segment: SegmentIx,
    pub(crate) page: u32,
}

impl PageAddr {
    /// Its place among all. Whatever is sorted is sorted by such a number: the code of a sort by
    /// another type is 3 KB.
    pub(crate) fn number(self) -> u64 {
        (self.segment.index() as u64) << 32 | u64::from(self.page)
    }

    /// The page after it.
    pub(super) const fn next(self) -> Self {
        Self { page: self.page + 1, ..self }
    }
}

/// What a granule is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GranuleState {
    /// No memory: the name is free.
    Vacant,
    /// Backs nothing, and is part of a plan that creates, maps or releases it.
    Planned,
    /// Created, backs nothing.
    Idle,
    /// Created, backs this page.
    Backing(PageAddr),
}

#[derive(Clone, Copy, Debug)]
struct Granule {
    state: GranuleState,
    /// Where it belongs, from when it first backed a page.
    home: Option<PageAddr>,
    /// How many granules of its handle lie before it.
    before: u16,
    /// How many its handle has.
    of: u16,
    /// By which calls others know its handle, too, as bits: if by any, it is the memory of its
    /// addresses for as long as it exists.
    shared_by: u8,
    /// It is the host's memory.
    is_on_host: bool,
}

/// All granules of a heap, of one size.
#[derive(Debug, Default)]
pub(crate) struct Granules {
    table: Vec<Granule>,
    /// By granule: the pages beside its home that lead to it. Apart, since a remap into a window
    /// of before does not touch them.
    mappings: Vec<Vec<PageAddr>>,
    /// Handles without memory, to be used again, by how many granules they have.
    vacant: Vec<Vec<GranuleId>>,
    /// Handles that back nothing.
    idle: Vec<GranuleId>,
    /// How many granules they have.
    pub(super) idle_count: usize,
    /// Handles of the host's memory.
    on_host: Vec<GranuleId>,
    /// How many pages beside their homes lead to granules.
    pub(super) mapping_count: usize,
    /// Some handle has, or had, more than one granule.
    pub(super) has_large_handles: bool,
}

impl Granules {
    /// A name for a handle of so many granules that a plan will create.
    pub(crate) fn name(&mut self, granules: u16) -> GranuleId {
        assert!(granules > 0, "a handle has no granule");
        if let Some(id) = self.vacant.get_mut(usize::from(granules)).and_then(Vec::pop) {
            assert!(self.state(id) == GranuleState::Vacant, "a name is given to two handles");
            self.plan(id);
            return id;
        }
        assert!(self.table.len() < u32::MAX as usize / 2, "more granules than names");
        let id = GranuleId(self.table.len() as u32);
        self.has_large_handles |= granules > 1;
        for before in 0..granules {
            let state = GranuleState::Planned;
            let (shared_by, is_on_host) = (0, false);
            let of = granules;
            self.table.push(Granule { state, home: None, before, of, shared_by, is_on_host });
            self.mappings.push(Vec::new());
        }
        id
    }

    /// Takes idle handles for a plan.
    pub(crate) fn take_idle(&mut self, handles: &[GranuleId]) {
        for &id in handles {
            assert!(self.state(id) == GranuleState::Idle, "idle memory is taken twice");
            self.idle_count -= self.handle(id).len();
            self.plan(id);
        }
        self.forget_taken();
    }

    /// Forgets of the idle handles those that are so no more.
    pub(crate) fn forget_taken(&mut self) {
        let table = &self.table;
        self.idle.retain(|id| table[id.index()].state == GranuleState::Idle);
    }

    /// Handles of the device's memory that are created and back nothing.
    pub(crate) fn idle(&self) -> impl DoubleEndedIterator<Item = GranuleId> {
        self.all_idle().filter(|&id| !self.is_on_host(id))
    }

    /// All handles that are created and back nothing.
    pub(crate) fn all_idle(&self) -> impl DoubleEndedIterator<Item = GranuleId> {
        self.idle.iter().copied()
    }

    /// Marks a handle as part of a plan; its memory stays.
    fn plan(&mut self, id: GranuleId) {
        self.set(id, |granule| granule.state = GranuleState::Planned);
    }

    /// The positions of all granules of a granule's handle.
    #[inline]
    pub(crate) fn handle(&self, id: GranuleId) -> Range<usize> {
        let granule = &self.table[id.index()];
        let first = id.index() - usize::from(granule.before);
        first..first + usize::from(granule.of)
    }

    /// All granules of a granule's handle, in order.
    pub(crate) fn of_handle(&self, id: GranuleId) -> impl Iterator<Item = GranuleId> + use<> {
        self.handle(id).map(|at| GranuleId(at as u32))
    }

    /// How many granules of its handle lie before a granule; 0 for the one that names the handle.
    #[inline]
    pub(crate) fn before(&self, id: GranuleId) -> usize {
        usize::from(self.table[id.index()].before)
    }

    /// How many granules of a handle follow where it was cut before this one; 0 where one begins.
    pub(crate) fn after(&self, id: GranuleId) -> usize {
        usize::from(self.cut(id).1)
    }

    /// How many granules its handle has on either side of a cut before a granule; 0 and 0 where a
    /// handle begins.
    #[inline]
    pub(crate) fn cut(&self, id: GranuleId) -> (u16, u16) {
        let Granule { before, of, .. } = self.table[id.index()];
        (before, if before == 0 { 0 } else { of - before })
    }

    fn set(&mut self, id: GranuleId, change: impl Fn(&mut Granule)) {
        let handle = self.handle(id);
        assert!(handle.start == id.index(), "a handle is named by another than its first granule");
        self.table[handle].iter_mut().for_each(change);
    }

    /// Notes that others have a handle, too.
    pub(crate) fn set_shared(&mut self, id: GranuleId, by: SharedBy) {
        self.set(id, |granule| granule.shared_by |= by.bit());
    }

    /// Whether others have, or had, a granule's handle.
    pub(crate) fn is_shared(&self, id: GranuleId) -> bool {
        self.table[id.index()].shared_by != 0
    }

    /// How many handles others know by a call, and how many granules those have.
    pub(crate) fn shared_by(&self, by: SharedBy) -> (u64, u64) {
        let shared = self.table.iter().filter(|granule| granule.shared_by & by.bit() != 0);
        shared.fold((0, 0), |(handles, granules), granule| {
            (handles + u64::from(granule.before == 0), granules + 1)
        })
    }

    /// Handles of the host's memory, which a plan makes or that were made.
    pub(crate) fn on_host(&self) -> &[GranuleId] {
        &self.on_host
    }

    /// How many granules they have.
    pub(crate) fn on_host_count(&self) -> usize {
        self.on_host.iter().map(|&id| self.handle(id).len()).sum()
    }

    /// A plan creates a handle of the host's memory.
    pub(crate) fn set_on_host(&mut self, id: GranuleId) {
        self.set(id, |granule| granule.is_on_host = true);
        self.on_host.push(id);
    }

    /// Whether a granule is the host's memory.
    pub(crate) fn is_on_host(&self, id: GranuleId) -> bool {
        self.table[id.index()].is_on_host
    }

    /// A plan left the granule behind a page; the first such page is its home.
    #[inline]
    pub(crate) fn set_backing(&mut self, id: GranuleId, page: PageAddr) {
        let granule = &mut self.table[id.index()];
        assert!(granule.state != GranuleState::Vacant, "released memory backs a page");
        granule.state = GranuleState::Backing(page);
        granule.home.get_or_insert(page);
    }

    /// Where a granule belongs.
    #[inline]
    pub(crate) fn home(&self, id: GranuleId) -> Option<PageAddr> {
        self.table[id.index()].home
    }

    /// Whether a granule backs its home.
    pub(crate) fn is_home(&self, id: GranuleId) -> bool {
        let Granule { state, home, .. } = self.table[id.index()];
        home.is_some_and(|home| state == GranuleState::Backing(home))
    }

    /// A plan left the handle created and backing nothing.
    pub(crate) fn set_idle(&mut self, id: GranuleId) {
        assert!(
            !matches!(self.state(id), GranuleState::Idle | GranuleState::Vacant),
            "a handle becomes idle that is idle or released"
        );
        self.set(id, |granule| (granule.state, granule.home) = (GranuleState::Idle, None));
        self.idle.push(id);
        self.idle_count += self.handle(id).len();
    }

    /// A plan did not come to use the handle, if it still is that plan's.
    pub(crate) fn end_plan(&mut self, id: GranuleId) {
        if self.state(id) == GranuleState::Planned {
            self.set_idle(id);
        }
    }

    /// A plan left the handle without memory. One that was idle is to be forgotten as such.
    pub(crate) fn set_vacant(&mut self, id: GranuleId) {
        let is_idle = self.state(id) == GranuleState::Idle;
        let is_planned = self.state(id) == GranuleState::Planned;
        assert!(is_idle || is_planned, "a handle is released that backs something, or is none");
        self.idle_count -= if is_idle { self.handle(id).len() } else { 0 };
        self.set(id, |granule| {
            (granule.state, granule.home) = (GranuleState::Vacant, None);
            (granule.shared_by, granule.is_on_host) = (0, false);
        });
        self.on_host.retain(|&other| other != id);
        let granules = self.handle(id).len();
        if self.vacant.len() <= granules {
            self.vacant.resize_with(granules + 1, Vec::new);
        }
        self.vacant[granules].push(id);
    }

    /// What a granule is.
    #[inline]
    pub(crate) fn state(&self, id: GranuleId) -> GranuleState {
        self.table[id.index()].state
    }

    /// Every granule's name and state.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GranuleId, GranuleState)> + '_ {
        self.table.iter().enumerate().map(|(i, granule)| (GranuleId(i as u32), granule.state))
    }

    /// The pages beside its home that lead to a granule.
    pub(crate) fn mappings(&self, id: GranuleId) -> &[PageAddr] {
        &self.mappings[id.index()]
    }

    pub(crate) fn add_mapping(&mut self, id: GranuleId, page: PageAddr) {
        self.mappings[id.index()].push(page);
        self.mapping_count += 1;
    }

    pub(crate) fn remove_mapping(&mut self, id: GranuleId, page: PageAddr) {
        let mappings = &mut self.mappings[id.index()];
        let at = mappings.iter().position(|&other| other == page);
        assert!(at.is_some(), "a mapping is undone that is not known");
        at.map(|at| mappings.swap_remove(at));
        self.mapping_count -= 1;
    }

    /// How many granules exist, or will once the plans under way are done.
    pub(crate) fn len(&self) -> usize {
        let vacant = self.vacant.iter().enumerate().map(|(granules, ids)| ids.len() * granules);
        self.table.len() - vacant.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(page: u32) -> PageAddr {
        PageAddr { segment: SegmentIx(0), page }
    }

    #[test]
    fn a_name_is_used_again_only_after_its_granule_was_released() {
        let mut granules = Granules::default();
        let [first, second] = [granules.name(1), granules.name(1)];
        assert_ne!(first, second);
        let place = page_of(3);
        granules.set_backing(first, place);
        granules.set_idle(second);
        assert_eq!(granules.state(first), GranuleState::Backing(place));
        assert!(granules.idle().eq([second]));
        // Taken by one plan, it is not there for another.
        granules.take_idle(&[second]);
        assert_eq!((granules.idle().count(), granules.state(second)), (0, GranuleState::Planned));
        assert_eq!(granules.name(1).index(), 2);
        granules.set_vacant(second);
        assert_eq!(granules.len(), 2);
        assert_eq!(granules.name(1), second);
        assert_eq!(granules.iter().count(), 3);
    }

    #[test]
    fn a_handle_is_created_and_released_as_one() {
        let mut granules = Granules::default();
        let [large, single] = [granules.name(4), granules.name(1)];
        assert_eq!((granules.handle(large), granules.handle(single)), (0..4, 4..5));
        let third = GranuleId(2);
        assert_eq!((granules.before(third), granules.handle(third)), (2, 0..4));
        granules.set_idle(large);
        assert_eq!((granules.idle_count, granules.state(third)), (4, GranuleState::Idle));
        granules.take_idle(&[large]);
        granules.set_vacant(large);
        assert_eq!(granules.len(), 1);
        // Only a handle of the same size takes its names.
        assert_eq!((granules.name(2).index(), granules.name(4)), (5, large));
        assert_eq!(granules.len(), 7);
    }

    #[test]
    fn mappings_are_known_by_their_place() {
        let mut granules = Granules::default();
        let id = granules.name(1);
        let place = page_of;
        granules.add_mapping(id, place(1));
        granules.add_mapping(id, place(2));
        assert_eq!(granules.mapping_count, 2);
        granules.remove_mapping(id, place(1));
        assert_eq!((granules.mapping_count, granules.mappings(id)), (1, &[place(2)][..]));
    }

    #[test]
    fn the_first_place_is_the_home_until_the_granule_is_released() {
        let mut granules = Granules::default();
        let id = granules.name(1);
        let [home, away] = [1, 2].map(page_of);
        granules.set_backing(id, home);
        granules.set_backing(id, away);
        assert_eq!(granules.home(id), Some(home));
        granules.plan(id);
        granules.set_vacant(id);
        assert_eq!((granules.name(1), granules.home(id)), (id, None));
    }
}
