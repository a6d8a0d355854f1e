//! Gathering: free memory is unmapped where it is at home, and its handles are kept, to be mapped
//! at once where memory is wanted instead.
//!
//! For a block that grows, from everybody; for all others from what such blocks have given up. Only
//! memory whose last use is known to be complete is gathered, as by a trim: fences that tell so are
//! recorded first.

use super::Heap;
use super::trim::{Trim, within};
use crate::fence::Points;
use crate::headroom::Look;
use crate::id::{ListIx, SegmentIx};
use crate::plan::{Plan, Request, Reuse};
use crate::policy::SegmentKind;
use crate::pool::{Pool, Pools};
use crate::space::block::BlockIndex;
use crate::space::free_list::FreeList;

/// What is to be gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
    /// How many bytes are missing.
    pub(super) bytes: u64,
    /// How far the last handle may reach beyond them.
    pub(super) beyond_bytes: u64,
    /// Whose.
    pub(super) whose: Whose,
}

/// What handles are claimed for.
pub(super) struct Missing<'a> {
    /// How many bytes are missing.
    pub(super) bytes: u64,
    /// How far the last handle may reach beyond them.
    pub(super) beyond_bytes: u64,
    /// Only what has been free since then.
    pub(super) since: Option<&'a Points>,
    /// How many ranges one plan has at most.
    pub(super) most: usize,
}

/// Whose free memory is gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// What blocks that grow have given up.
    GivenUp,
    /// All that is free in open pools.
    All,
    /// That, and what blocks that grow have given up, except the one that wants it.
    AllFor(ListIx),
}

impl Gather {
    /// Plans to gather free memory for a request; or to record the fences that will tell when its
    /// last use is complete. `None` if there is none, or where a capture leaves what is mapped
    /// alone.
    pub(super) fn plan(self, heap: &mut Heap, request: Request) -> Option<Plan> {
        let Request { reuse, look, .. } = request;
        let has_any = self.whose != Whose::GivenUp || heap.pools.has_growing();
        if self.bytes == 0 || !has_any || reuse == Reuse::OwnStream || look == Look::Past {
            return None;
        }
        if self.whose != Whose::GivenUp {
            heap.windows().send_all_home();
        }
        let gathered = Trim::gathering(heap, self);
        gathered.or_else(|| (reuse == Reuse::MayWait).then(|| self.plan_fences(heap, request))?)
    }

    /// Plans fences after the last uses of what could be gathered.
    fn plan_fences(self, heap: &mut Heap, request: Request) -> Option<Plan> {
        let Heap { space, vm, streams, pools, .. } = heap;
        let is_candidate = |index: &BlockIndex| {
            let block = &space.blocks[*index];
            !block.is_window
                && block.bytes >= vm.granule_bytes()
                && streams.can_be_recorded(space, *index)
        };
        let lists = space
            .lists()
            .iter()
            .filter(|list| list.kind == SegmentKind::Mapped && self.whose.takes_from(pools, list));
        let filed = lists.flat_map(|list| list.filed(&space.blocks));
        let blocks: Vec<BlockIndex> = filed.filter(is_candidate).collect();
        let user = space.list(request.list).stream;
        streams.plan_wait(space, user, &blocks, false)
    }
}

impl Whose {
    /// Whether free memory of a list may be gathered.
    pub(super) fn takes_from(self, pools: &Pools<Pool>, list: &FreeList) -> bool {
        match self {
            Whose::GivenUp => pools.is_growing(list),
            Whose::All => pools.is_open(list),
            Whose::AllFor(_) => pools.gives_back(list),
        }
    }
}

impl<'a> Trim<'a> {
    /// A plan to gather free memory.
    pub(super) fn gathering(heap: &'a mut Heap, gather: Gather) -> Option<Plan> {
        let mut trim = Self::new(heap);
        let Gather { bytes, beyond_bytes, whose } = gather;
        let mut missing = Missing { bytes, beyond_bytes, since: None, most: usize::MAX };
        let unmap = |trim: &mut Self, _, claimed| drop(trim.claim_backing(claimed));
        let takes_from = |pools: &Pools<Pool>, list: &FreeList| whose.takes_from(pools, list);
        let starts = trim.run_starts(takes_from);
        for ix in trim.segments_that(takes_from) {
            let segment = trim.heap.space.segments[ix];
            let is_own = whose == Whose::AllFor(segment.list);
            if segment.kind == SegmentKind::Mapped && !segment.is_window && !is_own {
                trim.claim_handles(ix, within(&starts, &segment), &mut missing, unmap);
            }
        }
        (!trim.releases.is_empty()).then(|| trim.into_plan())
    }

    /// Claims whole handles of a mapped segment, as far as they are missing, and has each taken.
    /// Runs may begin with these blocks.
    pub(super) fn claim_handles(
        &mut self,
        ix: SegmentIx,
        starts: &[(u64, BlockIndex)],
        missing: &mut Missing<'_>,
        take: fn(&mut Self, SegmentIx, BlockIndex),
    ) {
        let mut end = 0;
        for &(start, index) in starts {
            if start < end {
                continue;
            }
            end = self.heap.streams.unused_run_end(&self.heap.space, index, missing.since);
            let mut next = index.some();
            while let Some(index) = next.filter(|_| missing.bytes > 0) {
                let address = self.heap.space.blocks[index].address;
                if address >= end || self.releases.len() >= missing.most {
                    break;
                }
                let free = self.heap.vm.span(ix, address..end).releasable();
                let free = self.heap.vm.span(ix, free);
                let range = free.first_handles(missing.bytes, missing.beyond_bytes);
                if range.is_empty() {
                    next = self.heap.space.blocks[index].next.some();
                    continue;
                }
                let claimed = self.heap.space.claim_range(index, range.start, range.end);
                self.heap.space.blocks[claimed].free_after = 0;
                missing.bytes = missing.bytes.saturating_sub(range.end - range.start);
                take(self, ix, claimed);
                next = self.heap.space.blocks[claimed].next.some();
            }
        }
    }
}
