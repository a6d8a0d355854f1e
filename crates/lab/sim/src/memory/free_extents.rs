//! [`FreeExtents`]: what an asynchronous pool has free, by address and by size.
//!
//! Invariant: both say the same, so a request looks at no extent that is too small for it.

use crate::happens_before::VectorClock;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The moment, in its stream's order, at which memory was freed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreePoint {
    /// `None`: memory of several streams has been merged.
    pub(crate) stream: Option<u32>,
    pub(crate) reached_ns: u64,
    /// What the freeing stream was ordered after; empty when no oracle watches.
    pub(crate) clock: VectorClock,
}

#[derive(Clone, Debug)]
pub(super) struct FreeExtent {
    pub(super) bytes: u64,
    /// `None`: never used since its segment was taken.
    pub(super) point: Option<FreePoint>,
}

impl FreeExtent {
    pub(super) fn is_reached(&self, now_ns: u64) -> bool {
        self.point.as_ref().is_none_or(|point| point.reached_ns <= now_ns)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct FreeExtents {
    by_address: BTreeMap<u64, FreeExtent>,
    /// Bytes and address of each.
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeExtents {
    pub(super) fn insert(&mut self, address: u64, extent: FreeExtent) {
        self.by_size.insert((extent.bytes, address));
        self.by_address.insert(address, extent);
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<FreeExtent> {
        let extent = self.by_address.remove(&address)?;
        self.by_size.remove(&(extent.bytes, address));
        Some(extent)
    }

    /// Those that begin within a range of addresses, in their order.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &FreeExtent)> {
        self.by_address.range(range).map(|(&address, extent)| (address, extent))
    }

    /// Those of so many bytes or more: the smallest first, of one size the lowest.
    pub(super) fn at_least(&self, bytes: u64) -> impl Iterator<Item = (u64, &FreeExtent)> {
        let fitting = self.by_size.range((bytes, 0)..);
        fitting.filter_map(|(_, address)| Some((*address, self.by_address.get(address)?)))
    }

    /// All of them, in the order of their addresses; none is left.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u64, FreeExtent)> {
        self.by_size.clear();
        std::mem::take(&mut self.by_address).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn those_that_fit_come_by_size_then_by_address() {
        let mut free = FreeExtents::default();
        for (address, bytes) in [(64, 4 * KIB), (8, 8 * KIB), (32, 4 * KIB), (16, 512)] {
            free.insert(address, FreeExtent { bytes, point: None });
        }
        let fitting = |free: &FreeExtents| {
            free.at_least(KIB).map(|(address, extent)| (address, extent.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(fitting(&free), [(32, 4 * KIB), (64, 4 * KIB), (8, 8 * KIB)]);
        assert_eq!(free.remove(32).map(|extent| extent.bytes), Some(4 * KIB));
        assert_eq!(fitting(&free), [(64, 4 * KIB), (8, 8 * KIB)]);
        assert_eq!(free.within(9..65).map(|(address, _)| address).collect::<Vec<_>>(), [16, 64]);
        assert_eq!(free.take().map(|(address, _)| address).collect::<Vec<_>>(), [8, 16, 64]);
        assert_eq!(fitting(&free), []);
    }
}
