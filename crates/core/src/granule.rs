//! Granules: the store of physical memory, and who backs what.
//!
//! The heap names granules, whoever carries plans out keeps their handles by that name. Keeps I13:
//! each granule is created once and released once, and reserved bytes are the bytes of created
//! granules, mapped or not. A granule has a home, where it was mapped first and stays mapped, and
//! backs one place at most: its home, or one it is on loan to. Every place that leads to it beside
//! its home is known.

/// Names a granule. Reused after the granule was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GranuleId(pub(crate) u32);

impl GranuleId {
    /// Position in a table of handles that runs parallel to the heap's granules.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Marks a piece of a segment with nothing behind it.
pub(crate) const NO_GRANULE: u32 = u32::MAX;

/// A granule-sized piece of a mapped segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) slot: u32,
}

/// What a granule is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GranuleState {
    /// No handle: the name is free.
    Vacant,
    /// Part of a plan that creates, maps or releases it.
    Planned,
    /// Created, backs nothing.
    Idle,
    /// Created, backs this place.
    Backing(Place),
}

#[derive(Clone, Copy, Debug)]
struct Granule {
    state: GranuleState,
    /// Where it belongs, from when it first backed a place.
    home: Option<Place>,
}

/// All granules of a heap, of one size.
#[derive(Debug, Default)]
pub(crate) struct Granules {
    table: Vec<Granule>,
    /// By granule: the places beside its home that lead to it. Apart, since a loan into a berth of
    /// before does not touch them.
    mappings: Vec<Vec<Place>>,
    vacant: Vec<GranuleId>,
    idle: Vec<GranuleId>,
    mapping_count: usize,
}

impl Granules {
    /// A name for a granule that a plan will create.
    pub(crate) fn name(&mut self) -> GranuleId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(Granule { state: GranuleState::Vacant, home: None });
            self.mappings.push(Vec::new());
            GranuleId((self.table.len() - 1) as u32)
        });
        self.table[id.index()].state = GranuleState::Planned;
        id
    }

    /// Takes an idle granule for a plan.
    pub(crate) fn take_idle(&mut self, id: GranuleId) {
        self.idle.retain(|&other| other != id);
        self.table[id.index()].state = GranuleState::Planned;
    }

    /// Takes some idle granule for a plan.
    pub(crate) fn take_last_idle(&mut self) -> Option<GranuleId> {
        let id = self.idle.pop()?;
        self.table[id.index()].state = GranuleState::Planned;
        Some(id)
    }

    /// Granules that are created and back nothing.
    pub(crate) fn idle(&self) -> &[GranuleId] {
        &self.idle
    }

    /// Marks a granule as part of a plan; it keeps its handle.
    pub(crate) fn plan(&mut self, id: GranuleId) {
        self.table[id.index()].state = GranuleState::Planned;
    }

    /// A plan left the granule behind a place; the first such place is its home.
    #[inline]
    pub(crate) fn set_backing(&mut self, id: GranuleId, place: Place) {
        let granule = &mut self.table[id.index()];
        granule.state = GranuleState::Backing(place);
        granule.home.get_or_insert(place);
    }

    /// Where a granule belongs.
    #[inline]
    pub(crate) fn home(&self, id: GranuleId) -> Option<Place> {
        self.table[id.index()].home
    }

    /// A plan left the granule created and backing nothing.
    pub(crate) fn set_idle(&mut self, id: GranuleId) {
        self.table[id.index()].state = GranuleState::Idle;
        self.table[id.index()].home = None;
        self.idle.push(id);
    }

    /// A plan left the granule without a handle.
    pub(crate) fn set_vacant(&mut self, id: GranuleId) {
        self.table[id.index()].state = GranuleState::Vacant;
        self.table[id.index()].home = None;
        self.vacant.push(id);
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

    /// The places beside its home that lead to a granule.
    pub(crate) fn mappings(&self, id: GranuleId) -> &[Place] {
        &self.mappings[id.index()]
    }

    pub(crate) fn add_mapping(&mut self, id: GranuleId, place: Place) {
        self.mappings[id.index()].push(place);
        self.mapping_count += 1;
    }

    pub(crate) fn remove_mapping(&mut self, id: GranuleId, place: Place) {
        let mappings = &mut self.mappings[id.index()];
        if let Some(at) = mappings.iter().position(|&other| other == place) {
            mappings.swap_remove(at);
            self.mapping_count -= 1;
        }
    }

    /// How many places beside their homes lead to granules.
    pub(crate) const fn mapping_count(&self) -> usize {
        self.mapping_count
    }

    /// How many granules exist, or will once the plans under way are done.
    pub(crate) const fn len(&self) -> usize {
        self.table.len() - self.vacant.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_used_again_only_after_its_granule_was_released() {
        let mut granules = Granules::default();
        let [first, second] = [granules.name(), granules.name()];
        assert_ne!(first, second);
        let place = Place { segment: 0, slot: 3 };
        granules.set_backing(first, place);
        granules.set_idle(second);
        assert_eq!(granules.state(first), GranuleState::Backing(place));
        assert_eq!(granules.idle(), [second]);
        // Taken by one plan, it is not there for another.
        granules.take_idle(second);
        assert_eq!((granules.idle(), granules.state(second)), (&[][..], GranuleState::Planned));
        assert_eq!(granules.name().index(), 2);
        granules.set_vacant(second);
        assert_eq!(granules.len(), 2);
        assert_eq!(granules.name(), second);
        assert_eq!(granules.iter().count(), 3);
    }

    #[test]
    fn mappings_are_known_by_their_place() {
        let mut granules = Granules::default();
        let id = granules.name();
        let place = |slot| Place { segment: 0, slot };
        granules.add_mapping(id, place(1));
        granules.add_mapping(id, place(2));
        granules.remove_mapping(id, place(3));
        assert_eq!(granules.mapping_count(), 2);
        granules.remove_mapping(id, place(1));
        assert_eq!((granules.mapping_count(), granules.mappings(id)), (1, &[place(2)][..]));
    }

    #[test]
    fn the_first_place_is_the_home_until_the_granule_is_released() {
        let mut granules = Granules::default();
        let id = granules.name();
        let [home, loan] = [1, 2].map(|slot| Place { segment: 0, slot });
        granules.set_backing(id, home);
        granules.set_backing(id, loan);
        assert_eq!(granules.home(id), Some(home));
        granules.set_vacant(id);
        assert_eq!((granules.name(), granules.home(id)), (id, None));
    }
}
