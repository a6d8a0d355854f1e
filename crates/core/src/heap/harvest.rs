//! Harvest: wholly free granules, wherever they are free, for a request that fits nowhere.
//!
//! Taken are granules of which every byte is free, of the default pool and of released ones: graphs
//! hold the addresses of a private pool. I10: the request's stream is ordered after the last use of
//! what it takes.

use std::cmp::Reverse;
use std::ops::Range;

use super::Heap;
use super::request::{Reach, Readiness};
use crate::block::BlockIndex;
use crate::granule::{GranuleId, GranuleState};
use crate::plan::{Plan, Wanted};
use crate::policy::{CrossStream, SegmentKind};
use crate::size::whole_units;

/// A free block with whole granules in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub(super) block: BlockIndex,
    /// Where its first whole granule starts.
    start: u64,
    /// Where its last whole granule ends.
    end: u64,
    /// Free in the order of another stream than the request's.
    is_foreign: bool,
    /// The request's stream is ordered after its last use.
    is_ordered: bool,
}

/// The free blocks that a request may take granules from, by address.
#[derive(Debug)]
pub(super) struct Victims(Vec<Victim>);

impl Victims {
    /// The victim that has a range as whole granules of its own.
    fn holding(&self, address: u64, end: u64) -> Option<&Victim> {
        let after = self.0.partition_point(|victim| victim.start <= address);
        self.0[..after].last().filter(|victim| end <= victim.end)
    }

    /// The whole granules around an address that can be taken at once; empty if that is in none.
    pub(super) fn range_at(&self, address: u64) -> Range<u64> {
        match self.holding(address, address + 1) {
            Some(victim) if victim.is_ordered => victim.start..victim.end,
            _ => 0..0,
        }
    }

    /// Those that are free in the order of the request's stream.
    pub(super) fn of_own_stream(mut self) -> Self {
        self.0.retain(|victim| !victim.is_foreign);
        self
    }

    /// How many bytes could be taken at once.
    pub(super) fn ordered_bytes(&self) -> u64 {
        let ordered = self.0.iter().filter(|victim| victim.is_ordered);
        ordered.map(|victim| victim.end - victim.start).sum()
    }
}

impl Heap {
    /// The free memory from which a request may take whole granules.
    pub(super) fn victims(&self, wanted: Wanted, reach: Reach) -> Victims {
        let granule_bytes = self.config.granule_bytes;
        let mut victims = Vec::new();
        let lists = self
            .lists
            .iter()
            .filter(|list| self.is_open_pool(list.pool) && list.kind == SegmentKind::Mapped);
        for list in lists {
            for block in list.filed_from(&self.blocks, granule_bytes) {
                let free = &self.blocks[block];
                let Range { start, end } = whole_units(free.address, free.end(), granule_bytes);
                if start < end
                    && let Some(is_ordered) = self.is_ordered(block, wanted, reach)
                {
                    let is_foreign = list.stream != self.list(wanted.list).stream;
                    victims.push(Victim { block, start, end, is_foreign, is_ordered });
                }
            }
        }
        victims.sort_unstable_by_key(|victim| victim.start);
        Victims(victims)
    }

    /// Whether a request may take of a free block at once; `None` if not even after a wait.
    fn is_ordered(&self, block: BlockIndex, wanted: Wanted, reach: Reach) -> Option<bool> {
        let owner = self.list(self.blocks[block].list).stream;
        let user = self.list(wanted.list).stream;
        let is_over = self.blocks[block].free_after <= self.streams.at(owner).passed;
        if reach == Reach::Own {
            // Captured work runs later, on any stream: only memory that nobody uses is safe.
            return is_over.then_some(true);
        }
        if is_over || owner == user {
            return Some(true);
        }
        match self.readiness(block, user) {
            _ if self.config.cross_stream == CrossStream::Never => None,
            Readiness::Ordered => Some(true),
            Readiness::Recorded | Readiness::Unrecorded => Some(false),
            Readiness::Never => None,
        }
    }

    /// Where the place lies that a granule backs.
    pub(super) fn address_behind(&self, granule: GranuleId) -> Option<u64> {
        match self.granules.state(granule) {
            GranuleState::Backing(place) => Some(self.address_of(place)),
            _ => None,
        }
    }

    /// Up to `count` granules for a request, other than those it takes already: of its own stream
    /// first, from large blocks first and there from the end, so that few blocks are cut.
    pub(super) fn pick(
        &self,
        count: usize,
        victims: &Victims,
        taken: &mut [GranuleId],
    ) -> Vec<GranuleId> {
        let mut picked = Vec::with_capacity(count);
        if count == 0 {
            return picked;
        }
        taken.sort_unstable();
        let mut order: Vec<&Victim> = victims.0.iter().filter(|v| v.is_ordered).collect();
        order.sort_by_key(|victim| (victim.is_foreign, Reverse(victim.end - victim.start)));
        for victim in order {
            let granules = self.granules_in(victim).rev();
            let left = count - picked.len();
            let fresh = granules.filter(|granule| taken.binary_search(granule).is_err());
            picked.extend(fresh.take(left));
            if picked.len() == count {
                break;
            }
        }
        picked
    }

    fn granules_in(&self, victim: &Victim) -> impl DoubleEndedIterator<Item = GranuleId> + '_ {
        let segment = self.segments.get(self.blocks[victim.block].segment);
        let base = segment.map_or(victim.start, |segment| segment.address);
        let slot = |address| ((address - base) / self.config.granule_bytes) as usize;
        let slots = slot(victim.start)..slot(victim.end);
        slots.filter_map(move |slot| segment.and_then(|segment| segment.granule(slot)))
    }

    /// Claims the places that granules are taken from, as few blocks as possible.
    pub(super) fn claim_granules(
        &mut self,
        granules: &[GranuleId],
        victims: &Victims,
    ) -> Vec<BlockIndex> {
        let granule_bytes = self.config.granule_bytes;
        let places = granules.iter().filter_map(|&granule| self.address_behind(granule));
        let mut starts: Vec<u64> = places.collect();
        // From the last to the first: what is cut off a block stands behind what it keeps.
        starts.sort_unstable();
        let mut claimed = Vec::new();
        while let Some(last) = starts.pop() {
            let Some(victim) = victims.holding(last, last + granule_bytes).copied() else {
                continue;
            };
            let mut start = last;
            while let Some(&before) = starts.last()
                && before + granule_bytes == start
                && before >= victim.start
            {
                start = before;
                starts.pop();
            }
            claimed.push(self.claim_range(victim.block, start, last + granule_bytes));
        }
        claimed
    }

    /// Plans for a request's stream to wait for those that have granules to take, the largest
    /// blocks first, until `bytes` are covered.
    pub(super) fn plan_victim_order(
        &mut self,
        wanted: Wanted,
        victims: &Victims,
        bytes: u64,
    ) -> Option<Plan> {
        let mut unordered: Vec<&Victim> = victims.0.iter().filter(|v| !v.is_ordered).collect();
        unordered.sort_by_key(|victim| Reverse(victim.end - victim.start));
        let mut points: Vec<(u32, u64)> = Vec::new();
        let mut left = bytes;
        for victim in unordered {
            let block = &self.blocks[victim.block];
            let owner = self.list(block.list).stream;
            match points.iter_mut().find(|(stream, _)| *stream == owner) {
                Some((_, point)) => *point = block.free_after.max(*point),
                None => points.push((owner, block.free_after)),
            }
            left = left.saturating_sub(victim.end - victim.start);
            if left == 0 {
                break;
            }
        }
        self.plan_wait(wanted, points)
    }
}
