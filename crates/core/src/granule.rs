//! Granules: the store of physical memory, and who backs what.
//!
//! The heap names granules, whoever carries plans out keeps their handles by that name. Keeps I13:
//! each granule is created once and released once, and reserved bytes are the bytes of created
//! granules, mapped or not. A granule backs one place at most; other addresses that still lead to
//! it are its aliases, and hollow.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

#[derive(Debug)]
struct Granule {
    state: GranuleState,
    /// The places that lead here beside the one it backs.
    aliases: Vec<Place>,
}

/// All granules of a heap, of one size.
#[derive(Debug, Default)]
pub(crate) struct Granules {
    table: Vec<Granule>,
    vacant: Vec<GranuleId>,
    idle: Vec<GranuleId>,
    alias_count: usize,
}

impl Granules {
    /// A name for a granule that a plan will create.
    pub(crate) fn name(&mut self) -> GranuleId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(Granule { state: GranuleState::Vacant, aliases: Vec::new() });
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

    /// Granules that are created and back nothing.
    pub(crate) fn idle(&self) -> &[GranuleId] {
        &self.idle
    }

    /// Marks a granule as part of a plan; it keeps its handle.
    pub(crate) fn plan(&mut self, id: GranuleId) {
        self.table[id.index()].state = GranuleState::Planned;
    }

    /// A plan left the granule behind a place.
    pub(crate) fn set_backing(&mut self, id: GranuleId, place: Place) {
        self.table[id.index()].state = GranuleState::Backing(place);
    }

    /// A plan left the granule created and backing nothing.
    pub(crate) fn set_idle(&mut self, id: GranuleId) {
        self.table[id.index()].state = GranuleState::Idle;
        self.idle.push(id);
    }

    /// A plan left the granule without a handle.
    pub(crate) fn set_vacant(&mut self, id: GranuleId) {
        self.table[id.index()].state = GranuleState::Vacant;
        self.vacant.push(id);
    }

    /// What a granule is.
    pub(crate) fn state(&self, id: GranuleId) -> GranuleState {
        self.table[id.index()].state
    }

    /// Every granule's name and state.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GranuleId, GranuleState)> + '_ {
        self.table.iter().enumerate().map(|(i, granule)| (GranuleId(i as u32), granule.state))
    }

    /// The places that lead to a granule beside the one it backs.
    pub(crate) fn aliases(&self, id: GranuleId) -> &[Place] {
        &self.table[id.index()].aliases
    }

    pub(crate) fn add_alias(&mut self, id: GranuleId, place: Place) {
        self.table[id.index()].aliases.push(place);
        self.alias_count += 1;
    }

    pub(crate) fn remove_alias(&mut self, id: GranuleId, place: Place) {
        let aliases = &mut self.table[id.index()].aliases;
        if let Some(at) = aliases.iter().position(|&alias| alias == place) {
            aliases.swap_remove(at);
            self.alias_count -= 1;
        }
    }

    /// How many aliases there are.
    pub(crate) const fn alias_count(&self) -> usize {
        self.alias_count
    }

    /// How many names there are: one more than the largest index.
    pub(crate) const fn names(&self) -> usize {
        self.table.len()
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
    fn aliases_are_known_by_their_place() {
        let mut granules = Granules::default();
        let id = granules.name();
        let place = |slot| Place { segment: 0, slot };
        granules.add_alias(id, place(1));
        granules.add_alias(id, place(2));
        granules.remove_alias(id, place(3));
        assert_eq!(granules.alias_count(), 2);
        granules.remove_alias(id, place(1));
        assert_eq!((granules.alias_count(), granules.aliases(id)), (1, &[place(2)][..]));
    }
}
