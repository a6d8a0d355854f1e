//! What others know of physical memory, and by which call.

/// By which call of the driver a handle became known to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SharedBy {
    /// Its descriptor was asked for.
    Export,
    /// It was asked which handle is behind an address.
    Retain,
    /// A descriptor of a range of addresses was asked for.
    AddressRange,
    /// A network card was about to get the addresses.
    Attribute,
    /// It was asked which allocation an address lies in.
    Range,
}

impl SharedBy {
    /// Each.
    pub const ALL: [Self; 5] =
        [Self::Export, Self::Retain, Self::AddressRange, Self::Attribute, Self::Range];

    /// The call's name.
    pub const fn call(self) -> &'static str {
        match self {
            Self::Export => "cuMemExportToShareableHandle",
            Self::Retain => "cuMemRetainAllocationHandle",
            Self::AddressRange => "cuMemGetHandleForAddressRange",
            Self::Attribute => "cuPointerSetAttribute",
            Self::Range => "cuMemGetAddressRange",
        }
    }

    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The handles that became known by one call, and exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shared {
    /// The call.
    pub by: SharedBy,
    /// How many.
    pub handles: u64,
    /// Of all of them.
    pub bytes: u64,
}
