//! Meshes: where no handle can be emptied any more, two pages of which each uses only what the
//! other leaves unused get one granule together, and the other granule is left over.
//!
//! Invariant (I13): each byte of a granule is in use through one page at most. What of a shared
//! one is another page's is *meshed*, and nobody gets it there. Which page has which byte is
//! settled when two meet, and stays so: what is freed in a page serves others in the same page.
//! Once nothing is in use in the guest it is unmapped, and the host has all of the granule again.
//!
//! A mesh takes no memory, so it also makes room for moves. Only a granule that is a handle by
//! itself is shared; a larger handle is parted first, by a move.

use std::cmp::Reverse;
use std::ops::Range;

use super::Heap;
use super::commit::assert_is_put_back;
use super::compact::Compaction;
use super::trim::{Trim, Whose};
use crate::plan::{Intent, Plan, Release, Step};
use crate::policy;
use crate::size::{push_range, round_down};
use crate::space::block::{BlockIndex, BlockState};
use crate::vm::mesh::Mesh;
use crate::vm::moves::{Movable, Sparse};
use crate::vm::span::between;

/// A page of which a part is in use.
#[derive(Debug)]
struct Page {
    addresses: Range<u64>,
    /// A block in it.
    within: BlockIndex,
    /// What is in use, in bytes from its start, and how much that is.
    in_use: Vec<Range<u64>>,
    used_bytes: u64,
    /// Only pages of one pool and class share a granule.
    whose: (usize, usize),
    handle: Movable,
}

impl Page {
    /// Whether its handle has no other page.
    const fn is_alone(&self) -> bool {
        self.handle.addresses.end - self.handle.addresses.start
            == self.addresses.end - self.addresses.start
    }

    /// What is free of it.
    fn free(&self) -> Vec<Range<u64>> {
        let start = self.addresses.start;
        let used = self.in_use.iter().map(|range| start + range.start..start + range.end);
        between(&self.addresses, used)
    }

    /// Whether each uses only what the other does not.
    fn fits(&self, other: &Self) -> bool {
        let is_beside = |range: &Range<u64>| {
            let at = other.in_use.partition_point(|of| of.end <= range.start);
            other.in_use.get(at).is_none_or(|of| range.end <= of.start)
        };
        self.whose == other.whose && self.in_use.iter().all(is_beside)
    }
}

impl Compaction<'_> {
    /// Plans the first step of meshes that give so many bytes: a mesh, or what parts the handle of
    /// one of its pages. `None` if there are not as many.
    pub(super) fn plan_meshes(&mut self, bytes: u64) -> Option<Plan> {
        let pages = self.pages();
        let (guest, host) = self.best_pair(&pages, bytes)?;
        match [guest, host].into_iter().find(|page| !page.is_alone()) {
            Some(page) => {
                let sparse = self.parted(&pages, page);
                self.plan_sparse(&sparse, page.within)
            }
            None => Some(self.plan_mesh(guest, host)),
        }
    }

    /// What gives all pages of a page's handle that are used in part a handle of their own.
    fn parted(&self, pages: &[Page], of: &Page) -> Sparse {
        let whole = &of.handle.addresses;
        let mut within: Vec<u64> = pages.iter().map(|page| page.addresses.start).collect();
        within.retain(|start| whole.contains(start));
        within.sort_unstable();
        of.handle.parted(within.into_iter(), self.heap.vm.granule_bytes())
    }

    /// The first of the pairs that give so many bytes, if there are as many: the guest, of which
    /// the least is to be copied, and the fullest page that it fits into.
    fn best_pair<'p>(&self, pages: &'p [Page], bytes: u64) -> Option<(&'p Page, &'p Page)> {
        let mut wanted = bytes.div_ceil(self.heap.vm.granule_bytes());
        let mut first = None;
        let mut left: Vec<&Page> = pages.iter().collect();
        while wanted > 0 {
            let guest = left.pop()?;
            let fits = |page: &&(usize, &&Page)| page.1.fits(guest);
            let key = |page: &(usize, &&Page)| (page.1.is_alone(), page.1.used_bytes);
            let all = left.iter().enumerate();
            if let Some((at, &host)) = all.filter(|page| fits(&page)).max_by_key(key) {
                left.remove(at);
                first = first.or(Some((guest, host)));
                wanted -= 1;
            }
        }
        first
    }

    /// The pages that may share a granule, those last of which the least is to be copied.
    fn pages(&self) -> Vec<Page> {
        let Heap { space, vm, pools, .. } = &*self.heap;
        let granule_bytes = vm.granule_bytes();
        let lists = pools.open_mapped(space);
        let mut places: Vec<(u64, BlockIndex)> = Vec::new();
        for index in lists.flat_map(|list| list.filed(&space.blocks)) {
            let Range { start, end } = space.blocks[index].range();
            for edge in [start, end].into_iter().filter(|edge| !edge.is_multiple_of(granule_bytes))
            {
                places.push((round_down(edge, granule_bytes), index));
            }
        }
        places.sort_by_cached_key(|place| place.0);
        places.dedup_by_key(|place| place.0);
        let mut pages: Vec<Page> =
            places.into_iter().filter_map(|(start, within)| self.page(start, within)).collect();
        let room_bytes = self.room_bytes();
        let mut may_be_shared = Vec::with_capacity(pages.len());
        while let Some(first) = pages.get(may_be_shared.len()) {
            let others = &pages[may_be_shared.len()..];
            let is_beside = |page: &Page| page.handle.addresses == first.handle.addresses;
            let within = &others[..others.partition_point(is_beside)];
            let sparse = self.parted(within, first);
            let can_be_parted = || sparse.is_quick() && sparse.bytes_to_create(vm) <= room_bytes;
            let may = first.is_alone() || can_be_parted();
            may_be_shared.resize(may_be_shared.len() + within.len(), may);
        }
        let mut may_be_shared = may_be_shared.into_iter();
        pages.retain(|_| may_be_shared.next() == Some(true));
        pages.sort_by_cached_key(|page| Reverse(page.used_bytes));
        let most = pages.len().min(policy::PAGES_TO_MESH);
        pages.split_off(pages.len() - most)
    }

    /// The page at an address, in which a free block lies, if it may share a granule.
    fn page(&self, start: u64, within: BlockIndex) -> Option<Page> {
        let Heap { space, vm, .. } = &*self.heap;
        let blocks = &space.blocks;
        let addresses = start..start + vm.granule_bytes();
        let mut in_use: Vec<Range<u64>> = Vec::new();
        for block in blocks.over(within, addresses.clone()).map(|index| &blocks[index]) {
            let from = block.address.max(start) - start;
            let to = block.end().min(addresses.end) - start;
            match block.state {
                BlockState::Free => {}
                BlockState::Live
                | BlockState::Pending
                | BlockState::Quarantined
                | BlockState::Claimed => push_range(&mut in_use, from..to),
                _ => return None,
            }
        }
        let used_bytes = in_use.iter().map(|range| range.end - range.start).sum();
        let segment = blocks[within].segment;
        let list = space.list(space.segments[segment].list);
        let whose = (list.pool.index(), list.class as usize);
        let handle = vm.span(segment, start..start).movable()?;
        (used_bytes > 0).then_some(Page { addresses, within, in_use, used_bytes, whose, handle })
    }

    /// Plans to let a page share the granule of another one.
    fn plan_mesh(&mut self, guest: &Page, host: &Page) -> Plan {
        let space = &mut self.heap.space;
        let mut meshed = Vec::new();
        // From the last to the first: what is cut off a block stands behind what it keeps.
        for free in guest.free().into_iter().rev() {
            meshed.extend(space.claim_parts(guest.within, &free));
        }
        let start = host.addresses.start;
        for range in guest.in_use.iter().rev() {
            let range = start + range.start..start + range.end;
            meshed.extend(space.claim_parts(host.within, &range));
        }
        let steps = guest.handle.mesh(&host.handle, &guest.in_use);
        Plan {
            steps,
            intent: Intent::Mesh {
                guest: guest.addresses.clone(),
                home: guest.handle.home,
                meshed,
            },
        }
    }
}

impl Compaction<'_> {
    /// A page shares the granule of another one.
    pub(super) fn finish_mesh(
        &mut self,
        guest: Range<u64>,
        home: Option<u64>,
        meshed: Vec<BlockIndex>,
        steps: &[Step],
    ) {
        self.note_moved(steps);
        let Range { start, end } = guest;
        let Some(segment) = self.heap.space.segments.containing(start) else { return };
        let class = self.heap.space.list(self.heap.space.segments[segment].list).class as usize;
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
        guest: &Range<u64>,
        meshed: Vec<BlockIndex>,
        in_effect: &[Step],
    ) {
        assert_is_put_back(in_effect);
        let is_written = in_effect.iter().any(|step| matches!(step, Step::CopyTo { .. }));
        for index in meshed {
            let is_of_guest = guest.contains(&self.heap.space.blocks[index].address);
            if is_written && !is_of_guest {
                self.heap.quarantine.push(index);
            } else {
                self.heap.windows().file(index);
            }
        }
    }

    /// A claimed block over a page that shared a granule was unmapped, or could not be: then all
    /// of it is meshed.
    pub(super) fn finish_guest(&mut self, index: BlockIndex, host: &Range<u64>) {
        let block = &self.heap.space.blocks[index];
        if !self.heap.vm.under(block).is_unmapped() {
            return self.heap.space.blocks.set_state(index, BlockState::Meshed);
        }
        self.heap.windows().finish_unmapping(index);
        let mut meshed = self.heap.space.within(host);
        meshed.retain(|&index| self.heap.space.blocks[index].state == BlockState::Meshed);
        meshed.into_iter().for_each(|index| self.heap.windows().file(index));
    }
}

impl Trim<'_> {
    /// Plans to unmap pages that share a granule and of which nothing is in use.
    pub(super) fn unsharing(heap: &mut Heap) -> Option<Plan> {
        let mut trim = Trim::of(heap, Whose::All);
        for mesh in Mesh::all(&trim.heap.vm) {
            trim.claim_guest(mesh);
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
        let mut meshed = blocks;
        meshed.retain(|&index| space.blocks[index].state == BlockState::Meshed);
        for index in meshed {
            space.file(index);
        }
        // Joined with those beside them.
        let Some(&first) = self.heap.space.within(&guest).first() else { return };
        let claimed = self.heap.space.claim_range(first, start, end);
        self.heap.space.blocks[claimed].free_after = 0;
        self.steps.push(Step::Unmap { address: start, bytes: end - start });
        self.releases.push(Release::Guest { block: claimed, host });
    }
}
