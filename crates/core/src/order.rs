//! The order between streams, as far as a heap and the driver's pools share it: who uses a block
//! (`uses`), and the plans of fences that tell when a use is over.
//!
//! Keeps I9: a freed block waits for a fence of each stream whose use of it may not be complete,
//! until the fence has passed. No free makes a stream wait for another (B29).

use crate::error::StreamError;
use crate::fence::{Fence, Points, StreamOrder, Streams};
use crate::id::{PoolId, StreamId, StreamIx};
use crate::plan::{Intent, Plan, Step};
use crate::space::Space;
use crate::space::block::{BlockIndex, BlockState, NO_USES};

/// How many blocks that waited are freed at a time, with the lock of the heap held: that takes
/// some 50 us at most.
const FREED_AT_ONCE: usize = 256;

impl Streams {
    /// Retires a stream that is about to be destroyed, and plans its last fence.
    pub(crate) fn plan_retire(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        let plan = self.plan_mark(stream)?;
        self.at_mut(stream.index).is_retired = true;
        Ok(plan)
    }

    /// Plans a fence on a stream.
    pub(crate) fn plan_mark(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        let fence = Fence { stream, point: self.live_mut(stream)?.issue() };
        Ok(Plan { steps: vec![Step::Record { fence }], intent: Intent::Mark { fence } })
    }

    /// Plans for a stream to wait for the last uses of blocks of others. Where it may not, only the
    /// fences are recorded that will tell when they have passed. `None` if there is nothing to do.
    pub(crate) fn plan_wait(
        &mut self,
        space: &Space,
        user: StreamIx,
        blocks: &[BlockIndex],
        may_wait: bool,
    ) -> Option<Plan> {
        // The last point of each stream that blocks are free after.
        let mut points: Vec<(StreamIx, u64)> = Vec::new();
        for &index in blocks {
            let (owner, point) = (space.list_of(index).stream, space.blocks[index].free_after);
            match points.iter_mut().find(|(stream, _)| *stream == owner) {
                Some((_, last)) => *last = point.max(*last),
                None => points.push((owner, point)),
            }
        }
        let user = self.id_at(user);
        let (mut steps, mut waits, mut fences) = (Vec::new(), Vec::new(), Vec::new());
        for (owner, point) in points {
            let stream = self.id_at(owner);
            let state = self.at_mut(owner);
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

    /// Plans to wait until the device is idle, for blocks that wait for nothing less and for pools.
    pub(crate) fn plan_idle(&mut self, quarantined: Vec<BlockIndex>, pools: Vec<PoolId>) -> Plan {
        // What an idle device has passed: a new fence on each stream that takes any.
        let last = self.indices().map(|index| {
            let (stream, state) = (self.id_at(index), self.at_mut(index));
            Fence { stream, point: state.issue_last() }
        });
        let fences = last.collect();
        let intent = Intent::Synchronize { fences, quarantined, pools };
        Plan { steps: vec![Step::SynchronizeDevice], intent }
    }

    /// Plans a fence on each stream that uses a freed block, and forgets the uses that are over.
    /// `None` if none is left.
    pub(crate) fn plan_free(&mut self, block: BlockIndex, uses: &mut u32) -> Option<Plan> {
        let (mut fences, mut steps) = (Vec::new(), Vec::new());
        for stream in self.uses.get(*uses).to_vec() {
            let Some((fence, is_new)) = self.fence_of_use(stream) else {
                self.uses.remove(uses, stream);
                continue;
            };
            fences.push(fence);
            if is_new {
                steps.push(Step::Record { fence });
            }
        }
        let intent = Intent::Free { block, fences };
        (*uses != NO_USES).then_some(Plan { steps, intent })
    }

    /// The fences that a freed block needs are recorded. Queues the block until those have passed
    /// that have not yet; true if all have.
    pub(crate) fn wait_for(&mut self, fences: &[Fence], block: BlockIndex, uses: &mut u32) -> bool {
        assert!(!fences.is_empty(), "a block is pending on nothing");
        let mut is_over = false;
        for &fence in fences {
            // A stream that took the place of the fence's has passed all fences of that.
            let stream = self.at_mut(fence.stream.index);
            assert!(fence.point <= stream.issued, "a block waits for what was never issued");
            if !stream.is_retired {
                stream.recorded = stream.recorded.max(fence.point);
            }
            if fence.point > stream.passed {
                stream.enqueue(fence.point, block);
            } else {
                is_over = self.uses.remove(uses, fence.stream);
            }
        }
        is_over
    }

    /// The last fence of its stream, up to one that has passed, for which few enough blocks wait to
    /// be freed at once.
    pub(crate) fn part_of(&self, fence: Fence) -> Fence {
        // The fence of a stream that was succeeded is nobody's.
        let is_current = self.id_at(fence.stream.index) == fence.stream;
        let nth = self.at(fence.stream.index).nth_waiting(FREED_AT_ONCE).filter(|_| is_current);
        Fence { point: nth.map_or(fence.point, |point| point.min(fence.point)), ..fence }
    }

    /// The device has passed a fence. Takes the next block out of the queue that waits for it or
    /// for an earlier one of its stream. Fences of streams that were succeeded are ignored.
    pub(crate) fn pass(&mut self, fence: Fence) -> Option<BlockIndex> {
        let stream = self.of_fence(fence)?;
        assert!(fence.point <= stream.issued, "a fence has passed that was never issued");
        stream.passed = stream.passed.max(fence.point);
        stream.dequeue()
    }

    /// Whether the host knows the last use of a free block to be complete.
    #[inline]
    pub(crate) fn is_complete(&self, space: &Space, index: BlockIndex) -> bool {
        let block = &space.blocks[index];
        self.has_passed(space.list(block.list).stream, block.free_after)
    }

    /// Whether a fence on its stream is what is missing to know when the last use of a free block
    /// is complete.
    pub(crate) fn can_be_recorded(&self, space: &Space, index: BlockIndex) -> bool {
        let (block, state) = (&space.blocks[index], self.at(space.list_of(index).stream));
        let is_told = block.free_after <= state.recorded.max(state.passed);
        !is_told && !state.is_retired && !state.is_passing
    }

    /// What it takes for a free block to be used on another stream than its own.
    pub(crate) fn order_of(&self, space: &Space, index: BlockIndex, user: StreamIx) -> StreamOrder {
        let block = &space.blocks[index];
        self.order(space.list(block.list).stream, block.free_after, user)
    }

    /// Where the run of free blocks with complete last uses that starts at this block ends; the
    /// block's own address if it is none. Of those that have been free since some points.
    pub(crate) fn unused_run_end(
        &self,
        space: &Space,
        index: BlockIndex,
        since: Option<&Points>,
    ) -> u64 {
        let is_unused = |index: &BlockIndex| self.is_unused_since(space, *index, since);
        let run = space.blocks.onward(index).take_while(is_unused);
        run.last().map_or(space.blocks[index].address, |last| space.blocks[last].end())
    }

    /// Whether a block is free, its last use known to be complete, and that since some points.
    pub(crate) fn is_unused_since(
        &self,
        space: &Space,
        index: BlockIndex,
        since: Option<&Points>,
    ) -> bool {
        let block = &space.blocks[index];
        let stream = space.list(block.list).stream;
        block.state == BlockState::Free
            && self.has_passed(stream, block.free_after)
            && since.is_none_or(|since| Self::is_before(stream, block.free_after, since))
    }

    /// Joins a free block with those after it that are free on other streams, as far as their last
    /// uses are complete: together they may hold whole handles.
    pub(crate) fn join_complete(&self, space: &mut Space, index: BlockIndex) {
        let end = self.unused_run_end(space, index, None);
        while space.blocks[index].end() < end {
            let blocks = &space.blocks;
            let next = blocks[index].next;
            // One of the same list whose last use is not complete must stay apart (I2).
            let stays = |&after: &BlockIndex| {
                let after = &blocks[after];
                after.address >= end
                    && after.state == BlockState::Free
                    && after.list == blocks[index].list
            };
            if blocks[next].next.some().as_ref().is_some_and(stays) {
                break;
            }
            space.take_out(index);
            space.take_out(next);
            space.blocks.absorb_next(index);
            // Complete: points of different streams would not compare. Of late, as far as is known.
            space.blocks[index].free_after = self.at(space.list_of(index).stream).passed;
            space.put_in(index);
        }
    }
}
