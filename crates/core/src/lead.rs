//! Leads: what the slots of a berth lead to, run by run.
//!
//! RemapStats take granules that lie beside each other from the end of a free block, and map them in
//! that order. So slots beside each other mostly lead to granules beside each other: a loan of
//! hundreds of granules is a few such runs, and is looked at and claimed by runs.

/// Slots beside each other in a berth, and what they lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lead {
    pub(crate) slots: usize,
    pub(crate) to: To,
}

/// What slots lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Granules that lie beside each other at home, from the one at this address on.
    Home(u64),
    /// Nothing: to be mapped.
    Nowhere,
    /// Granules that cannot be used there: to be unmapped first.
    Astray,
}

impl Lead {
    /// Driver calls to back the slots, if what is at home is free and each handle is one granule:
    /// what leads astray is unmapped at once.
    pub(crate) fn calls(&self) -> usize {
        match self.to {
            To::Home(_) => 0,
            To::Nowhere => self.slots,
            To::Astray => self.slots + 1,
        }
    }

    /// Whether the slot after these belongs to the same run.
    fn continues_with(&self, to: To, granule_bytes: u64) -> bool {
        match (self.to, to) {
            (To::Home(first), To::Home(next)) => first + self.slots as u64 * granule_bytes == next,
            (this, next) => this == next,
        }
    }
}

/// What slots in order lead to, as few runs.
pub(crate) fn runs(slots: impl Iterator<Item = To>, granule_bytes: u64) -> Vec<Lead> {
    let mut runs: Vec<Lead> = Vec::new();
    for to in slots {
        match runs.last_mut() {
            Some(run) if run.continues_with(to, granule_bytes) => run.slots += 1,
            _ => runs.push(Lead { slots: 1, to }),
        }
    }
    runs
}
