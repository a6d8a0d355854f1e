//! The way of a malloc: the stream's own free list, then other streams', then growth.

use super::Heap;
use crate::block::{BlockIndex, BlockState};
use crate::error::RequestError;
use crate::fence::Fence;
use crate::id::{PoolId, StreamId};
use crate::plan::{Intent, Plan, Step, Wanted};
use crate::policy::CrossStream;
use crate::size::block_bytes;

/// A block handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where it starts.
    pub address: u64,
    /// Its size, at least what was asked for.
    pub bytes: u64,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// Served.
    Granted(Grant),
    /// To be served once this is done to the device.
    Plan(Plan),
}

impl Heap {
    /// Serves a request from the free list of its own pool and stream, if that can.
    ///
    /// This is the path almost every request takes: O(1), and no memory is allocated but when the
    /// tables of blocks grow.
    ///
    /// # Errors
    /// A size no block can have; an unknown stream or pool.
    #[inline]
    pub fn allocate(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
    ) -> Result<Option<Grant>, RequestError> {
        let bytes = block_bytes(requested)?;
        let list = self.list_of(pool, stream, bytes)?;
        Ok(self.serve(Wanted { list, requested, bytes }))
    }

    #[inline]
    fn serve(&mut self, wanted: Wanted) -> Option<Grant> {
        let index = self.list(wanted.list).find(&self.blocks, wanted.bytes)?;
        self.remove_free(index);
        Some(self.occupy(index, wanted))
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
    ) -> Result<Answer, RequestError> {
        self.request_from(pool, stream, requested, true)
    }

    /// Like [`request`](Self::request), but never with a block of another stream: for when those
    /// streams cannot be waited for.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_growth(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
    ) -> Result<Answer, RequestError> {
        self.request_from(pool, stream, requested, false)
    }

    fn request_from(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        may_borrow: bool,
    ) -> Result<Answer, RequestError> {
        let bytes = block_bytes(requested)?;
        let list = self.list_of(pool, stream, bytes)?;
        let wanted = Wanted { list, requested, bytes };
        if let Some(grant) = self.serve(wanted) {
            return Ok(Answer::Granted(grant));
        }
        if may_borrow && let Some(answer) = self.borrow(wanted) {
            return Ok(answer);
        }
        self.grow(wanted)
    }

    /// Serves a request with a block that is free on another stream.
    fn borrow(&mut self, wanted: Wanted) -> Option<Answer> {
        if self.config.cross_stream == CrossStream::Never {
            return None;
        }
        let (index, readiness) = self.find_elsewhere(wanted)?;
        if readiness == Readiness::Passed {
            self.remove_free(index);
            self.stats.cross_stream_reuses += 1;
            return Some(Answer::Granted(self.occupy(index, wanted)));
        }
        if self.config.cross_stream != CrossStream::Wait {
            return None;
        }
        Some(Answer::Plan(self.plan_borrow(wanted, index, readiness)))
    }

    /// The best block on another stream: the cheapest to order, then the smallest.
    fn find_elsewhere(&self, wanted: Wanted) -> Option<(BlockIndex, Readiness)> {
        let own = self.list(wanted.list);
        let pool = self.pools.at(own.pool);
        let mut best: Option<(Readiness, u64, BlockIndex)> = None;
        for (stream, list) in pool.lists(own.scale) {
            if stream == own.stream {
                continue;
            }
            let Some(index) = self.list(list).find(&self.blocks, wanted.bytes) else {
                continue;
            };
            let readiness = self.readiness(index, own.stream);
            let bytes = self.blocks[index].bytes;
            if readiness < Readiness::Never
                && best.is_none_or(|best| (readiness, bytes) < (best.0, best.1))
            {
                best = Some((readiness, bytes, index));
            }
        }
        best.map(|(readiness, _, index)| (index, readiness))
    }

    /// What it takes for a free block to be used on another stream than its own.
    fn readiness(&self, index: BlockIndex, user: u32) -> Readiness {
        let block = &self.blocks[index];
        let owner_index = self.list(block.list).stream;
        let owner = self.streams.at(owner_index);
        let fence = Fence { stream: self.streams.id_at(owner_index), point: block.free_after };
        if block.free_after <= owner.passed || self.streams.at(user).has_seen(fence) {
            Readiness::Passed
        } else if block.free_after <= owner.recorded {
            Readiness::Recorded
        } else if owner.is_retired {
            Readiness::Never
        } else {
            Readiness::Unrecorded
        }
    }

    /// Claims another stream's block and plans for the request's stream to wait for it.
    fn plan_borrow(&mut self, wanted: Wanted, index: BlockIndex, readiness: Readiness) -> Plan {
        self.remove_free(index);
        if self.blocks[index].bytes > wanted.bytes
            && crate::policy::splits(
                self.config.kind,
                self.list(wanted.list).scale,
                self.blocks[index].bytes - wanted.bytes,
            )
        {
            let rest = self.blocks.cut(index, wanted.bytes);
            self.blocks[index].state = BlockState::Claimed;
            self.insert_free(rest);
        }
        self.blocks[index].state = BlockState::Claimed;
        let owner = self.list(self.blocks[index].list).stream;
        let user = self.streams.id_at(self.list(wanted.list).stream);
        let stream = self.streams.id_at(owner);
        let mut steps = Vec::with_capacity(2);
        let point = if readiness == Readiness::Unrecorded {
            let point = self.streams.at_mut(owner).issue();
            steps.push(Step::Record { fence: Fence { stream, point } });
            point
        } else {
            self.blocks[index].free_after
        };
        let fence = Fence { stream, point };
        steps.push(Step::Wait { stream: user, fence });
        Plan { steps, intent: Intent::Borrow { wanted, block: index, fence } }
    }
}

/// How a block free on one stream can be ordered before its use on another, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Readiness {
    /// Its last use is complete, or the other stream waits for it already.
    Passed,
    /// A fence that covers it is recorded: to be waited for.
    Recorded,
    /// A fence must be recorded first, at the end of its stream's queue.
    Unrecorded,
    /// Its stream is gone and so is the last chance to record.
    Never,
}
