//! Gathering: free memory is unmapped where it is at home, and its handles are kept, to be mapped
//! at once where memory is wanted instead.
//!
//! For a block that grows, from everybody; for all others from what such blocks have given up. Only
//! memory whose last use is known to be complete is gathered, as by a trim: fences that tell so are
//! recorded first.

use super::Heap;
use super::trim::{Missing, Trim, Whose};
use crate::headroom::Look;
use crate::plan::{Plan, Request, Reuse};
use crate::space::block::BlockIndex;

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
        let lists = space.lists().iter().filter(|list| self.whose.takes_from(pools, list));
        let filed = lists.flat_map(|list| list.filed(&space.blocks));
        let blocks: Vec<BlockIndex> = filed.filter(is_candidate).collect();
        let user = space.list(request.list).stream;
        streams.plan_wait(space, user, &blocks, false)
    }
}

impl<'a> Trim<'a> {
    /// A plan to gather free memory.
    pub(super) fn gathering(heap: &'a mut Heap, gather: Gather) -> Option<Plan> {
        let Gather { bytes, beyond_bytes, whose } = gather;
        let mut trim = Self::of(heap, whose);
        let missing = Missing { bytes, beyond_bytes, since: None, most: usize::MAX };
        trim.claim_free(missing, |trim, _, claimed| drop(trim.claim_backing(claimed)));
        (!trim.releases.is_empty()).then(|| trim.into_plan())
    }
}
