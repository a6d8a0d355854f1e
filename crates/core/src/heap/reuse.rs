//! Memory of other streams: runs of adjacent free blocks, and what it takes to use them.

use super::Heap;
use super::search::Run;
use crate::fence::{Fence, StreamOrder};
use crate::id::StreamIx;
use crate::plan::{Intent, Plan, Request, Step};
use crate::policy::CrossStream;
use crate::space::Granted;
use crate::space::block::BlockState;
use crate::space::free_list::FreeList;

impl Heap {
    /// Serves a request with the front of a run whose blocks are all ordered before its stream.
    pub(super) fn take_run(&mut self, request: Request, run: Run) -> Granted {
        let index = run.first;
        self.space.take_out(index);
        while self.space.blocks[index].bytes < request.bytes {
            let next = self.space.blocks[index].next;
            let is_free = self.space.blocks[next].state == BlockState::Free;
            assert!(is_free, "a run has a block in use");
            self.space.take_in_next(index);
        }
        let FreeList { stream, .. } = *self.space.list(request.list);
        let block = &mut self.space.blocks[index];
        block.list = request.list;
        // Points of two streams do not compare. To its new stream what is left over is free at
        // once; to others, from that stream's next fence on.
        block.free_after = self.streams.at(stream).free_after();
        self.stats.cross_stream_reuses += 1;
        self.occupy(index, request)
    }

    /// Plans for the request's stream to wait for those that have a run for it, if it may.
    pub(super) fn plan_order(&mut self, request: Request, may_wait: bool) -> Option<Plan> {
        if self.config.cross_stream == CrossStream::Never {
            return None;
        }
        let search = self.search(request);
        let run = search.run(StreamOrder::Unrecorded)?;
        let points = search.points_of(search.unordered(run).into_iter());
        self.plan_wait(request, points, may_wait)
    }

    /// Plans for the request's stream to wait for points of others. Where it may not, only the
    /// fences are recorded that will tell when they have passed.
    pub(super) fn plan_wait(
        &mut self,
        request: Request,
        points: Vec<(StreamIx, u64)>,
        may_wait: bool,
    ) -> Option<Plan> {
        let mut steps = Vec::new();
        let mut waits = Vec::new();
        let mut fences = Vec::new();
        let user = self.streams.id_at(self.space.list(request.list).stream);
        let may_wait = may_wait && self.config.cross_stream == CrossStream::Wait;
        for (owner, point) in points {
            let stream = self.streams.id_at(owner);
            let state = self.streams.at_mut(owner);
            let mut fence = Fence { stream, point };
            if point > state.recorded {
                fence.point = state.issue();
                steps.push(Step::Record { fence });
            }
            if may_wait {
                waits.push(Step::Wait { stream: user, fence });
                fences.push(fence);
            }
        }
        // Records first: if one fails, the stream was not made to wait for the others in vain.
        steps.append(&mut waits);
        (!steps.is_empty()).then_some(Plan { steps, intent: Intent::Order { user, fences } })
    }
}
