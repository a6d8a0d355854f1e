//! Granules: the store of physical memory, and who backs what.
//!
//! The heap names granules, whoever carries plans out keeps their handles by that name. Keeps I13:
//! each granule is created once and released once, and reserved bytes are the bytes of created
//! granules, mapped or not.

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

/// What a granule is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GranuleState {
    /// No handle: the name is free.
    Vacant,
    /// Part of a plan that creates, maps or releases it.
    Planned,
    /// Created, mapped nowhere.
    Idle,
    /// Created and mapped at this many addresses.
    Mapped(u32),
}

/// All granules of a heap, of one size.
#[derive(Debug, Default)]
pub(crate) struct Granules {
    states: Vec<GranuleState>,
    vacant: Vec<GranuleId>,
    idle: Vec<GranuleId>,
}

impl Granules {
    /// A name for a granule that a plan will create.
    pub(crate) fn name(&mut self) -> GranuleId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.states.push(GranuleState::Vacant);
            GranuleId((self.states.len() - 1) as u32)
        });
        self.states[id.index()] = GranuleState::Planned;
        id
    }

    /// Takes an idle granule for a plan.
    pub(crate) fn take_idle(&mut self) -> Option<GranuleId> {
        let id = self.idle.pop()?;
        self.states[id.index()] = GranuleState::Planned;
        Some(id)
    }

    /// How many granules are created and mapped nowhere.
    pub(crate) fn idle_count(&self) -> usize {
        self.idle.len()
    }

    /// Marks a granule as part of a plan; it keeps its handle.
    pub(crate) fn plan(&mut self, id: GranuleId) {
        self.states[id.index()] = GranuleState::Planned;
    }

    /// A plan left the granule mapped once.
    pub(crate) fn set_mapped(&mut self, id: GranuleId) {
        self.states[id.index()] = GranuleState::Mapped(1);
    }

    /// A plan left the granule created and unmapped.
    pub(crate) fn set_idle(&mut self, id: GranuleId) {
        self.states[id.index()] = GranuleState::Idle;
        self.idle.push(id);
    }

    /// A plan left the granule without a handle.
    pub(crate) fn set_vacant(&mut self, id: GranuleId) {
        self.states[id.index()] = GranuleState::Vacant;
        self.vacant.push(id);
    }

    /// Every granule's name and state.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GranuleId, GranuleState)> + '_ {
        self.states.iter().enumerate().map(|(i, &state)| (GranuleId(i as u32), state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(granules: &Granules, id: GranuleId) -> GranuleState {
        granules.iter().find(|granule| granule.0 == id).unwrap().1
    }

    #[test]
    fn a_name_is_used_again_only_after_its_granule_was_released() {
        let mut granules = Granules::default();
        let [first, second] = [granules.name(), granules.name()];
        assert_ne!(first, second);
        granules.set_mapped(first);
        granules.set_idle(second);
        assert_eq!(state(&granules, first), GranuleState::Mapped(1));
        assert_eq!((granules.idle_count(), granules.take_idle()), (1, Some(second)));
        // Taken by one plan, it is not there for another.
        assert_eq!((granules.idle_count(), granules.take_idle()), (0, None));
        assert_eq!(state(&granules, second), GranuleState::Planned);
        assert_eq!(granules.name().index(), 2);
        granules.set_vacant(second);
        assert_eq!(granules.name(), second);
        assert_eq!(granules.iter().count(), 3);
    }
}
