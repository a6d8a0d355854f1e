//! Aliases: addresses that still lead to a granule which backs another place, or none.
//!
//! They are kept: when the same request comes again and the granule is free, the place is backed
//! again with no driver call. They are unmapped when something else is to be mapped there, when the
//! granule is released, and when there are too many mappings; never before the last use through
//! them is known to be complete, since unmapping does not wait for kernels.

use super::Heap;
use crate::block::BlockIndex;
use crate::fence::Fence;
use crate::granule::{Alias, GranuleId, Place};
use crate::plan::{Gift, Intent, Plan, Step};
use crate::policy;

impl Heap {
    /// The granules behind a claimed block back other places from now on.
    pub(super) fn leave_aliases(&mut self, index: BlockIndex) {
        let block = self.blocks[index];
        let owner = self.list(block.list).stream;
        let is_over = block.free_after <= self.streams.at(owner).passed;
        let stream = self.streams.id_at(owner);
        let fence = (!is_over).then_some(Fence { stream, point: block.free_after });
        for (place, granule) in self.places_of(index) {
            let alias = Alias { place, fence, is_open: true, is_claimed: false };
            self.granules.add_alias(granule, alias);
        }
        let scale = self.list(block.list).scale as usize;
        self.stats.scales[scale].reserved_bytes.take(block.bytes);
        self.stats.harvested_granules += block.bytes / self.config.granule_bytes;
    }

    /// Whether the last use through an alias is known to be complete.
    pub(super) fn is_over(&self, alias: &Alias) -> bool {
        alias.fence.is_none_or(|fence| self.streams.has_passed(fence))
    }

    /// Whether an alias can be unmapped.
    pub(super) fn is_evictable(&self, alias: &Alias) -> bool {
        !alias.is_claimed && self.is_over(alias)
    }

    /// Adds the unmapping of an alias to a plan.
    pub(super) fn evict(
        &mut self,
        granule: GranuleId,
        place: Place,
        gifts: &mut Vec<Gift>,
        steps: &mut Vec<Step>,
    ) {
        if let Some(alias) = self.granules.alias_mut(granule, place) {
            alias.is_claimed = true;
            let address = self.address_of(place);
            steps.push(Step::Unmap { address, bytes: self.config.granule_bytes });
            gifts.push(Gift::Alias { granule, place });
        }
    }

    /// An alias was unmapped, or is still there.
    pub(super) fn finish_eviction(&mut self, granule: GranuleId, place: Place, is_done: bool) {
        if is_done {
            self.granules.remove_alias(granule, place);
            self.set_slot(place, None);
        } else if let Some(alias) = self.granules.alias_mut(granule, place) {
            alias.is_claimed = false;
        }
    }

    /// Plans to unmap aliases whose use is over: all of them, for when the driver has no mappings
    /// left. `None` if there are none.
    pub fn plan_eviction(&mut self) -> Option<Plan> {
        self.plan_eviction_of(usize::MAX)
    }

    fn plan_eviction_of(&mut self, count: usize) -> Option<Plan> {
        let evictable: Vec<(GranuleId, Place)> = self
            .granules
            .iter()
            .flat_map(|(id, _)| self.granules.aliases(id).iter().map(move |alias| (id, alias)))
            .filter(|(_, alias)| self.is_evictable(alias))
            .map(|(id, alias)| (id, alias.place))
            .take(count)
            .collect();
        self.plan_eviction_at(&evictable)
    }

    /// Plans to unmap these aliases.
    pub(super) fn plan_eviction_at(&mut self, aliases: &[(GranuleId, Place)]) -> Option<Plan> {
        let (mut gifts, mut steps) = (Vec::new(), Vec::new());
        for &(granule, place) in aliases {
            self.evict(granule, place, &mut gifts, &mut steps);
        }
        (!gifts.is_empty()).then_some(Plan { steps, intent: Intent::Trim { gifts } })
    }

    /// Plans to keep within the budget of mappings before `more` are made.
    pub(super) fn plan_within_budget(&mut self, more: usize) -> Option<Plan> {
        let budget = policy::mapping_budget(self.granules.len());
        let mappings = self.granules.len() + self.granules.alias_count() + more;
        // An eighth more than needed, so that it is not done again at once.
        (mappings > budget).then(|| self.plan_eviction_of(mappings - budget + budget / 8))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Config, CrossStream, PoolId, Reach, SegmentKind};

    /// A heap with one granule, and as many aliases of it; the last has a use in flight.
    fn heap_with_aliases(count: u32) -> Heap {
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
            let alias = Alias { place, fence, is_open: true, is_claimed: false };
            heap.granules.add_alias(GranuleId(0), alias);
            heap.set_slot(place, Some(GranuleId(0)));
        }
        heap.check().unwrap();
        heap
    }

    #[test]
    fn mappings_beyond_the_budget_are_given_up_and_some_more() {
        let budget = policy::mapping_budget(2);
        let aliases = budget - 10;
        let mut heap = heap_with_aliases(aliases as u32);
        // Two granules, their aliases, and eight more are just within it.
        assert!(heap.plan_within_budget(8).is_none());
        let plan = heap.plan_within_budget(9).unwrap();
        assert_eq!(plan.steps().len(), 1 + budget / 8);
        heap.commit(plan, 0);
        heap.check().unwrap();
        assert_eq!(heap.granules.alias_count(), aliases - 1 - budget / 8);
        assert!(heap.plan_within_budget(9).is_none());
    }

    #[test]
    fn b13_an_alias_in_use_is_not_given_up_and_none_twice() {
        let mut heap = heap_with_aliases(5);
        let plan = heap.plan_eviction().unwrap();
        assert_eq!(plan.steps().len(), 4, "the fifth is in use");
        assert!(heap.plan_eviction().is_none());
        heap.abandon(plan, 3);
        heap.check().unwrap();
        assert_eq!(heap.plan_eviction().map(|plan| plan.steps().len()), Some(1));
    }
}
