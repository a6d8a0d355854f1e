//! Compaction: what is live in handles that are in use in part moves together, behind addresses
//! that stay, and whole handles are left over.
//!
//! A plan moves one handle. It is begun for a request only where all that is unused, together with
//! what moves give, holds the request: else nothing is touched. What a move takes comes from what
//! the device has left, from a handle that backs nothing, or from one of free memory that is given
//! back first. Where there is none, one handle goes by way of the host: what is live in it moves to
//! the host's memory, the device gets the handle back, and from that it comes home. Between the two
//! moves the program goes on, over the bus, and the room to come back is kept. The caller holds
//! every stream that may use the memory, which no plan can see to.

use std::ops::{Range, RangeInclusive};

use super::Heap;
use super::gather::Gather;
use super::trim::{Trim, Whose};
use crate::plan::{self, Intent, Move, Place, Plan, Step};
use crate::policy;
use crate::space::block::{BlockIndex, BlockState};
use crate::state_machine::StateMachine;
use crate::stats::RemapStats;
use crate::vm::Figures;
use crate::vm::moves::Sparse;
use crate::vm::pins::PinKey;

/// A handle, and a free block that lies in it.
type Candidate = (Sparse, BlockIndex);

/// A heap whose live memory is to move together.
pub(super) struct Compaction<'a> {
    pub(super) heap: &'a mut Heap,
}

impl Heap {
    /// From now on live memory moves by itself: handles in use in part are no loss.
    pub const fn expect_moves(&mut self) {
        self.headroom.config.moves = self.headroom.config.remaps;
    }

    /// Plans the next step towards so many bytes for a request, with room for the next move beside
    /// them: a move, or what has to go before one. Where the room cannot be had whole, as much of
    /// it as there is, but nothing for a request that could not be served all the same. For 0 bytes
    /// only what brings back what is in the host's memory. `None` if there is nothing to be done.
    /// To be called again until then, or until a plan fails.
    pub fn plan_compaction_for(&mut self, bytes: u64) -> Option<Plan> {
        let needed_bytes = bytes.checked_next_multiple_of(self.vm.granule_bytes())?;
        let back = Compaction::of(self).plan_return();
        if back.is_some() || bytes == 0 {
            return back;
        }
        let left_bytes = self.headroom.left_bytes(&self.stats);
        let at_hand_bytes = self.unused_bytes().saturating_add(left_bytes);
        let room_bytes = Compaction::of(self).largest_move_bytes();
        let with_room_bytes = needed_bytes.saturating_add(room_bytes);
        let most_bytes = with_room_bytes.saturating_sub(at_hand_bytes);
        let missing_bytes = needed_bytes.saturating_sub(at_hand_bytes);
        if most_bytes == 0 {
            return None;
        }
        // Windows that wait for their next use keep handles where they are.
        let moved = Compaction::of(self).plan(missing_bytes.max(1)..=most_bytes);
        let plan = moved.or_else(|| self.plan_eviction());
        if missing_bytes == 0 || plan.is_some() {
            return plan;
        }
        let unshared = Trim::unsharing(self);
        let shared = unshared.or_else(|| Compaction::of(self).plan_sharing(missing_bytes));
        shared.or_else(|| Compaction::of(self).plan_by_host(missing_bytes))
    }

    /// Plans the next step of moving all that can move, so that nothing unused is left in handles
    /// in use. `None` once that is so, or where nothing more can move.
    pub fn plan_full_compaction(&mut self) -> Option<Plan> {
        let back = Compaction::of(self).plan_return();
        let moved = back.or_else(|| Compaction::of(self).plan(0..=u64::MAX));
        moved.or_else(|| self.plan_eviction())
    }

    /// What is mapped away from home and what is pinned.
    pub fn remap_stats(&self) -> RemapStats {
        let Figures { remapped_granules, mappings, pinned_bytes, .. } = self.vm.figures();
        let (granule_bytes, aliases) = (self.vm.granule_bytes(), mappings as u64);
        let Heap { space, pools, .. } = self;
        let lists = pools.open_mapped(space);
        let free = lists.flat_map(|list| list.filed_from(&space.blocks, granule_bytes));
        let beside_live_bytes =
            free.map(|index| self.vm.under(&space.blocks[index]).beside_live_bytes()).sum();
        RemapStats { granule_bytes, remapped_granules, aliases, pinned_bytes, beside_live_bytes }
    }
}

impl<'a> Compaction<'a> {
    pub(super) const fn of(heap: &'a mut Heap) -> Self {
        Self { heap }
    }

    /// Plans a step that leads to so many unused bytes more: to as many of them as there are, if
    /// that is not too few.
    pub(super) fn plan(&mut self, wanted: RangeInclusive<u64>) -> Option<Plan> {
        if !self.heap.config().remaps {
            return None;
        }
        self.heap.windows().send_all_home();
        let granule_bytes = self.heap.vm.granule_bytes();
        let candidates = self.candidates();
        let free_bytes = self.free_bytes(&candidates);
        let (least_bytes, most_bytes) = wanted.into_inner();
        if free_bytes < least_bytes {
            return None;
        }
        // By what it costs for each byte that is wanted.
        let price = |(one, _): &&Candidate| {
            let wanted = one.free_bytes(granule_bytes).min(most_bytes);
            (one.price() << 32) / (wanted / granule_bytes).max(1)
        };
        // What moves takes room, which what is unused can make; each move makes more.
        let room_bytes = self.room_bytes();
        let has_room = |(one, _): &&Candidate| one.bytes_to_create(&self.heap.vm) <= room_bytes;
        let (sparse, within) = candidates.iter().filter(has_room).min_by_key(price)?;
        self.plan_sparse(sparse, *within)
    }

    /// Plans to give what is live in a handle that a block lies in others; or to make the room for
    /// it first.
    pub(super) fn plan_sparse(&mut self, sparse: &Sparse, within: BlockIndex) -> Option<Plan> {
        let left_bytes = self.heap.headroom.left_bytes(&self.heap.stats);
        let created_bytes = sparse.bytes_to_create(&self.heap.vm);
        // Room is kept for what comes back from the host.
        let created_bytes = created_bytes.saturating_sub(sparse.kept_bytes(&self.heap.vm));
        match created_bytes.checked_sub(left_bytes) {
            None | Some(0) => Some(self.plan_move(sparse, within, created_bytes, Place::Device)),
            Some(lacking_bytes) => self.plan_room_for_moves(lacking_bytes),
        }
    }

    /// Plans a step of meshes, for as many bytes as moves do not give: or for the room that they
    /// lack.
    fn plan_sharing(&mut self, missing_bytes: u64) -> Option<Plan> {
        if !self.heap.config().remaps {
            return None;
        }
        let (vm, candidates) = (&self.heap.vm, self.candidates());
        let lacking_bytes = missing_bytes.saturating_sub(self.free_bytes(&candidates));
        if lacking_bytes > 0 {
            return self.plan_meshes(lacking_bytes, Place::Host);
        }
        let created = candidates.iter().map(|(one, _)| one.bytes_to_create(vm));
        let lacking_room_bytes = created.min().unwrap_or(0).saturating_sub(self.room_bytes());
        self.plan_meshes(lacking_room_bytes, Place::Device)
    }

    /// Plans to move what is live in a handle to the host's memory, so that as many bytes as are
    /// missing can be had: one at a time, of which the least is live.
    fn plan_by_host(&mut self, missing_bytes: u64) -> Option<Plan> {
        if !self.may_go_by_host() {
            return None;
        }
        let candidates = self.candidates();
        if self.free_bytes(&candidates) < missing_bytes {
            return None;
        }
        let (sparse, within) = candidates.iter().min_by_key(|(one, _)| one.live())?;
        // It counts as reserved in place of the handle that the device gets back.
        Some(self.plan_move(sparse, *within, 0, Place::Host))
    }

    /// Whether a handle may be moved to the host's memory: one at a time.
    pub(super) fn may_go_by_host(&self) -> bool {
        let config = self.heap.config();
        config.remaps && !config.is_integrated && self.heap.vm.figures().on_host_bytes == 0
    }

    /// Plans to bring back what is in the host's memory, or to make the room for it; what of it
    /// backs nothing any more is released.
    fn plan_return(&mut self) -> Option<Plan> {
        if self.heap.vm.figures().on_host_bytes == 0 {
            return None;
        }
        let mut steps = Vec::new();
        self.heap.vm.plan_idle_release(Some(0), &mut steps);
        if !steps.is_empty() {
            return Some(Plan { steps, intent: Intent::Trim { releases: Vec::new() } });
        }
        // A window that waits for its next use keeps it where it is.
        let Some(sparse) = Sparse::on_host(&self.heap.vm).next() else {
            return self.heap.plan_eviction();
        };
        let within = *self.heap.space.within(&sparse.of.addresses).first()?;
        self.plan_sparse(&sparse, within)
    }

    /// How much the largest move would take by now, and what is kept for those to come.
    fn largest_move_bytes(&self) -> u64 {
        let candidates = self.candidates().into_iter();
        let created_bytes = candidates.map(|(one, _)| one.bytes_to_create(&self.heap.vm));
        created_bytes.fold(policy::ROOM_FOR_MOVES_BYTES, u64::max)
    }

    /// How much moves may take: what is left, and what unused memory can be given back for.
    pub(super) fn room_bytes(&self) -> u64 {
        let left_bytes = self.heap.headroom.left_bytes(&self.heap.stats);
        left_bytes.saturating_add(self.heap.unused_bytes())
    }

    /// Plans to give back memory that backs nothing, so that so many bytes more can be created; or
    /// to unmap some that is free first.
    fn plan_room_for_moves(&mut self, lacking_bytes: u64) -> Option<Plan> {
        let mut steps = Vec::new();
        self.heap.vm.plan_idle_release(Some(lacking_bytes), &mut steps);
        if steps.is_empty() {
            let whose = Whose::Open;
            let gather = Gather { bytes: lacking_bytes, beyond_bytes: u64::MAX, whose };
            return Trim::gathering(self.heap, gather);
        }
        Some(Plan { steps, intent: Intent::Trim { releases: Vec::new() } })
    }

    /// Plans the move of a handle that a free block lies in, which takes so many new bytes.
    pub(super) fn plan_move(
        &mut self,
        sparse: &Sparse,
        within: BlockIndex,
        created_bytes: u64,
        place: Place,
    ) -> Plan {
        let ranges = sparse.free_ranges(self.heap.vm.granule_bytes()).into_iter();
        // From the last to the first: what is cut off a block stands behind what it keeps.
        let claim = |range: Range<u64>| self.heap.space.claim_parts(within, &range);
        let emptied = ranges.rev().flat_map(claim).collect();
        self.heap.headroom.plan(created_bytes);
        let steps = self.heap.vm.plan_move(sparse, place);
        let (addresses, home) = (sparse.of.addresses.clone(), sparse.of.home);
        // Whatever is freed in it meanwhile.
        let (key, segment) =
            (PinKey::Move(addresses.start), self.heap.space.blocks[within].segment);
        self.heap.vm.pin(key, segment, addresses.clone());
        let one = Move { addresses, home, emptied, created_bytes };
        Plan { steps, intent: Intent::Move(one) }
    }

    /// What is live in a handle has other memory; what lies in emptied blocks has none.
    pub(super) fn finish_move(&mut self, one: Move, steps: &[Step]) {
        let Move { addresses, home, emptied, created_bytes } = one;
        self.heap.vm.unpin(PinKey::Move(addresses.start));
        self.heap.headroom.end_plan(created_bytes);
        let (more, less) = (plan::created(steps).sum::<u64>(), self.note_moved(steps));
        let reserved_bytes = &mut self.heap.stats.all.reserved_bytes;
        if less > more {
            reserved_bytes.take(less - more);
            self.heap.headroom.note_given_back(less - more);
        } else {
            reserved_bytes.add(more - less);
        }
        match home {
            Some(home) => self.heap.windows().finish_move(addresses, home, emptied),
            None => emptied.into_iter().for_each(|index| self.heap.finish_backing(index)),
        }
    }

    /// Live memory has moved by these steps. Returns how many bytes of it went back.
    pub(super) fn note_moved(&mut self, steps: &[Step]) -> u64 {
        self.heap.stats.rare.moves += 1;
        self.heap.stats.rare.moved_bytes += plan::copied_bytes(steps);
        self.heap.vm.commit(&self.heap.space.segments, steps)
    }

    /// How many bytes moves of all of these give back.
    fn free_bytes(&self, candidates: &[Candidate]) -> u64 {
        let granule_bytes = self.heap.vm.granule_bytes();
        candidates.iter().map(|(one, _)| one.free_bytes(granule_bytes)).sum()
    }

    /// The handles of which a move gives something back, each with a free block that lies in it.
    fn candidates(&self) -> Vec<Candidate> {
        let Heap { space, vm, pools, .. } = &*self.heap;
        let (blocks, granule_bytes) = (&space.blocks, vm.granule_bytes());
        let lists = pools.open_mapped(space);
        let free = lists.flat_map(|list| list.filed_from(blocks, granule_bytes));
        let mut places: Vec<(u64, BlockIndex)> = Vec::new();
        for index in free {
            let start = blocks[index].address.next_multiple_of(granule_bytes);
            let end = blocks[index].end() - blocks[index].end() % granule_bytes;
            if start < end {
                places.extend([(start, index), (end - granule_bytes, index)]);
            }
        }
        places.sort_by_cached_key(|place| place.0);
        let mut candidates: Vec<Candidate> = Vec::new();
        for (address, index) in places {
            if candidates.last().is_some_and(|(last, _)| last.of.addresses.contains(&address)) {
                continue;
            }
            let is_live = |granule: Range<u64>| {
                blocks.over(index, granule).any(|one| blocks[one].state != BlockState::Free)
            };
            let sparse = vm.span(blocks[index].segment, address..address).sparse(is_live);
            candidates.extend(sparse.filter(Sparse::is_quick).map(|sparse| (sparse, index)));
        }
        candidates
    }
}
