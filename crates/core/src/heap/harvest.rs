//! Harvest: wholly free handles, wherever they are free, for a request that fits nowhere.
//!
//! Taken are handles of which every byte is free and none pinned, of the default pool and of
//! open ones: graphs hold the addresses of a private pool. I10: the request's stream is
//! ordered after the last use of what it takes.

use std::cmp::Reverse;
use std::ops::Range;

use super::Heap;
use super::request::{Readiness, Reuse};
use crate::block::BlockIndex;
use crate::free_list::FreeList;
use crate::granule::{GranuleId, GranuleState};
use crate::lead::{Lead, To};
use crate::plan::{Plan, Wanted};
use crate::policy::{CrossStream, SegmentKind};

/// Room for so many from the start: few requests find more.
const VICTIMS: usize = 32;

/// A free block with whole handles in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub(super) block: BlockIndex,
    /// Where its first whole handle starts.
    start: u64,
    /// Where its last whole handle ends.
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
    /// The victim that has a range as part of its whole handles.
    fn holding(&self, address: u64, end: u64) -> Option<&Victim> {
        let after = self.0.partition_point(|victim| victim.start <= address);
        self.0[..after].last().filter(|victim| end <= victim.end)
    }

    /// Takes the first run off a lead: as many slots as lead to one victim that can be taken at
    /// once, or to none; those are astray.
    pub(super) fn first_run(&self, lead: &mut Lead, granule_bytes: u64) -> Lead {
        let To::Home(first) = lead.to else {
            return Lead { slots: std::mem::take(&mut lead.slots), ..*lead };
        };
        let (end, to) = match self.holding(first, first + granule_bytes) {
            Some(victim) if victim.is_ordered => (victim.end, To::Home(first)),
            Some(victim) => (victim.end, To::Astray),
            None => (self.start_after(first), To::Astray),
        };
        let slots = (((end - first) / granule_bytes) as usize).min(lead.slots);
        lead.slots -= slots;
        lead.to = To::Home(first + slots as u64 * granule_bytes);
        Lead { slots, to }
    }

    /// Where the first victim after an address starts; the end of all addresses if there is none.
    fn start_after(&self, address: u64) -> u64 {
        let after = self.0.partition_point(|victim| victim.start <= address);
        self.0.get(after).map_or(u64::MAX, |victim| victim.start)
    }

    /// What can be taken at once and is not yet: that of the request's own stream first, large
    /// blocks first, and the last of each first.
    fn without(&self, taken: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut order: Vec<&Victim> = self.0.iter().filter(|v| v.is_ordered).collect();
        largest_first(&mut order);
        let mut left = Vec::with_capacity(order.len() + taken.len());
        for victim in order {
            let after = taken.partition_point(|range| range.start < victim.end);
            let mut end = victim.end;
            for range in taken[..after].iter().rev().take_while(|range| range.end > victim.start) {
                left.push(range.end..end);
                end = range.start;
            }
            left.push(victim.start..end);
        }
        left.retain(|range| !range.is_empty());
        left
    }

    /// How many bytes could be taken at once.
    pub(super) fn ordered_bytes(&self) -> u64 {
        let ordered = self.0.iter().filter(|victim| victim.is_ordered);
        ordered.map(|victim| victim.end - victim.start).sum()
    }
}

impl Heap {
    /// The free memory from which a request may take whole handles.
    pub(super) fn victims(&self, wanted: Wanted, reuse: Reuse) -> Victims {
        self.victims_in(wanted, reuse, |_| true)
    }

    /// That of the request's own stream.
    pub(super) fn own_victims(&self, wanted: Wanted) -> Victims {
        let stream = self.list(wanted.list).stream;
        self.victims_in(wanted, Reuse::Ordered, |list| list.stream == stream)
    }

    fn victims_in(
        &self,
        wanted: Wanted,
        reuse: Reuse,
        is_among: impl Fn(&FreeList) -> bool,
    ) -> Victims {
        let granule_bytes = self.config.granule_bytes;
        let mut victims = Vec::with_capacity(VICTIMS);
        let is_open = |list: &&FreeList| {
            list.kind == SegmentKind::Mapped && self.is_open_pool(list.pool) && is_among(list)
        };
        for list in self.lists.iter().filter(is_open) {
            for block in list.filed_from(&self.blocks, granule_bytes) {
                let free = &self.blocks[block];
                let Range { start, end } =
                    self.whole_handles(free.segment, free.address..free.end());
                if start < end
                    && let Some(is_ordered) = self.is_ordered(block, wanted, reuse)
                {
                    let is_foreign = list.stream != self.list(wanted.list).stream;
                    let parts = self.pins.free_of(start..end);
                    victims.extend(parts.map(|Range { start, end }| Victim {
                        block,
                        start,
                        end,
                        is_foreign,
                        is_ordered,
                    }));
                }
            }
        }
        victims.sort_unstable_by_key(|victim| victim.start);
        Victims(victims)
    }

    /// Whether a request may take of a free block at once; `None` if not even after a wait.
    fn is_ordered(&self, block: BlockIndex, wanted: Wanted, reuse: Reuse) -> Option<bool> {
        let owner = self.list(self.blocks[block].list).stream;
        let user = self.list(wanted.list).stream;
        let is_over = self.blocks[block].free_after <= self.streams.at(owner).passed;
        if reuse == Reuse::OwnStream {
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

    /// Where whole handles for gaps of so many granules each are free, other than those a request
    /// takes already: of its own stream first, from large blocks first and there from the end, so
    /// that few are cut. `None` if none fit; the last handle may have up to `room` too many.
    pub(super) fn pick(
        &self,
        gaps: &[usize],
        room: usize,
        victims: &Victims,
        taken: &[Range<u64>],
    ) -> Option<Vec<Range<u64>>> {
        let mut picked = Vec::new();
        if gaps.is_empty() {
            return Some(picked);
        }
        let mut stock = victims.without(taken);
        for (at, &gap) in gaps.iter().enumerate() {
            let mut left = gap as u64 * self.config.granule_bytes;
            for range in &mut stock {
                let last = self.last_handles(range, left);
                left -= last.end - last.start;
                range.end = last.start;
                if !last.is_empty() {
                    picked.push(last);
                }
                if left == 0 {
                    break;
                }
            }
            if left > 0 {
                if at + 1 < gaps.len() {
                    return None;
                }
                let most = left + room as u64 * self.config.granule_bytes;
                let lasts = stock.iter().filter_map(|range| self.last_handle(range));
                let lasts = lasts.filter(|last| last.end - last.start <= most);
                picked.push(lasts.min_by_key(|last| last.end - last.start)?);
            }
        }
        Some(picked)
    }

    /// The last whole handles of a range of them, of so many bytes at most.
    fn last_handles(&self, range: &Range<u64>, bytes: u64) -> Range<u64> {
        let last = range.start.max(range.end.saturating_sub(bytes))..range.end;
        if last.is_empty() || !self.granules.has_large_handles() {
            return last;
        }
        match self.segments.containing(last.start) {
            Some(segment) => self.whole_handles(segment, last),
            None => last,
        }
    }

    /// The last handle of a range of whole ones; `None` if it is empty.
    fn last_handle(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let granule_bytes = self.config.granule_bytes;
        let segment = self.segments.containing(range.start).filter(|_| !range.is_empty())?;
        Some(self.handles_around(segment, range.end - granule_bytes..range.end))
    }

    /// The granules behind a range of addresses, in order.
    pub(super) fn granules_at(&self, range: &Range<u64>) -> impl Iterator<Item = GranuleId> + '_ {
        let segment = self.segments.containing(range.start).and_then(|at| self.segments.get(at));
        let base = segment.map_or(range.start, |segment| segment.address);
        let slot = |address| ((address - base) / self.config.granule_bytes) as usize;
        let slots = slot(range.start)..slot(range.end);
        slots.filter_map(move |slot| segment.and_then(|segment| segment.granule(slot)))
    }

    /// Claims what is taken, given by address, as few blocks as possible.
    pub(super) fn claim_ranges(
        &mut self,
        taken: &[Range<u64>],
        victims: &Victims,
    ) -> Vec<BlockIndex> {
        let mut claimed = Vec::with_capacity(taken.len());
        let mut left = taken;
        // From the last to the first: what is cut off a block stands behind what it keeps.
        while let Some((last, mut before)) = left.split_last() {
            let mut start = last.start;
            if let Some(victim) = victims.holding(last.start, last.end).copied() {
                while let Some((next, others)) = before.split_last()
                    && next.end == start
                    && next.start >= victim.start
                {
                    start = next.start;
                    before = others;
                }
                claimed.push(self.claim_range(victim.block, start, last.end));
            } else {
                debug_assert!(false, "{last:?} is in no one victim");
            }
            left = before;
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
        largest_first(&mut unordered);
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

/// Those of the request's own stream first, of these the largest, of equal ones the first.
fn largest_first(victims: &mut [&Victim]) {
    victims.sort_by_key(|victim| (victim.is_foreign, Reverse(victim.end - victim.start)));
}
