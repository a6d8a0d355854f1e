//! Harvest: wholly free granules, wherever they are free, for a request that fits nowhere.
//!
//! Taken are granules of which every byte is free, of the default pool and of released ones: graphs
//! hold the addresses of a private pool. The addresses a granule is taken from become hollow; they
//! still lead to it, and are its alias from then on. I10: the request's stream is ordered after the
//! last use of what it takes.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use super::Heap;
use super::request::{Reach, Readiness};
use crate::block::{BlockIndex, BlockState};
use crate::granule::{GranuleId, GranuleState, Place};
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

    /// The whole granules of these blocks, as ranges of addresses; empty for what is no victim.
    pub(super) fn ranges_of(&self, blocks: [BlockIndex; 2]) -> [(u64, u64); 2] {
        blocks.map(|block| {
            let victim = block.some().and_then(|b| self.0.iter().find(|victim| victim.block == b));
            victim.map_or((0, 0), |victim| (victim.start, victim.end))
        })
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

    /// Every granule that can be taken at once.
    pub(super) fn takeable(&self, victims: &Victims) -> impl Iterator<Item = GranuleId> {
        let free = victims.0.iter().filter(|victim| victim.is_ordered);
        let idle = self.granules.idle().iter().copied();
        idle.chain(free.flat_map(|victim| self.granules_in(victim)))
    }

    /// Whether the place that a granule backs lies in one of these ranges.
    pub(super) fn is_within(&self, granule: GranuleId, ranges: [(u64, u64); 2]) -> bool {
        let GranuleState::Backing(place) = self.granules.state(granule) else {
            return false;
        };
        let address = self.address_of(place);
        ranges.iter().any(|&(start, end)| start <= address && address < end)
    }

    /// Up to `count` granules for a request, other than those it takes already: idle ones, then
    /// those of the request's own stream, from large blocks first and there from the end, so that
    /// few blocks are cut.
    pub(super) fn pick(
        &self,
        count: usize,
        victims: &Victims,
        spared: [BlockIndex; 2],
        taken: &BTreeSet<GranuleId>,
    ) -> Vec<GranuleId> {
        let idle = self.granules.idle().iter().rev().copied();
        let mut picked: Vec<GranuleId> =
            idle.filter(|granule| !taken.contains(granule)).take(count).collect();
        let mut order: Vec<&Victim> = victims.0.iter().collect();
        order.retain(|victim| victim.is_ordered && !spared.contains(&victim.block));
        order.sort_by_key(|victim| (victim.is_foreign, Reverse(victim.end - victim.start)));
        for victim in order {
            let granules = self.granules_in(victim).rev();
            let left = count - picked.len();
            picked.extend(granules.filter(|granule| !taken.contains(granule)).take(left));
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

    /// Claims the places that granules are taken from. Idle granules become part of the plan.
    pub(super) fn claim_granules(
        &mut self,
        granules: &[GranuleId],
        victims: &Victims,
    ) -> Vec<BlockIndex> {
        let granule_bytes = self.config.granule_bytes;
        let mut starts = Vec::with_capacity(granules.len());
        for &granule in granules {
            match self.granules.state(granule) {
                GranuleState::Backing(place) => starts.push(self.address_of(place)),
                _ => self.granules.take_idle(granule),
            }
        }
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

    /// The granule-sized places of a block that starts and ends on granules, with what is mapped.
    pub(super) fn places_of(&self, index: BlockIndex) -> Vec<(Place, GranuleId)> {
        let block = self.blocks[index];
        let Some(segment) = self.segments.get(block.segment) else {
            return Vec::new();
        };
        let first = (block.address - segment.address) / self.config.granule_bytes;
        let slots = first..first + block.bytes / self.config.granule_bytes;
        let place = |slot| Place { segment: block.segment, slot: slot as u32 };
        slots.filter_map(|slot| Some((place(slot), segment.granule(slot as usize)?))).collect()
    }

    pub(super) fn address_of(&self, place: Place) -> u64 {
        let base = self.segments.get(place.segment).map_or(0, |segment| segment.address);
        base + u64::from(place.slot) * self.config.granule_bytes
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

    /// A claimed block that is to be free again.
    pub(super) fn return_claimed(&mut self, claimed: &[BlockIndex]) {
        for &index in claimed {
            debug_assert_eq!(self.blocks[index].state, BlockState::Claimed);
            self.file(index);
        }
    }
}
