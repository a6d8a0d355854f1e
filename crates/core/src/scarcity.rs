//! Scarcity: what the device has refused of late, so that the next request asks for less.
//!
//! Invariant: only [`Scarcity::note`] changes it.

/// What became of memory and addresses, as far as that says how much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A reservation was refused.
    ReservationRefused,
    /// A growth failed.
    GrowthFailed {
        /// It created handles of several granules.
        has_large: bool,
    },
    /// Addresses were given back.
    AddressesGivenBack,
    /// Memory was given back.
    MemoryGivenBack,
}

/// What is scarce.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scarcity {
    addresses: bool,
    memory: bool,
}

impl Scarcity {
    /// Whether to ask for no more addresses than needed: a reservation was refused, and none was
    /// given back since.
    pub(crate) const fn of_addresses(self) -> bool {
        self.addresses
    }

    /// Whether to create no more than needed: a growth in large handles failed, none in single
    /// granules did after it, and no memory was given back since.
    pub(crate) const fn of_memory(self) -> bool {
        self.memory
    }

    pub(crate) const fn note(&mut self, change: Change) {
        match change {
            Change::ReservationRefused => self.addresses = true,
            Change::AddressesGivenBack => self.addresses = false,
            // Perhaps less would have been granted. If that fails, too, size is not the reason.
            Change::GrowthFailed { has_large } => self.memory = has_large,
            Change::MemoryGivenBack => self.memory = false,
        }
    }
}
