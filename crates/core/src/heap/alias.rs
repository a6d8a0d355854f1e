//! Aliases: addresses that still lead to a granule which backs another place, or none.
//!
//! They are kept: when the same request comes again and the granule is free, the place is backed
//! again with no driver call. They are unmapped when something else is to be mapped there, when the
//! granule is released, and, the oldest first, when there are too many mappings; never before the
//! last use through them is known to be complete, since unmapping does not wait for kernels.

use super::Heap;
use super::request::Reach;
use crate::block::BlockIndex;
use crate::fence::Fence;
use crate::granule::{GranuleId, Place};
use crate::plan::{Gift, Intent, Plan, Step, Wanted};
use crate::policy;
use crate::segment::Alias;

/// How many aliases, beyond those wanted, one look at the oldest passes over.
const LOOK: usize = 64;

impl Heap {
    /// What is known of a place that is an alias.
    pub(crate) fn alias(&self, place: Place) -> Option<&Alias> {
        self.segments.get(place.segment)?.alias(place.slot as usize)
    }

    fn alias_mut(&mut self, place: Place) -> Option<&mut Alias> {
        self.segments.get_mut(place.segment)?.alias_mut(place.slot as usize)
    }

    /// Makes a place an alias of the granule it leads to.
    pub(super) fn add_alias(
        &mut self,
        place: Place,
        granule: GranuleId,
        fence: Option<Fence>,
        is_open: bool,
    ) {
        self.aliases_made += 1;
        let number = self.aliases_made;
        if let Some(segment) = self.segments.get_mut(place.segment) {
            let alias = Alias { fence, is_open, is_claimed: false, number };
            segment.set_alias(place.slot as usize, Some(alias));
        }
        self.granules.add_alias(granule, place);
        self.oldest_aliases.push_back((place, number));
        // Of those that are none any more only a few are kept in the queue.
        if self.oldest_aliases.len() > 2 * self.granules.alias_count() + LOOK {
            let mut queue = std::mem::take(&mut self.oldest_aliases);
            queue.retain(|&(place, number)| self.alias(place).is_some_and(|a| a.number == number));
            self.oldest_aliases = queue;
        }
    }

    /// The granules behind a claimed block back other places from now on.
    pub(super) fn leave_aliases(&mut self, index: BlockIndex) {
        let block = self.blocks[index];
        let owner = self.list(block.list).stream;
        let is_over = block.free_after <= self.streams.at(owner).passed;
        let stream = self.streams.id_at(owner);
        let fence = (!is_over).then_some(Fence { stream, point: block.free_after });
        for (place, granule) in self.places_of(index) {
            self.add_alias(place, granule, fence, true);
        }
        let scale = self.list(block.list).scale as usize;
        self.stats.scales[scale].reserved_bytes.take(block.bytes);
        self.stats.harvested_granules += block.bytes / self.config.granule_bytes;
    }

    /// Whether an alias can be unmapped: the last use through it is known to be complete.
    pub(super) fn is_evictable(&self, alias: &Alias) -> bool {
        let is_over = alias.fence.is_none_or(|fence| self.streams.has_passed(fence));
        !alias.is_claimed && is_over
    }

    /// Adds the unmapping of an alias to a plan.
    pub(super) fn evict(&mut self, place: Place, gifts: &mut Vec<Gift>, steps: &mut Vec<Step>) {
        if let Some(alias) = self.alias_mut(place) {
            alias.is_claimed = true;
            let address = self.address_of(place);
            steps.push(Step::Unmap { address, bytes: self.config.granule_bytes });
            gifts.push(Gift::Alias { place });
        }
    }

    /// An alias was unmapped, or is still there.
    pub(super) fn finish_eviction(&mut self, place: Place, is_done: bool) {
        if is_done {
            let segment = self.segments.get(place.segment);
            if let Some(granule) = segment.and_then(|s| s.granule(place.slot as usize)) {
                self.granules.remove_alias(granule, place);
            }
            self.set_slot(place, None);
        } else if let Some(alias) = self.alias_mut(place) {
            alias.is_claimed = false;
            let number = alias.number;
            self.oldest_aliases.push_front((place, number));
        }
    }

    /// Plans to unmap aliases whose use is over: all of them, for when the driver has no mappings
    /// left. `None` if there are none.
    pub fn plan_eviction(&mut self) -> Option<Plan> {
        self.plan_eviction_of(self.granules.alias_count())
    }

    /// Plans to unmap up to so many of the oldest aliases.
    fn plan_eviction_of(&mut self, count: usize) -> Option<Plan> {
        let mut places = Vec::new();
        for _ in 0..(count + LOOK).min(self.oldest_aliases.len()) {
            let Some((place, number)) = self.oldest_aliases.pop_front() else { break };
            let Some(alias) = self.alias(place).filter(|alias| alias.number == number) else {
                continue;
            };
            if places.len() < count && self.is_evictable(alias) {
                places.push(place);
            } else if !alias.is_claimed {
                // A slow stream holds up no other's.
                self.oldest_aliases.push_back((place, number));
            }
        }
        self.plan_eviction_at(&places)
    }

    /// Plans to unmap these aliases.
    pub(super) fn plan_eviction_at(&mut self, places: &[Place]) -> Option<Plan> {
        let (mut gifts, mut steps) = (Vec::new(), Vec::new());
        places.iter().for_each(|&place| self.evict(place, &mut gifts, &mut steps));
        (!gifts.is_empty()).then_some(Plan { steps, intent: Intent::Trim { gifts } })
    }

    /// Plans to keep within the budget of mappings before `more` are made. Where the uses of the
    /// oldest are not known to be over, only a fence is recorded that will tell.
    pub(super) fn plan_within_budget(
        &mut self,
        wanted: Wanted,
        reach: Reach,
        more: usize,
    ) -> Option<Plan> {
        let budget = policy::mapping_budget(self.granules.len());
        let mappings = self.granules.len() + self.granules.alias_count() + more;
        if mappings <= budget {
            return None;
        }
        // An eighth more than needed, so that it is not done again at once.
        let plan = self.plan_eviction_of(mappings - budget + budget / 8);
        plan.or_else(|| if reach == Reach::Wait { self.plan_fence_of_oldest(wanted) } else { None })
    }

    fn plan_fence_of_oldest(&mut self, wanted: Wanted) -> Option<Plan> {
        let mut oldest = self.oldest_aliases.iter();
        let mut fence = oldest.find_map(|&(place, number)| {
            self.alias(place).filter(|alias| alias.number == number)?.fence
        })?;
        let user = self.streams.id_at(self.list(wanted.list).stream);
        let stream = self.streams.of_fence(fence)?;
        if stream.is_retired || fence.point <= stream.recorded {
            return None;
        }
        fence.point = stream.issue();
        let steps = vec![Step::Record { fence }];
        Some(Plan { steps, intent: Intent::Order { user, fences: Vec::new() } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Config, CrossStream, PoolId, SegmentKind, StreamId};

    /// A heap with two granules, as many aliases of the first, and a stream; through the last
    /// alias work is under way.
    fn heap_with_aliases(count: u32) -> (Heap, StreamId) {
        let mut heap = Heap::new(Config {
            kind: SegmentKind::Mapped,
            granule_bytes: 2 << 20,
            device_bytes: 1 << 36,
            limit_bytes: u64::MAX,
            cross_stream: CrossStream::Wait,
        });
        let stream = heap.add_stream();
        while let Answer::Plan(plan) =
            heap.request(PoolId::DEFAULT, stream, 4 << 20, Reach::Wait).unwrap()
        {
            if matches!(heap.commit(plan, 1 << 40), crate::Committed::Granted(_)) {
                break;
            }
        }
        for slot in 2..2 + count {
            let place = Place { segment: 0, slot };
            let fence = (slot == 1 + count).then_some(Fence { stream, point: 7 });
            heap.set_slot(place, Some(GranuleId(0)));
            heap.add_alias(place, GranuleId(0), fence, true);
        }
        heap.check().unwrap();
        (heap, stream)
    }

    const WANTED: Wanted = Wanted { list: 0, requested: 512, bytes: 512 };

    #[test]
    fn mappings_beyond_the_budget_are_given_up_and_some_more() {
        let budget = policy::mapping_budget(2);
        let aliases = budget - 10;
        let (mut heap, _) = heap_with_aliases(aliases as u32);
        // Two granules, their aliases, and eight more are just within it.
        assert!(heap.plan_within_budget(WANTED, Reach::Wait, 8).is_none());
        let plan = heap.plan_within_budget(WANTED, Reach::Wait, 9).unwrap();
        assert_eq!(plan.steps().len(), 1 + budget / 8);
        heap.commit(plan, 0);
        heap.check().unwrap();
        assert_eq!(heap.granules.alias_count(), aliases - 1 - budget / 8);
        assert!(heap.plan_within_budget(WANTED, Reach::Wait, 9).is_none());
    }

    #[test]
    fn b13_an_alias_in_use_is_not_given_up_and_none_twice() {
        let (mut heap, _) = heap_with_aliases(5);
        let plan = heap.plan_eviction().unwrap();
        assert_eq!(plan.steps().len(), 4, "the fifth is in use");
        assert!(heap.plan_eviction().is_none());
        heap.abandon(plan, 3);
        heap.check().unwrap();
        assert_eq!(heap.plan_eviction().map(|plan| plan.steps().len()), Some(1));
    }

    #[test]
    fn what_keeps_the_oldest_alias_mapped_is_recorded_once() {
        let (mut heap, stream) = heap_with_aliases(1);
        let many = policy::mapping_budget(2);
        assert!(heap.plan_within_budget(WANTED, Reach::Ordered, many).is_none());
        let plan = heap.plan_within_budget(WANTED, Reach::Wait, many).unwrap();
        let [Step::Record { fence }] = *plan.steps() else { panic!("{plan:?}") };
        heap.commit(plan, 0);
        // The alias of this test is of a later point than any issued here.
        heap.fence_passed(Fence { stream, point: 6 });
        assert!(heap.plan_eviction().is_none());
        heap.fence_passed(Fence { stream, point: fence.point.max(7) });
        assert!(heap.plan_eviction().is_some());
    }

    #[test]
    fn the_queue_forgets_aliases_that_are_none_any_more() {
        let (mut heap, _) = heap_with_aliases(3);
        let place = Place { segment: 0, slot: 2 };
        for _ in 0..1000 {
            heap.granules.remove_alias(GranuleId(0), place);
            heap.set_slot(place, Some(GranuleId(0)));
            heap.add_alias(place, GranuleId(0), None, true);
        }
        assert!(heap.oldest_aliases.len() <= 2 * 3 + LOOK + 1);
        assert_eq!(heap.plan_eviction().map(|plan| plan.steps().len()), Some(2));
    }
}
