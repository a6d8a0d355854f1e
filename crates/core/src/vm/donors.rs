//! Donors: free memory from which a request may take whole handles.

use crate::id::SegmentIx;
use std::cmp::Reverse;
use std::ops::Range;

use super::run::{MappedRun, Target};
use crate::space::block::BlockIndex;

/// Whole handles of a free block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Donor {
    pub(crate) block: BlockIndex,
    pub(crate) segment: SegmentIx,
    /// Where its first whole handle starts.
    pub(crate) start: u64,
    /// Where its last whole handle ends.
    pub(crate) end: u64,
    /// Free in the order of another stream than the request's.
    pub(crate) is_foreign: bool,
    /// The request's stream is ordered after its last use.
    pub(crate) is_ordered: bool,
}

/// Handles of one donor, in a segment.
pub(crate) type Picked = (SegmentIx, Range<u64>);

/// All donors of a request, by address.
#[derive(Debug)]
pub(crate) struct Donors(Vec<Donor>);

impl Donors {
    pub(crate) fn new(mut donors: Vec<Donor>) -> Self {
        donors.sort_unstable_by_key(|donor| donor.start);
        Self(donors)
    }

    /// The donor that has a range as part of its whole handles.
    pub(crate) fn holding(&self, address: u64, end: u64) -> Option<&Donor> {
        let after = self.0.partition_point(|donor| donor.start <= address);
        self.0[..after].last().filter(|donor| end <= donor.end)
    }

    /// Takes the first run off a window's: as many pages as lead to one donor that can be taken at
    /// once, or to none; those are stale.
    pub(super) fn first_run(&self, run: &mut MappedRun, granule_bytes: u64) -> MappedRun {
        let Target::Hit(first) = run.to else {
            return MappedRun { pages: std::mem::take(&mut run.pages), ..*run };
        };
        let (end, to) = match self.holding(first, first + granule_bytes) {
            Some(donor) if donor.is_ordered => (donor.end, Target::Hit(first)),
            Some(donor) => (donor.end, Target::Stale),
            None => (self.start_after(first), Target::Stale),
        };
        assert!(end > first, "a run of a window ends before it begins");
        let pages = (((end - first) / granule_bytes) as usize).min(run.pages);
        assert!(pages > 0, "a donor holds part of a granule");
        run.pages -= pages;
        run.to = Target::Hit(first + pages as u64 * granule_bytes);
        MappedRun { pages, to }
    }

    /// Where the first donor after an address starts; the end of all addresses if there is none.
    fn start_after(&self, address: u64) -> u64 {
        let after = self.0.partition_point(|donor| donor.start <= address);
        self.0.get(after).map_or(u64::MAX, |donor| donor.start)
    }

    /// What can be taken at once and is not yet: that of the request's own stream first, large
    /// blocks first, and the last of each first.
    pub(super) fn without(&self, taken: &[Range<u64>]) -> Vec<Picked> {
        let mut order: Vec<&Donor> = self.0.iter().filter(|donor| donor.is_ordered).collect();
        largest_first(&mut order);
        let mut left = Vec::with_capacity(order.len() + taken.len());
        for donor in order {
            let after = taken.partition_point(|range| range.start < donor.end);
            let mut end = donor.end;
            for range in taken[..after].iter().rev().take_while(|range| range.end > donor.start) {
                left.push((donor.segment, range.end..end));
                end = range.start;
            }
            left.push((donor.segment, donor.start..end));
        }
        left.retain(|(_, range)| !range.is_empty());
        left
    }

    /// How many bytes could be taken at once.
    pub(crate) fn ordered_bytes(&self) -> u64 {
        let ordered = self.0.iter().filter(|donor| donor.is_ordered);
        ordered.map(|donor| donor.end - donor.start).sum()
    }

    /// What a wait would make available: of the largest donors first, until `bytes` are covered.
    pub(crate) fn to_wait_for(&self, bytes: u64) -> Vec<BlockIndex> {
        let mut unordered: Vec<&Donor> = self.0.iter().filter(|donor| !donor.is_ordered).collect();
        largest_first(&mut unordered);
        let mut left = bytes;
        let mut blocks = Vec::new();
        for donor in unordered {
            blocks.push(donor.block);
            left = left.saturating_sub(donor.end - donor.start);
            if left == 0 {
                break;
            }
        }
        blocks
    }
}

/// Those of the request's own stream first, of these the largest, of equal ones the first.
fn largest_first(donors: &mut [&Donor]) {
    donors.sort_by_key(|donor| (donor.is_foreign, Reverse(donor.end - donor.start)));
}
