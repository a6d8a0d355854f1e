//! Donors: free memory from which a request may take whole handles.
//!
//! There may be tens of thousands, of which a request takes a few. So they are put in order only as
//! far as that is asked for: by address where a window leads to them, by size for a gap.

use crate::id::SegmentIx;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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

/// Where a donor stands among those to take from: of the request's own stream first, of these the
/// largest, of equal ones the first.
type Rank = (bool, Reverse<u64>, u64);

impl Donor {
    const fn rank(&self) -> Rank {
        (self.is_foreign, Reverse(self.end - self.start), self.start)
    }
}

/// Handles of one donor.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub(crate) block: BlockIndex,
    pub(super) segment: SegmentIx,
    pub(crate) range: Range<u64>,
}

/// All donors of a request.
#[derive(Debug, Default)]
pub(crate) struct Donors {
    all: Vec<Donor>,
    by_address: OnceCell<Vec<Donor>>,
}

impl Donors {
    pub(crate) const fn new(all: Vec<Donor>) -> Self {
        Self { all, by_address: OnceCell::new() }
    }

    fn by_address(&self) -> &[Donor] {
        self.by_address.get_or_init(|| {
            let mut donors = self.all.clone();
            donors.sort_by_cached_key(|donor| donor.start);
            donors
        })
    }

    /// The donor that has a range.
    pub(super) fn holding(&self, address: u64, end: u64) -> Option<&Donor> {
        let donors = self.by_address();
        let after = donors.partition_point(|donor| donor.start <= address);
        donors[..after].last().filter(|donor| end <= donor.end)
    }

    /// Takes the first run off a window's: as many pages as lead to one donor, or nowhere. `None`
    /// if they lead to what cannot be taken at once.
    pub(super) fn first_run(&self, run: &mut MappedRun, granule_bytes: u64) -> Option<MappedRun> {
        let first = match run.to {
            Target::Hit(first) => first,
            Target::Unmapped => {
                return Some(std::mem::replace(run, MappedRun { pages: 0, ..*run }));
            }
            Target::Stale => return None,
        };
        let donor = self.holding(first, first + granule_bytes).filter(|donor| donor.is_ordered)?;
        let pages = (((donor.end - first) / granule_bytes) as usize).min(run.pages);
        assert!(pages > 0, "a donor holds part of a granule");
        run.pages -= pages;
        run.to = Target::Hit(first + pages as u64 * granule_bytes);
        Some(MappedRun { pages, to: Target::Hit(first) })
    }

    /// What can be taken at once and is not yet.
    pub(super) fn without<'a>(&'a self, taken: &'a [Range<u64>]) -> Stock<'a> {
        Stock { ranked: self.ranked(true), donors: &self.all, taken, pieces: Vec::new() }
    }

    /// Those that can be taken at once, or the others, by position: the first by rank on top.
    fn ranked(&self, is_ordered: bool) -> BinaryHeap<(Reverse<Rank>, usize)> {
        let donors = self.all.iter().enumerate();
        let donors = donors.filter(|(_, donor)| donor.is_ordered == is_ordered);
        donors.map(|(at, donor)| (Reverse(donor.rank()), at)).collect()
    }

    /// How many bytes could be taken at once.
    pub(crate) fn ordered_bytes(&self) -> u64 {
        let ordered = self.all.iter().filter(|donor| donor.is_ordered);
        ordered.map(|donor| donor.end - donor.start).sum()
    }

    /// What a wait would make available: of the largest donors first, until `bytes` are covered.
    pub(crate) fn to_wait_for(&self, bytes: u64) -> Vec<BlockIndex> {
        let mut unordered = self.ranked(false);
        let mut left = bytes;
        let mut blocks = Vec::new();
        while left > 0
            && let Some((_, at)) = unordered.pop()
        {
            let donor = &self.all[at];
            blocks.push(donor.block);
            left = left.saturating_sub(donor.end - donor.start);
        }
        blocks
    }
}

/// What a request can take, piece by piece: of the donors by rank, and the last of each first.
#[derive(Debug)]
pub(super) struct Stock<'a> {
    donors: &'a [Donor],
    /// Those that have not given their pieces yet, the next one on top.
    ranked: BinaryHeap<(Reverse<Rank>, usize)>,
    /// What is not to be had of them, by address.
    taken: &'a [Range<u64>],
    pieces: Vec<Picked>,
}

impl Stock<'_> {
    /// The piece at a position, which may be empty.
    pub(super) fn piece(&mut self, at: usize) -> Option<&mut Picked> {
        while self.pieces.len() <= at {
            let (_, at) = self.ranked.pop()?;
            self.add(&self.donors[at]);
        }
        self.pieces.get_mut(at)
    }

    /// All pieces.
    pub(super) fn all(&mut self) -> &[Picked] {
        while self.piece(self.pieces.len()).is_some() {}
        &self.pieces
    }

    /// Adds the pieces of a donor that are not taken.
    fn add(&mut self, donor: &Donor) {
        let Donor { block, segment, .. } = *donor;
        let after = self.taken.partition_point(|range| range.start < donor.end);
        let within = self.taken[..after].iter().rev().take_while(|range| range.end > donor.start);
        let mut end = donor.end;
        for range in within {
            self.pieces.push(Picked { block, segment, range: range.end..end });
            end = range.start;
        }
        self.pieces.push(Picked { block, segment, range: donor.start..end });
    }
}
