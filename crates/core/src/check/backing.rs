//! I13: what stands behind the blocks. Granules, their homes and loans, and the mappings. I16: what
//! is pinned.

use super::{Broken, Tiles, hold};
use crate::block::{Block, BlockIndex, BlockState};
use crate::granule::{GranuleState, Place};
use crate::heap::Heap;
use crate::policy::SegmentKind;

impl Heap {
    /// Whether a place is backed by the granule it leads to, or still is until a plan is done.
    pub(super) fn is_backed(&self, place: Place) -> bool {
        let segment = self.segments.get(place.segment);
        let granule = segment.and_then(|segment| segment.granule(place.slot as usize));
        granule.is_some_and(|id| match self.granules.state(id) {
            GranuleState::Backing(backed) => backed == place,
            GranuleState::Planned => self.granules.home(id) == Some(place),
            GranuleState::Idle | GranuleState::Vacant => false,
        })
    }

    /// Every place that leads to a granule is its home or one of its other mappings, and the other
    /// way round; a granule backs one of them, or none.
    pub(super) fn check_i13_granules_and_places_agree(&self) -> Result<(), Broken> {
        let mut places = 0;
        for (number, segment) in self.segments.iter() {
            let mut end = 0;
            for first in segment.berths_in(0..usize::MAX) {
                let (noted, found) = (segment.leads(first), self.leads_from_slots(segment, first));
                let is_beside = first >= end;
                end = first + segment.berth_slots(first);
                let is_within = end as u64 * self.config.granule_bytes <= segment.bytes;
                hold(13, noted == found && is_beside && is_within, || {
                    format!("berth {first} to {end} of segment {number}: {noted:?}, not {found:?}")
                })?;
            }
            for slot in 0..segment.slot_count() {
                let Some(id) = segment.granule(slot) else { continue };
                let place = Place { segment: number, slot: slot as u32 };
                places += 1;
                let is_home = self.granules.home(id) == Some(place);
                let is_known = is_home || self.granules.mappings(id).contains(&place);
                hold(13, is_known && !(is_home && segment.is_loan), || {
                    format!("{place:?} leads to {id:?}, which does not know")
                })?;
            }
        }
        let mut known = 0;
        for (id, state) in self.granules.iter() {
            let home = self.granules.home(id);
            let all: Vec<Place> =
                home.into_iter().chain(self.granules.mappings(id).iter().copied()).collect();
            for &place in &all {
                let segment = self.segments.get(place.segment);
                let found = segment.and_then(|segment| segment.granule(place.slot as usize));
                let is_planned = state == GranuleState::Planned;
                hold(13, found == Some(id) || is_planned, || {
                    format!("{id:?} is not at {place:?}: {found:?}")
                })?;
            }
            let agrees = match state {
                GranuleState::Backing(place) => all.contains(&place) && home.is_some(),
                GranuleState::Idle => home.is_none(),
                GranuleState::Vacant => all.is_empty(),
                GranuleState::Planned => true,
            };
            hold(13, agrees, || format!("{id:?} is {state:?}, home {home:?}, leads from {all:?}"))?;
            known += all.len();
        }
        let homes = self.granules.iter().filter(|&(id, _)| self.granules.home(id).is_some());
        let counted = homes.count() + self.granules.mapping_count();
        hold(13, known == counted && known == places, || {
            format!("{places} places lead to granules, {known} are known, {counted} counted")
        })?;
        let is_away = |&(id, state): &(_, GranuleState)| match state {
            GranuleState::Backing(place) => self.granules.home(id) != Some(place),
            _ => false,
        };
        let (away, noted) = (self.granules.iter().filter(is_away).count(), self.remapped_granules);
        hold(13, away as u64 == noted, || format!("{away} granules are away, {noted} noted"))
    }

    /// The granules of a handle lie beside each other, in order, wherever they are.
    pub(super) fn check_i13_handles_stay_whole(&self) -> Result<(), Broken> {
        let after = |place: Place| Place { slot: place.slot + 1, ..place };
        let next_to = |state| match state {
            GranuleState::Backing(place) => GranuleState::Backing(after(place)),
            other => other,
        };
        for (id, state) in self.granules.iter().filter(|&(id, _)| self.granules.before(id) > 0) {
            let Some(before) = self.granules.of_handle(id).take_while(|&other| other != id).last()
            else {
                continue;
            };
            let mappings = self.granules.mappings(before).iter();
            let is_beside = state == next_to(self.granules.state(before))
                && self.granules.home(id) == self.granules.home(before).map(after)
                && mappings.copied().map(after).eq(self.granules.mappings(id).iter().copied());
            hold(13, is_beside, || format!("{id:?} does not follow {before:?} of its handle"))?;
        }
        Ok(())
    }

    /// Outside of plans under way, blocks that are hollow, lent or aliases have no memory of their
    /// own, and all others have it throughout.
    pub(super) fn check_i13_blocks_are_backed(&self, tiles: &Tiles) -> Result<(), Broken> {
        for &(index, block) in tiles {
            let Some(segment) = self.segments.get(block.segment) else {
                continue;
            };
            if segment.kind == SegmentKind::Plain || block.state == BlockState::Claimed {
                continue;
            }
            let size = self.config.granule_bytes;
            let first = (block.address - segment.address) / size;
            let last = (block.end() - 1 - segment.address) / size;
            for slot in first..=last {
                let place = Place { segment: block.segment, slot: slot as u32 };
                let is_backed = self.is_backed(place);
                hold(13, is_backed == block.state.is_backed(), || {
                    format!("{block:?} at {place:?}: backed {is_backed}")
                })?;
                self.check_i13_lent(index, &block, place)?;
            }
        }
        Ok(())
    }

    /// Whatever is pinned is in a segment, and backed.
    pub(super) fn check_i16_pinned_memory_stays(&self) -> Result<(), Broken> {
        let granule_bytes = self.config().granule_bytes;
        for (address, end) in self.pins.ranges() {
            let number = self.segments.containing(address);
            let found = number.and_then(|number| Some((number, self.segments.get(number)?)));
            let is_kept = found.is_some_and(|(number, segment)| {
                let slot = |address| (address - segment.address) / granule_bytes;
                let mut places = (slot(address)..=slot(end - 1))
                    .map(|slot| Place { segment: number, slot: slot as u32 });
                segment.kind == SegmentKind::Plain || places.all(|place| self.is_backed(place))
            });
            hold(16, is_kept, || format!("pinned {address:#x} to {end:#x} is not backed"))?;
        }
        Ok(())
    }

    /// A place is lent if and only if it is the home of a granule that backs another place.
    fn check_i13_lent(&self, index: BlockIndex, of: &Block, at: Place) -> Result<(), Broken> {
        let segment = self.segments.get(at.segment);
        let granule = segment.and_then(|segment| segment.granule(at.slot as usize));
        let owner = granule.filter(|&id| self.granules.home(id) == Some(at));
        let is_away = owner.is_some_and(
            |id| matches!(self.granules.state(id), GranuleState::Backing(place) if place != at),
        );
        let is_lent = of.state == BlockState::Lent;
        let knows = !is_lent || segment.is_some_and(|s| s.lent(at.slot as usize) == index);
        hold(13, is_away == is_lent && knows, || {
            format!("{of:?} at {at:?}: its granule {owner:?} is away: {is_away}")
        })?;
        let in_place = match of.state {
            BlockState::Lent => !of.is_loan,
            BlockState::Alias => of.is_loan,
            _ => true,
        };
        let is_loan = segment.is_some_and(|segment| segment.is_loan);
        hold(13, in_place && of.is_loan == is_loan, || format!("{of:?} is in the wrong segment"))
    }
}
