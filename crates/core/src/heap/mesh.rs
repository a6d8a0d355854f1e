//! Meshes: where no handle can be emptied any more, pages of which each uses only what the others
//! leave unused get one granule together, and the other granules are left over.
//!
//! Invariant (I13): each byte of a granule belongs to one of its pages. In the others it is
//! *meshed*, and nobody gets it there. Which page has which byte is settled when pages meet, and
//! stays so until they meet others: what is freed in a page serves others in the same page. Once
//! nothing is in use in a guest it is unmapped, and the page that the granule backs has its part.
//!
//! A mesh takes no memory, so it also makes room for moves. Only a granule that is a handle by
//! itself is shared; a larger handle is parted first, by a move, if need be by way of the host.

use std::ops::Range;

use super::Heap;
use super::commit::assert_is_put_back;
use super::compact::Compaction;
use super::trim::{Trim, Whose};
use crate::id::SegmentIx;
use crate::plan::{Intent, Place, Plan, Release, Step};
use crate::policy;
use crate::size::round_down;
use crate::space::block::{Block, BlockIndex, BlockState};
use crate::vm::mesh::{Mesh, Sharable};
use crate::vm::moves::Sparse;

/// A part of a granule, in bytes from its start, and where the page begins that it belongs to.
type Part = (Range<u64>, u64);

/// A granule of which a part is in use, with the pages that lead to it.
#[derive(Debug)]
struct Shared {
    of: Sharable,
    /// What is in use, and what is not, in order.
    in_use: Vec<Part>,
    free: Vec<Part>,
    used_bytes: u64,
    /// Only pages of one pool and class share a granule.
    whose: (usize, usize),
}

impl Shared {
    /// Where the page begins that it backs.
    fn start(&self) -> u64 {
        self.of.pages[0]
    }

    /// Whether its handle has no other granule.
    const fn is_alone(&self, granule_bytes: u64) -> bool {
        self.of.handle.addresses.end - self.of.handle.addresses.start == granule_bytes
    }
}

/// Adds a part after others, joined with the last where that goes on in the same page.
fn push_part(parts: &mut Vec<Part>, range: Range<u64>, page: u64) {
    match parts.last_mut().filter(|last| last.1 == page && last.0.end == range.start) {
        Some(last) => last.0.end = range.end,
        None => parts.push((range, page)),
    }
}

/// Whether nothing is in use in both of two granules.
fn fit(one: &[Part], other: &[Part]) -> bool {
    one.iter().all(|(range, _)| {
        let at = other.partition_point(|(of, _)| of.end <= range.start);
        other.get(at).is_none_or(|(of, _)| range.end <= of.start)
    })
}

impl Compaction<'_> {
    /// Plans the first step of meshes that give so many bytes: a mesh, or what parts the handle of
    /// one of its granules. `None` if there are not as many.
    pub(super) fn plan_meshes(&mut self, bytes: u64, place: Place) -> Option<Plan> {
        let granule_bytes = self.heap.vm.granule_bytes();
        let all = self.sharable(place);
        let (guest, host) = self.best_pair(&all, bytes)?;
        let Some(large) = [guest, host].into_iter().find(|one| !one.is_alone(granule_bytes)) else {
            return Some(self.plan_mesh(guest, host));
        };
        let sparse = self.parted(&all, large);
        let within = *self.heap.space.within(&sparse.of.addresses).first()?;
        if sparse.bytes_to_create(&self.heap.vm) <= self.room_bytes() {
            return self.plan_sparse(&sparse, within);
        }
        Some(self.plan_move(&sparse, within, 0, Place::Host))
    }

    /// What gives all granules of a handle that are used in part a handle of their own.
    fn parted(&self, all: &[Shared], one: &Shared) -> Sparse {
        let whole = &one.of.handle.addresses;
        let within = all.iter().map(Shared::start).filter(|start| whole.contains(start));
        let mut within: Vec<u64> = within.collect();
        // By a number, as everything is sorted: the code of it is there once.
        within.sort_by_cached_key(|&start| start);
        one.of.handle.parted(within.into_iter(), self.heap.vm.granule_bytes())
    }

    /// The first of the pairs that give so many bytes, if there are as many: that of which the
    /// least is to be copied, and the fullest that it fits into.
    fn best_pair<'s>(&self, all: &'s [Shared], bytes: u64) -> Option<(&'s Shared, &'s Shared)> {
        let granule_bytes = self.heap.vm.granule_bytes();
        let mut wanted = bytes.div_ceil(granule_bytes);
        let mut first = None;
        // Each with all that would be in use of it by then.
        let mut left: Vec<(&Shared, Vec<Part>, u64)> =
            all.iter().map(|one| (one, one.in_use.clone(), one.used_bytes)).collect();
        while wanted > 0 {
            let (guest, mut in_use, bytes) = left.pop()?;
            let fits = |(host, other, used_bytes): &&mut (&Shared, Vec<Part>, u64)| {
                host.whose == guest.whose
                    && *used_bytes + bytes <= granule_bytes
                    && fit(&in_use, other)
            };
            let key = |(host, _, used_bytes): &&mut (&Shared, Vec<Part>, u64)| {
                (host.is_alone(granule_bytes), *used_bytes)
            };
            if let Some((host, other, used_bytes)) = left.iter_mut().filter(fits).max_by_key(key) {
                other.append(&mut in_use);
                other.sort_by_cached_key(|part| part.0.start);
                *used_bytes += bytes;
                first = first.or(Some((guest, *host)));
                wanted -= 1;
            }
        }
        first
    }

    /// The granules that may be shared, those last of which the least is to be copied.
    fn sharable(&self, place: Place) -> Vec<Shared> {
        let Heap { space, vm, pools, .. } = &*self.heap;
        let granule_bytes = vm.granule_bytes();
        let lists = pools.open_mapped(space);
        let mut places: Vec<(u64, SegmentIx)> = Vec::new();
        for block in lists.flat_map(|list| list.filed(&space.blocks)).map(|at| &space.blocks[at]) {
            let edges = [block.address, block.end()];
            let within = edges.into_iter().filter(|edge| !edge.is_multiple_of(granule_bytes));
            places.extend(within.map(|edge| (round_down(edge, granule_bytes), block.segment)));
        }
        places.sort_by_cached_key(|place| place.0);
        places.dedup_by_key(|place| place.0);
        let mut all: Vec<Shared> =
            places.into_iter().filter_map(|(start, segment)| self.shared(start, segment)).collect();
        all.sort_by_cached_key(Shared::start);
        all.dedup_by_key(|one| one.start());
        let room_bytes = self.room_bytes();
        let goes_by_host = place == Place::Host && self.may_go_by_host();
        let mut may_be_shared = Vec::with_capacity(all.len());
        while let Some(first) = all.get(may_be_shared.len()) {
            let others = &all[may_be_shared.len()..];
            let whole = &first.of.handle.addresses;
            let is_beside = |one: &Shared| one.of.handle.addresses == *whole;
            let within = &others[..others.partition_point(is_beside)];
            let sparse = self.parted(within, first);
            let has_room = || goes_by_host || sparse.bytes_to_create(vm) <= room_bytes;
            let may = first.is_alone(granule_bytes) || (sparse.is_quick() && has_room());
            may_be_shared.resize(may_be_shared.len() + within.len(), may);
        }
        let mut may_be_shared = may_be_shared.into_iter();
        all.retain(|_| may_be_shared.next() == Some(true));
        // The fullest first.
        all.sort_by_cached_key(|one| u64::MAX - one.used_bytes);
        let most = all.len().min(policy::PAGES_TO_MESH);
        all.split_off(all.len() - most)
    }

    /// The granule that a page leads to, if it may be shared.
    fn shared(&self, start: u64, segment: SegmentIx) -> Option<Shared> {
        let Heap { space, vm, .. } = &*self.heap;
        let of = vm.span(segment, start..start).sharable()?;
        let (mut in_use, mut free) = (Vec::new(), Vec::new());
        for &page in &of.pages {
            let addresses = page..page + vm.granule_bytes();
            for block in space.within(&addresses).into_iter().map(|index| &space.blocks[index]) {
                let from = block.address.max(page) - page;
                let range = from..block.end().min(addresses.end) - page;
                match block.state {
                    BlockState::Free => free.push((range, page)),
                    BlockState::Live
                    | BlockState::Pending
                    | BlockState::Quarantined
                    | BlockState::Claimed => push_part(&mut in_use, range, page),
                    BlockState::Meshed => {}
                    _ => return None,
                }
            }
        }
        in_use.sort_by_cached_key(|part| part.0.start);
        free.sort_by_cached_key(|part| part.0.start);
        let used_bytes = in_use.iter().map(|(range, _)| range.end - range.start).sum();
        let list = space.of_segment(segment);
        let whose = (list.pool.index(), list.class as usize);
        let is_quick = in_use.len() <= policy::TARGETS_OF_A_MOVE;
        let may = used_bytes > 0 && is_quick;
        may.then_some(Shared { of, in_use, free, used_bytes, whose })
    }

    /// Plans to let the pages of a granule share another one.
    fn plan_mesh(&mut self, guest: &Shared, host: &Shared) -> Plan {
        let granule_bytes = self.heap.vm.granule_bytes();
        let mut left: Vec<Range<u64>> = Vec::new();
        left.extend(guest.free.iter().map(|(range, page)| page + range.start..page + range.end));
        for (range, _) in &guest.in_use {
            for (free, page) in &host.free {
                let (start, end) = (range.start.max(free.start), range.end.min(free.end));
                left.extend((start < end).then(|| page + start..page + end));
            }
        }
        let space = &mut self.heap.space;
        let mut meshed = Vec::new();
        for range in left {
            let first = space.within(&range).first().copied();
            meshed.extend(first.into_iter().flat_map(|first| space.claim_parts(first, &range)));
        }
        let steps = guest.of.mesh(&host.of, granule_bytes, guest.in_use.iter());
        let guests = guest.of.pages.iter().map(|&page| page..page + granule_bytes).collect();
        Plan { steps, intent: Intent::Mesh { guests, home: guest.of.handle.home, meshed } }
    }
}

impl Compaction<'_> {
    /// Pages share the granule of another one.
    pub(super) fn finish_mesh(
        &mut self,
        guests: &[Range<u64>],
        home: Option<u64>,
        meshed: Vec<BlockIndex>,
        steps: &[Step],
    ) {
        self.note_moved(steps);
        // The first had the granule that is left over.
        let Some(&Range { start, end }) = guests.first() else { return };
        let Some(segment) = self.heap.space.segments.containing(start) else { return };
        let class = self.heap.space.of_segment(segment).class as usize;
        self.heap.stats.classes[class].reserved_bytes.take(end - start);
        if let Some(home) = home
            && let Some(segment) = self.heap.space.segments.containing(home)
        {
            self.heap.windows().leave_home(segment, home..home + (end - start));
        }
        for index in meshed {
            self.heap.space.blocks.set_state(index, BlockState::Meshed);
        }
    }

    /// A mesh failed. While a copy may not be complete, what it writes to is nobody's, until the
    /// device was idle.
    pub(super) fn abandon_mesh(
        &mut self,
        guests: &[Range<u64>],
        meshed: Vec<BlockIndex>,
        in_effect: &[Step],
    ) {
        assert_is_put_back(in_effect);
        let is_written = in_effect.iter().any(|step| matches!(step, Step::CopyTo { .. }));
        for index in meshed {
            let address = self.heap.space.blocks[index].address;
            let is_of_guest = guests.iter().any(|guest| guest.contains(&address));
            if is_written && !is_of_guest {
                self.heap.quarantine.push(index);
            } else {
                self.heap.windows().file(index);
            }
        }
    }

    /// A claimed block over a page that shared a granule was unmapped, and the page that the
    /// granule backs has its part; or it could not be, and has its own part of it still.
    pub(super) fn finish_guest(&mut self, index: BlockIndex, own: &[Range<u64>], host: u64) {
        let start = self.heap.space.blocks[index].address;
        let is_unmapped = self.heap.vm.under(&self.heap.space.blocks[index]).is_unmapped();
        let to = if is_unmapped { host } else { start };
        if is_unmapped {
            self.heap.windows().finish_unmapping(index);
        } else {
            self.heap.space.blocks.set_state(index, BlockState::Meshed);
        }
        for range in own {
            let range = to + range.start..to + range.end;
            for index in self.heap.space.within(&range) {
                let block = &self.heap.space.blocks[index];
                if block.state == BlockState::Meshed {
                    let part = block.address.max(range.start)..block.end().min(range.end);
                    let (piece, _) = self.heap.space.cut_out(index, &part);
                    self.heap.windows().file(piece);
                }
            }
        }
    }
}

impl Trim<'_> {
    /// Plans to unmap pages that share a granule and of which nothing is in use.
    pub(super) fn unsharing(heap: &mut Heap) -> Option<Plan> {
        let mut trim = Trim::of(heap, Whose::All);
        for mesh in Mesh::all(&trim.heap.vm) {
            if !trim.is_full() {
                trim.claim_guest(mesh);
            }
        }
        (!trim.releases.is_empty()).then(|| trim.into_plan())
    }

    fn claim_guest(&mut self, Mesh { segment, guest, host }: Mesh) {
        let Range { start, end } = guest;
        let is_pinned = self.heap.vm.span(segment, start..end).is_pinned();
        let blocks = self.heap.space.within(&guest);
        let Heap { space, streams, .. } = &mut *self.heap;
        let is_over = |&index: &BlockIndex| match space.blocks[index].state {
            BlockState::Meshed => true,
            BlockState::Free => streams.is_complete(space, index),
            _ => false,
        };
        if is_pinned || !blocks.iter().all(is_over) {
            return;
        }
        let (meshed, own): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|&index| space.blocks[index].state == BlockState::Meshed);
        let part = |block: &Block| block.address.max(start) - start..block.end().min(end) - start;
        let own = own.into_iter().map(|index| part(&space.blocks[index])).collect();
        for index in meshed {
            space.file(index);
        }
        // Joined with those beside them.
        let Some(&first) = self.heap.space.within(&guest).first() else { return };
        let claimed = self.heap.space.claim_range(first, start, end);
        self.heap.space.blocks[claimed].free_after = 0;
        self.steps.push(Step::Unmap { address: start, bytes: end - start });
        self.releases.push(Release::Guest { block: claimed, own, host: host.start });
    }
}
