//! Segments: contiguous ranges of device addresses obtained from the driver, tiled by blocks (I1).
//!
//! A plain segment is one allocation of the driver and always backed throughout. A mapped segment
//! is a reserved range of addresses in granule-sized pieces, its slots. In a segment of homes each
//! slot has a granule of its own for as long as that exists; in one for loans slots lead to
//! granules whose home is elsewhere, and each berth knows where they lead.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::block::BlockIndex;
use crate::granule::{GranuleId, NO_GRANULE};
use crate::lead::{Lead, To};
use crate::policy::SegmentKind;

/// One segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) kind: SegmentKind,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The list it was obtained for: where its hollow blocks stand.
    pub(crate) list: u32,
    /// The block at the lowest address.
    pub(crate) first: BlockIndex,
    /// For loans, not for homes.
    pub(crate) is_loan: bool,
    /// Mapped segments: what each granule-sized piece leads to, as far as ever mapped.
    slots: Vec<Slot>,
    /// Berths, by their first slot: what their slots lead to, run by run.
    berths: BTreeMap<usize, Vec<Lead>>,
}

/// A granule-sized piece of a mapped segment.
#[derive(Clone, Copy, Debug)]
struct Slot {
    granule: u32,
    /// While its granule is on loan: the block here.
    lent: BlockIndex,
    /// The device has access.
    is_open: bool,
}

const EMPTY: Slot = Slot { granule: NO_GRANULE, lent: BlockIndex::NONE, is_open: false };

impl Segment {
    pub(crate) fn new(
        kind: SegmentKind,
        address: u64,
        bytes: u64,
        list: u32,
        is_loan: bool,
    ) -> Self {
        let first = BlockIndex::NONE;
        let (slots, berths) = (Vec::new(), BTreeMap::new());
        Self { kind, address, bytes, list, first, is_loan, slots, berths }
    }

    /// The granule that a slot leads to.
    #[inline]
    pub(crate) fn granule(&self, slot: usize) -> Option<GranuleId> {
        let granule = self.slots.get(slot)?.granule;
        (granule != NO_GRANULE).then_some(GranuleId(granule))
    }

    /// Whether the device has access through a slot.
    #[inline]
    pub(crate) fn is_open(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.is_open)
    }

    /// How many slots the berth has that begins at this one; 0 if none does.
    pub(crate) fn berth_slots(&self, slot: usize) -> usize {
        self.leads(slot).iter().map(|lead| lead.slots).sum()
    }

    /// What the slots of the berth lead to that begins at this one.
    pub(crate) fn leads(&self, slot: usize) -> &[Lead] {
        self.berths.get(&slot).map_or(&[], Vec::as_slice)
    }

    /// The berths that begin in a range of slots: their first slots, in order.
    pub(crate) fn berths_in(
        &self,
        slots: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.berths.range(slots).map(|(&first, _)| first)
    }

    /// The first slot of the berth that has a slot, or of the last one before it.
    pub(crate) fn berth_around(&self, slot: usize) -> Option<usize> {
        Some(*self.berths.range(..=slot).next_back()?.0)
    }

    /// Notes a berth of slots that lead nowhere.
    pub(crate) fn add_berth(&mut self, first: usize, slots: usize) {
        self.set_leads(first, vec![Lead { slots, to: To::Nowhere }]);
    }

    /// Notes what the slots of a berth lead to.
    pub(crate) fn set_leads(&mut self, first: usize, leads: Vec<Lead>) {
        self.berths.insert(first, leads);
    }

    /// Forgets the berth that begins at a slot.
    pub(crate) fn remove_berth(&mut self, first: usize) {
        self.berths.remove(&first);
    }

    fn slot_mut(&mut self, slot: usize) -> &mut Slot {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, EMPTY);
        }
        &mut self.slots[slot]
    }

    /// Lets a slot lead to a granule.
    pub(crate) fn map(&mut self, slot: usize, granule: GranuleId, is_open: bool) {
        let slot = self.slot_mut(slot);
        (slot.granule, slot.is_open) = (granule.0, is_open);
    }

    /// Lets a slot lead nowhere.
    pub(crate) fn unmap(&mut self, slot: usize) {
        let slot = self.slot_mut(slot);
        (slot.granule, slot.is_open) = (NO_GRANULE, false);
    }

    /// Notes the lent block that covers slots.
    pub(crate) fn set_lent(&mut self, slots: Range<usize>, block: BlockIndex) {
        for slot in self.slots.get_mut(slots).into_iter().flatten() {
            slot.lent = block;
        }
    }

    /// The block at a slot whose granule is on loan.
    #[inline]
    pub(crate) fn lent(&self, slot: usize) -> BlockIndex {
        self.slots.get(slot).map_or(BlockIndex::NONE, |slot| slot.lent)
    }

    /// How many slots were ever mapped.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }
}

/// All segments of a heap, also by address.
///
/// A segment that a plan gives back leaves the address order when the plan is made: from then on
/// the device may hand the same addresses out again, and the next segment there must be told apart.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    table: Vec<Option<Segment>>,
    spare: Vec<u32>,
    by_address: BTreeMap<u64, u32>,
}

impl Segments {
    pub(crate) fn insert(&mut self, segment: Segment) -> u32 {
        let address = segment.address;
        let index = self.spare.pop().unwrap_or_else(|| {
            self.table.push(None);
            (self.table.len() - 1) as u32
        });
        self.table[index as usize] = Some(segment);
        self.by_address.insert(address, index);
        index
    }

    /// Takes a segment out of the address order: a plan gives it back.
    pub(crate) fn withdraw(&mut self, index: u32) {
        if let Some(segment) = self.get(index) {
            let address = segment.address;
            self.by_address.remove(&address);
        }
    }

    /// A withdrawn segment stays after all.
    pub(crate) fn restore(&mut self, index: u32) {
        if let Some(segment) = self.get(index) {
            let address = segment.address;
            self.by_address.insert(address, index);
        }
    }

    /// Forgets a withdrawn segment.
    pub(crate) fn remove(&mut self, index: u32) {
        if self.table[index as usize].take().is_some() {
            self.spare.push(index);
        }
    }

    /// The segment that contains an address.
    pub(crate) fn containing(&self, address: u64) -> Option<u32> {
        let (_, &index) = self.by_address.range(..=address).next_back()?;
        let segment = self.get(index)?;
        (address - segment.address < segment.bytes).then_some(index)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Segment> {
        self.table.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Segment> {
        self.table.get_mut(index as usize)?.as_mut()
    }

    /// All segments, withdrawn ones too.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.table.iter().enumerate().filter_map(|(i, segment)| Some((i as u32, segment.as_ref()?)))
    }

    /// All segments in address order, but for withdrawn ones.
    pub(crate) fn in_address_order(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.by_address.values().filter_map(|&index| Some((index, self.get(index)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> (Segments, [u32; 3]) {
        let mut segments = Segments::default();
        let indices = [4096, 1024, 8192].map(|address| {
            segments.insert(Segment::new(SegmentKind::Plain, address, 1024, 0, false))
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
        let next = segments.insert(Segment::new(SegmentKind::Mapped, 4096, 512, 0, false));
        assert_eq!(segments.containing(4096), Some(next));
        assert_eq!(segments.iter().count(), 4);
        segments.restore(at_1024);
        segments.remove(at_4096);
        let order: Vec<u32> = segments.in_address_order().map(|(index, _)| index).collect();
        assert_eq!(order, [at_1024, next, at_8192]);
        // The slot of the removed one is used again.
        let again = segments.insert(Segment::new(SegmentKind::Plain, 0, 512, 0, false));
        assert_eq!(again, at_4096);
    }

    #[test]
    fn pieces_that_were_never_backed_are_empty() {
        let mut segment = Segment::new(SegmentKind::Mapped, 0, 8 << 20, 0, true);
        assert_eq!((segment.granule(3), segment.slot_count()), (None, 0));
        segment.map(2, GranuleId(7), true);
        assert_eq!((segment.granule(1), segment.granule(2)), (None, Some(GranuleId(7))));
        segment.unmap(2);
        assert_eq!((segment.granule(2), segment.slot_count()), (None, 3));
    }
}
