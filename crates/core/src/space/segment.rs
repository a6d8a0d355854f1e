//! Segments: contiguous ranges of device addresses obtained from the driver, tiled by blocks (I1).
//!
//! A plain segment is one allocation of the driver and always backed throughout. A mapped segment
//! is a reserved range of addresses: of homes, or of windows. What is mapped there, the page table
//! knows (`vm`).

use crate::error::FreeError;
use crate::id::{ListIx, SegmentIx};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut, Range};

use super::block::BlockIndex;
use crate::policy::SegmentKind;

/// One segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) kind: SegmentKind,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The list it was obtained for: where its unmapped blocks stand.
    pub(crate) list: ListIx,
    /// The block at the lowest address.
    pub(crate) first: BlockIndex,
    /// Of windows, not of homes.
    pub(crate) is_window: bool,
}

impl Segment {
    pub(crate) const fn new(
        kind: SegmentKind,
        address: u64,
        bytes: u64,
        list: ListIx,
        is_window: bool,
    ) -> Self {
        Self { kind, address, bytes, list, first: BlockIndex::NONE, is_window }
    }
}

/// All segments of a heap, also by address.
///
/// A segment that a plan gives back leaves the address order when the plan is made: from then on
/// the device may hand the same addresses out again, and the next segment there must be told apart.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    table: Vec<Option<Segment>>,
    spare: Vec<SegmentIx>,
    /// As plain numbers: one map type for all is one copy of its code in the library.
    by_address: BTreeMap<u64, u32>,
}

impl Segments {
    /// The segment that was obtained for a list, of one that has no more.
    pub(crate) fn of_list(&self, list: ListIx) -> Option<SegmentIx> {
        self.iter().find(|(_, segment)| segment.list == list).map(|(ix, _)| ix)
    }

    pub(crate) fn insert(&mut self, segment: Segment) -> SegmentIx {
        let (address, end) = (segment.address, segment.address + segment.bytes);
        let before = self.by_address.range(..end).next_back();
        assert!(
            before.is_none_or(|(_, &index)| address - self[SegmentIx(index)].address
                >= self[SegmentIx(index)].bytes),
            "a segment overlaps another"
        );
        let index = self.spare.pop().unwrap_or_else(|| {
            assert!(self.table.len() < u32::MAX as usize, "more segments than indices");
            self.table.push(None);
            SegmentIx((self.table.len() - 1) as u32)
        });
        let former = self.table[index.index()].replace(segment);
        assert!(former.is_none(), "a segment takes the place of another");
        self.by_address.insert(address, index.0);
        index
    }

    /// Another block stands at the front of a segment.
    #[cold]
    pub(crate) fn begin_with(&mut self, index: SegmentIx, first: BlockIndex) {
        self[index].first = first;
    }

    /// Takes a segment out of the address order: a plan gives it back.
    pub(crate) fn withdraw(&mut self, index: SegmentIx) {
        let address = self[index].address;
        let found = self.by_address.remove(&address);
        assert!(found == Some(index.0), "a segment is given back twice");
    }

    /// A withdrawn segment stays after all.
    pub(crate) fn restore(&mut self, index: SegmentIx) {
        let address = self[index].address;
        let former = self.by_address.insert(address, index.0);
        assert!(former.is_none(), "a segment stays where another is");
    }

    /// Forgets a withdrawn segment.
    pub(crate) fn remove(&mut self, index: SegmentIx) {
        let removed = self.table[index.index()].take();
        assert!(removed.is_some(), "a segment is removed twice");
        self.spare.push(index);
    }

    /// The segment that contains an address.
    pub(crate) fn containing(&self, address: u64) -> Option<SegmentIx> {
        let (_, &index) = self.by_address.range(..=address).next_back()?;
        let index = SegmentIx(index);
        let segment = &self[index];
        (address - segment.address < segment.bytes).then_some(index)
    }

    /// The segment that contains all of a range.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn holding(&self, addresses: &Range<u64>) -> Result<SegmentIx, FreeError> {
        let unknown = FreeError::Unknown { address: addresses.start };
        let index = self.containing(addresses.start).ok_or(unknown)?;
        let end = self[index].address + self[index].bytes;
        if addresses.end <= end { Ok(index) } else { Err(unknown) }
    }

    /// All segments, withdrawn ones too.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentIx, &Segment)> {
        let table = self.table.iter().enumerate();
        table.filter_map(|(i, segment)| Some((SegmentIx(i as u32), segment.as_ref()?)))
    }

    /// All segments in address order, except withdrawn ones.
    pub(crate) fn in_address_order(&self) -> impl Iterator<Item = (SegmentIx, &Segment)> {
        self.by_address.values().map(|&index| (SegmentIx(index), &self[SegmentIx(index)]))
    }
}

impl Index<SegmentIx> for Segments {
    type Output = Segment;

    #[inline]
    #[expect(clippy::expect_used, reason = "an index of a segment that is gone is a broken heap")]
    fn index(&self, index: SegmentIx) -> &Segment {
        self.table[index.index()].as_ref().expect("the segment exists")
    }
}

impl IndexMut<SegmentIx> for Segments {
    #[inline]
    #[expect(clippy::expect_used, reason = "an index of a segment that is gone is a broken heap")]
    fn index_mut(&mut self, index: SegmentIx) -> &mut Segment {
        self.table[index.index()].as_mut().expect("the segment exists")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> (Segments, [SegmentIx; 3]) {
        let mut segments = Segments::default();
        let indices = [4096, 1024, 8192].map(|address| {
            segments.insert(Segment::new(SegmentKind::Plain, address, 1024, ListIx(0), false))
        });
        (segments, indices)
    }

    #[test]
    fn an_address_is_in_one_segment_or_none() {
        let (segments, [at_4096, at_1024, _]) = segments();
        for (address, expected) in [
            (0, None),
            (1023, None),
            (1024, Some(at_1024)),
            (2047, Some(at_1024)),
            (2048, None),
            (4095, None),
            (4096, Some(at_4096)),
            (u64::MAX, None),
        ] {
            assert_eq!(segments.containing(address), expected, "{address}");
        }
        let order: Vec<u64> = segments.in_address_order().map(|(_, s)| s.address).collect();
        assert_eq!(order, [1024, 4096, 8192]);
    }

    #[test]
    fn a_withdrawn_segment_leaves_its_address_to_the_next() {
        let (mut segments, [at_4096, at_1024, at_8192]) = segments();
        segments.withdraw(at_4096);
        segments.withdraw(at_1024);
        let next = segments.insert(Segment::new(SegmentKind::Mapped, 4096, 512, ListIx(0), false));
        assert_eq!(segments.containing(4096), Some(next));
        assert_eq!(segments.iter().count(), 4);
        segments.restore(at_1024);
        segments.remove(at_4096);
        let order: Vec<SegmentIx> = segments.in_address_order().map(|(index, _)| index).collect();
        assert_eq!(order, [at_1024, next, at_8192]);
        // The slot of the removed one is used again.
        let again = segments.insert(Segment::new(SegmentKind::Plain, 0, 512, ListIx(0), false));
        assert_eq!(again, at_4096);
    }
}
