//! Meshes: two pages on one granule, each of which uses only what the other leaves unused.
//!
//! The granule stays what it was for the page that it backed before. The other page, its *guest*,
//! leads to it beside that one, and had a granule of its own, which backs nothing any more. While
//! it has a guest a granule serves no other page and is not released: no block covers all of it.

use std::ops::Range;

use super::PageTable;
use super::granule::{GranuleState, PageAddr};
use super::moves::Movable;
use crate::id::SegmentIx;
use crate::plan::Step;

/// Two pages on one granule.
#[derive(Clone, Debug)]
pub(crate) struct Mesh {
    /// The segment of the guest.
    pub(crate) segment: SegmentIx,
    /// Its addresses.
    pub(crate) guest: Range<u64>,
    /// Those of the page that the granule backs beside.
    pub(crate) host: Range<u64>,
}

impl Movable {
    /// The steps that let its page share the granule of another one. What is in use there, in bytes
    /// from its start, is free in the other.
    pub(crate) fn mesh(&self, host: &Self, in_use: &[Range<u64>]) -> Vec<Step> {
        let Range { start: address, end } = self.addresses;
        let bytes = end - address;
        let copy = |range: &Range<u64>| Step::CopyTo {
            address: address + range.start,
            bytes: range.end - range.start,
            to: host.addresses.start + range.start,
        };
        let lift = |address| Step::Lift { address, bytes, granule: self.granule };
        let mut steps = vec![Step::Hold];
        steps.extend(in_use.iter().map(copy));
        steps.push(Step::FinishCopies);
        steps.extend(self.home.map(lift));
        steps.push(lift(address));
        steps.push(Step::Map { address, bytes, granule: host.granule });
        steps.push(Step::SetAccess { address, bytes });
        steps.push(Step::LetGo);
        steps
    }
}

impl Mesh {
    /// All that there are.
    pub(crate) fn all(table: &PageTable) -> Vec<Self> {
        let addresses = |page| {
            let start = table.address_of(page);
            start..start + table.granule_bytes
        };
        let mesh = |&page: &PageAddr| match table.granules.state(table.granule_behind(page)) {
            GranuleState::Backing(host) => {
                let (guest, host) = (addresses(page), addresses(host));
                Some(Self { segment: page.segment, guest, host })
            }
            _ => None,
        };
        table.guests.iter().filter_map(mesh).collect()
    }
}
