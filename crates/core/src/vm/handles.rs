//! Which handles stand behind addresses: for those who give memory to other processes by them.

use super::PageTable;
use super::span::Span;
use crate::id::{GranuleId, SegmentIx};
use crate::shared::{Shared, SharedBy};
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
            bytes: table.handle_bytes(granule),
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
}

/// What others have of a page table's memory, by the calls that made it known. Looks through all
/// granules.
pub(crate) fn shared(table: &PageTable) -> impl Iterator<Item = Shared> {
    let each = SharedBy::ALL.into_iter().map(|by| {
        let (handles, granules) = table.granules.shared_by(by);
        Shared { by, handles, bytes: granules * table.granule_bytes }
    });
    each.filter(|shared| shared.handles > 0)
}
