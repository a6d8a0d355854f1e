//! The way of a malloc: the stream's own free list, then other streams', then growth.

use super::Heap;
use crate::block::{BlockIndex, BlockState};
use crate::error::RequestError;
use crate::fence::Fence;
use crate::free_list::FreeList;
use crate::id::{PoolId, StreamId};
use crate::plan::{Intent, Plan, Step, Wanted};
use crate::policy::CrossStream;
use crate::size::block_bytes;

/// A block handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Where it starts.
    pub address: u64,
    /// Its size, at least what was asked for.
    pub bytes: u64,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Outcome {
    /// Served.
    Granted(Granted),
    /// To be served once this is done to the device.
    Plan(Plan),
}

impl Heap {
    /// Serves a request from the free list of its own pool and stream, if that can.
    ///
    /// This is the path almost every request takes: O(1), and no host memory is allocated but when
    /// the tables of blocks grow. A request that was served by a loan before may be so again, which
    /// takes some tens of times as long, and host memory for lists of what is lent.
    ///
    /// # Errors
    /// A size no block can have; an unknown stream or pool.
    #[inline]
    pub fn allocate(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
    ) -> Result<Option<Granted>, RequestError> {
        let bytes = block_bytes(requested)?;
        let list = self.list_of(pool, stream, bytes)?;
        let wanted = Wanted { list, requested, bytes };
        match self.list(list).find(&self.blocks, bytes) {
            Some(index) => Ok(Some(self.occupy_free(index, wanted))),
            None => Ok(self.lend_again(wanted)),
        }
    }

    /// Serves a request from its own free list, from another stream's, or by growth.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and the limit of reserved bytes.
    pub fn request(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        reuse: Reuse,
    ) -> Result<Outcome, RequestError> {
        let bytes = block_bytes(requested)?;
        let list = self.list_of(pool, stream, bytes)?;
        let wanted = Wanted { list, requested, bytes };
        // A captured request takes nothing back: others' work may run beside it.
        if reuse != Reuse::OwnStream {
            self.restore_to(stream.index);
        }
        if let Some(index) = self.list(list).search(&self.blocks, bytes) {
            return Ok(Outcome::Granted(self.occupy_free(index, wanted)));
        }
        let may_share = reuse != Reuse::OwnStream && self.config.cross_stream != CrossStream::Never;
        if may_share && let Some(run) = self.find_run(wanted, Readiness::Ordered) {
            return Ok(Outcome::Granted(self.take_run(wanted, run)));
        }
        self.grow(wanted, reuse)
    }

    /// The smallest run of adjacent free blocks that serves a request and holds a block of another
    /// stream; at the lowest address if equal. Linear in the free blocks of the other streams.
    fn find_run(&self, wanted: Wanted, worst: Readiness) -> Option<Run> {
        let user = self.list(wanted.list).stream;
        // Rests of loans of an open pool go home with the last use of their granule.
        let stays = !self.is_open_pool(self.list(wanted.list).pool);
        let joins = |index: BlockIndex| {
            index.some().is_some_and(|index| {
                let block = &self.blocks[index];
                block.state == BlockState::Free
                    && (stays || !block.is_loan)
                    && (block.list == wanted.list || self.readiness(index, user) <= worst)
            })
        };
        let mut best: Option<(u64, u64, Run)> = None;
        for list in self.other_lists(wanted.list) {
            for start in list.filed(&self.blocks).filter(|&start| joins(start)) {
                let previous = self.blocks[start].previous;
                // A run is looked at once, from the first of its blocks that is another stream's.
                if joins(previous)
                    && (self.blocks[previous].list != wanted.list
                        || joins(self.blocks[previous].previous))
                {
                    continue;
                }
                let mut run = Run { first: start, last: start };
                while joins(self.blocks[run.first].previous) {
                    run.first = self.blocks[run.first].previous;
                }
                while joins(self.blocks[run.last].next) {
                    run.last = self.blocks[run.last].next;
                }
                let address = self.blocks[run.first].address;
                let bytes = self.blocks[run.last].end() - address;
                if bytes >= wanted.bytes
                    && best.as_ref().is_none_or(|best| (bytes, address) < (best.0, best.1))
                {
                    best = Some((bytes, address, run));
                }
            }
        }
        best.map(|(_, _, run)| run)
    }

    /// Serves a request with the front of a run whose blocks are all ordered before its stream.
    fn take_run(&mut self, wanted: Wanted, run: Run) -> Granted {
        let index = run.first;
        self.remove_free(index);
        while self.blocks[index].bytes < wanted.bytes {
            self.remove_free(self.blocks[index].next);
            self.blocks.absorb_next(index);
        }
        let user = self.list(wanted.list).stream;
        let block = &mut self.blocks[index];
        block.list = wanted.list;
        // Points of two streams do not compare. To its new stream what is left over is free at
        // once; to others, from that stream's next fence on.
        block.free_after = self.streams.at(user).free_after();
        self.stats.cross_stream_reuses += 1;
        self.occupy(index, wanted)
    }

    /// Plans for the request's stream to wait for those that have a run for it.
    pub(super) fn plan_order(&mut self, wanted: Wanted) -> Option<Plan> {
        if self.config.cross_stream == CrossStream::Never {
            return None;
        }
        let run = self.find_run(wanted, Readiness::Unrecorded)?;
        let points = self.points_to_wait_for(wanted, run);
        self.plan_wait(wanted, points)
    }

    /// Plans for the request's stream to wait for points of others. Where the policy forbids the
    /// wait, only the fences are recorded that will tell when they have passed.
    pub(super) fn plan_wait(&mut self, wanted: Wanted, points: Vec<(u32, u64)>) -> Option<Plan> {
        let mut steps = Vec::new();
        let mut waits = Vec::new();
        let mut fences = Vec::new();
        let user = self.streams.id_at(self.list(wanted.list).stream);
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

    /// The last point of each stream that a run's blocks are free after, as far as the request's
    /// stream does not know of it.
    fn points_to_wait_for(&self, wanted: Wanted, run: Run) -> Vec<(u32, u64)> {
        let user = self.list(wanted.list).stream;
        let mut points: Vec<(u32, u64)> = Vec::new();
        let mut next = run.first;
        while let Some(index) = next.some() {
            let block = &self.blocks[index];
            if block.list != wanted.list && self.readiness(index, user) != Readiness::Ordered {
                let owner = self.list(block.list).stream;
                match points.iter_mut().find(|(stream, _)| *stream == owner) {
                    Some((_, point)) => *point = block.free_after.max(*point),
                    None => points.push((owner, block.free_after)),
                }
            }
            next = if index == run.last { BlockIndex::NONE } else { block.next };
        }
        points
    }

    /// The lists of the same pool and class on other streams.
    fn other_lists(&self, list: u32) -> impl Iterator<Item = &FreeList> {
        let own = self.list(list);
        let lists = self.pools.at(own.pool).lists(own.class);
        lists.filter(move |&(_, other)| other != list).map(|(_, other)| self.list(other))
    }

    /// What it takes for a free block to be used on another stream than its own.
    pub(super) fn readiness(&self, index: BlockIndex, user: u32) -> Readiness {
        let block = &self.blocks[index];
        let owner_index = self.list(block.list).stream;
        let owner = self.streams.at(owner_index);
        let fence = Fence { stream: self.streams.id_at(owner_index), point: block.free_after };
        if block.free_after <= owner.passed || self.streams.at(user).has_seen(fence) {
            Readiness::Ordered
        } else if block.free_after <= owner.recorded {
            Readiness::Recorded
        } else if owner.is_retired {
            Readiness::Never
        } else {
            Readiness::Unrecorded
        }
    }
}

/// How far a request may go for memory before it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
struct Run {
    first: BlockIndex,
    last: BlockIndex,
}

/// How a block free on one stream can be ordered before its use on another, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Readiness {
    /// Its last use is complete, or the other stream waits for it already.
    Ordered,
    /// A fence that covers it is recorded: to be waited for.
    Recorded,
    /// A fence must be recorded first, at the end of its stream's queue.
    Unrecorded,
    /// Its stream is gone and so is the last chance to record.
    Never,
}
