//! Meshes: pages on one granule, each of which uses only what the others leave unused.
//!
//! The granule stays what it was for the page that it backed before. The others, its *guests*, lead
//! to it beside that one, and had granules of their own, which back nothing any more. While it has
//! a guest a granule serves no other page and is not released: no block covers all of it.

use std::ops::Range;

use super::PageTable;
use super::granule::{GranuleState, PageAddr};
use super::moves::Movable;
use super::span::Span;
use crate::id::SegmentIx;
use crate::plan::Step;

/// A page that shares the granule of another one.
#[derive(Clone, Debug)]
pub(crate) struct Mesh {
    /// The segment of the guest.
    pub(crate) segment: SegmentIx,
    /// Its addresses.
    pub(crate) guest: Range<u64>,
    /// Those of the page that the granule backs.
    pub(crate) host: Range<u64>,
}

/// A granule that may be given up or shared, and where the pages begin that lead to it.
#[derive(Clone, Debug)]
pub(crate) struct Sharable {
    /// Its handle.
    pub(crate) handle: Movable,
    /// The page that it backs, and its guests.
    pub(crate) pages: Vec<u64>,
}

impl Sharable {
    /// The steps that let all its pages share the granule of another one. What is in use there, in
    /// bytes from the start of each, by the page that uses it, is free in the other.
    pub(crate) fn mesh<'a>(
        &self,
        host: &Self,
        granule_bytes: u64,
        in_use: impl Iterator<Item = &'a (Range<u64>, u64)>,
    ) -> Vec<Step> {
        let (bytes, to) = (granule_bytes, host.pages[0]);
        let copy = |(range, page): &(Range<u64>, u64)| Step::CopyTo {
            address: page + range.start,
            bytes: range.end - range.start,
            to: to + range.start,
        };
        let lift = |address| Step::Lift { address, bytes, granule: self.handle.granule };
        let mut steps = vec![Step::Hold];
        steps.extend(in_use.map(copy));
        steps.push(Step::FinishCopies);
        steps.extend(self.handle.home.map(lift));
        steps.extend(self.pages.iter().copied().map(lift));
        for &address in &self.pages {
            steps.push(Step::Map { address, bytes, granule: host.handle.granule });
            steps.push(Step::SetAccess { address, bytes });
        }
        steps.push(Step::LetGo);
        steps
    }
}

impl Span<'_> {
    /// What leads to the granule that it begins in, if all of that may go elsewhere.
    pub(crate) fn sharable(&self) -> Option<Sharable> {
        let (table, start) = (self.table, self.addresses.start);
        let id = table.pages(self.segment).granule(table.page_at(self.segment, start))?;
        let GranuleState::Backing(host) = table.granules.state(id) else { return None };
        let mut pages = vec![table.address_of(host)];
        let guests = table.granules.mappings(id).iter().filter(|page| table.guests.contains(page));
        pages.extend(guests.map(|&page| table.address_of(page)));
        let handle = table.span(host.segment, pages[0]..pages[0]).movable_with(pages.len() - 1)?;
        let is_pinned = |&page: &u64| table.pins.touch(page..page + table.granule_bytes);
        let may_go = !table.granules.is_on_host(id) && !pages.iter().any(is_pinned);
        may_go.then_some(Sharable { handle, pages })
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
