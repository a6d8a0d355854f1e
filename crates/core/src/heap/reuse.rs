//! Memory of other streams: runs of adjacent free blocks, and what it takes to use them.

use super::Heap;
use crate::fence::{Fence, StreamOrder};
use crate::plan::{Intent, Plan, Request, Step};
use crate::policy::CrossStream;
use crate::space::Granted;
use crate::space::block::{BlockIndex, BlockState};
use crate::space::free_list::FreeList;

/// Which free memory may serve a request before it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reuse {
    /// Its own free list, and memory that nobody uses any more: for streams under capture.
    OwnStream,
    /// Also other streams' blocks, if ordered before this stream already.
    Ordered,
    /// Also other streams' blocks that are to be ordered first: by a wait on the device, or by
    /// recording fences that may pass.
    MayWait,
}

/// Adjacent free blocks, from the first to the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    first: BlockIndex,
    last: BlockIndex,
}

impl Heap {
    /// The smallest run of adjacent free blocks that serves a request and holds a block of another
    /// stream; at the lowest address if equal. Linear in the free blocks of the other streams.
    pub(super) fn find_run(&self, request: Request, worst: StreamOrder) -> Option<Run> {
        let blocks = &self.space.blocks;
        let own = self.space.list(request.list);
        // Rests of windows of an open pool go home with the last use of their granule.
        let stays = !self.is_open(request.list);
        let joins = |index: BlockIndex| {
            index.some().is_some_and(|index| {
                let block = &blocks[index];
                block.state == BlockState::Free
                    && (stays || !block.is_window)
                    && (block.list == request.list || self.stream_order(index, own.stream) <= worst)
            })
        };
        let mut best: Option<(u64, u64, Run)> = None;
        let lists = self.pools.at(own.pool).lists(own.class);
        let others = lists.filter(|&(_, other)| other != request.list);
        for list in others.map(|(_, other)| self.space.list(other)) {
            for start in list.filed(blocks).filter(|&start| joins(start)) {
                let previous = blocks[start].previous;
                // A run is looked at once, from the first of its blocks that is another stream's.
                if joins(previous)
                    && (blocks[previous].list != request.list || joins(blocks[previous].previous))
                {
                    continue;
                }
                let mut run = Run { first: start, last: start };
                while joins(blocks[run.first].previous) {
                    run.first = blocks[run.first].previous;
                }
                while joins(blocks[run.last].next) {
                    run.last = blocks[run.last].next;
                }
                let address = blocks[run.first].address;
                let bytes = blocks[run.last].end() - address;
                if bytes >= request.bytes
                    && best.as_ref().is_none_or(|best| (bytes, address) < (best.0, best.1))
                {
                    best = Some((bytes, address, run));
                }
            }
        }
        best.map(|(_, _, run)| run)
    }

    /// Serves a request with the front of a run whose blocks are all ordered before its stream.
    pub(super) fn take_run(&mut self, request: Request, run: Run) -> Granted {
        let index = run.first;
        self.space.remove_free(index);
        while self.space.blocks[index].bytes < request.bytes {
            self.space.remove_free(self.space.blocks[index].next);
            self.space.blocks.absorb_next(index);
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

    /// Plans for the request's stream to wait for those that have a run for it.
    pub(super) fn plan_order(&mut self, request: Request) -> Option<Plan> {
        if self.config.cross_stream == CrossStream::Never {
            return None;
        }
        let run = self.find_run(request, StreamOrder::Unrecorded)?;
        let user = self.space.list(request.list).stream;
        let end = self.space.blocks[run.last].end();
        let all = self.space.blocks.onward(run.first);
        let all = all.take_while(|&index| self.space.blocks[index].address < end);
        let unordered = all.filter(|&index| {
            let is_own = self.space.blocks[index].list == request.list;
            !is_own && self.stream_order(index, user) != StreamOrder::Ordered
        });
        let points = self.points_of(unordered);
        self.plan_wait(request, points)
    }

    /// The last point of each stream that blocks are free after.
    pub(super) fn points_of(&self, blocks: impl Iterator<Item = BlockIndex>) -> Vec<(u32, u64)> {
        let mut points: Vec<(u32, u64)> = Vec::new();
        for index in blocks {
            let point = self.space.blocks[index].free_after;
            let owner = self.space.list_of(index).stream;
            match points.iter_mut().find(|(stream, _)| *stream == owner) {
                Some((_, last)) => *last = point.max(*last),
                None => points.push((owner, point)),
            }
        }
        points
    }

    /// Plans for the request's stream to wait for points of others. Where the policy forbids the
    /// wait, only the fences are recorded that will tell when they have passed.
    pub(super) fn plan_wait(&mut self, request: Request, points: Vec<(u32, u64)>) -> Option<Plan> {
        let mut steps = Vec::new();
        let mut waits = Vec::new();
        let mut fences = Vec::new();
        let user = self.streams.id_at(self.space.list(request.list).stream);
        let may_wait = self.config.cross_stream == CrossStream::Wait;
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

    /// What it takes for a free block to be used on another stream than its own.
    pub(super) fn stream_order(&self, index: BlockIndex, user: u32) -> StreamOrder {
        let block = &self.space.blocks[index];
        self.streams.order(self.space.list(block.list).stream, block.free_after, user)
    }

    /// Whether the host knows the last use of a block to be complete.
    #[inline]
    pub(super) fn is_complete(&self, index: BlockIndex) -> bool {
        let block = &self.space.blocks[index];
        self.streams.has_passed(self.space.list(block.list).stream, block.free_after)
    }
}
