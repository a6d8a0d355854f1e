//! Which handles stand behind addresses: for those who give memory to other processes by them.

use super::PageTable;
use super::span::Span;
use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

/// A handle of physical memory, and where a block leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleAt {
    /// Its name, as plans have it.
    pub granule: GranuleId,
    /// Where it is mapped.
    pub address: u64,
    /// Its size, in bytes.
    pub bytes: u64,
}

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
}

impl SharedBy {
    /// Each.
    pub const ALL: [Self; 4] = [Self::Export, Self::Retain, Self::AddressRange, Self::Attribute];

    /// The call's name.
    pub const fn call(self) -> &'static str {
        match self {
            Self::Export => "cuMemExportToShareableHandle",
            Self::Retain => "cuMemRetainAllocationHandle",
            Self::AddressRange => "cuMemGetHandleForAddressRange",
            Self::Attribute => "cuPointerSetAttribute",
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

impl Span<'_> {
    /// The handles that it leads to, as a whole and in order: the first may begin before it, the
    /// last end behind it.
    pub(crate) fn handles(&self) -> Vec<HandleAt> {
        let table = self.table;
        let around = table.span(self.segment, self.handles_around());
        let pages = around.mapped_pages();
        let first = pages.filter(|&(_, granule)| table.granules.before(granule) == 0);
        let handles = first.map(|(page, granule)| HandleAt {
            granule,
            address: table.address_of(page),
            bytes: table.granules.handle(granule).len() as u64 * table.granule_bytes,
        });
        handles.collect()
    }
}

impl PageTable {
    /// The handles behind addresses, which do not move for as long as they exist: others have them.
    pub(crate) fn share(
        &mut self,
        segment: SegmentIx,
        addresses: Range<u64>,
        by: SharedBy,
    ) -> Vec<HandleAt> {
        let handles = self.span(segment, addresses).handles();
        handles.iter().for_each(|of| self.granules.set_shared(of.granule, by));
        handles
    }

    /// What others have of it, by the calls that made it known. Looks through all granules.
    pub(crate) fn shared(&self) -> impl Iterator<Item = Shared> {
        let each = SharedBy::ALL.into_iter().map(|by| {
            let (handles, granules) = self.granules.shared_by(by);
            Shared { by, handles, bytes: granules * self.granule_bytes }
        });
        each.filter(|shared| shared.handles > 0)
    }
}
