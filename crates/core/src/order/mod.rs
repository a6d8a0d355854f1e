//! The order between streams, as far as a heap and the driver's pools share it: who uses a block
//! (`uses`), and the plans of fences that tell when a use is over.
//!
//! Keeps I9: a freed block waits for a fence of each stream whose use of it may not be complete,
//! until the fence has passed. Nobody's stream is made to wait for another (B29).

pub(crate) mod uses;

use crate::error::StreamError;
use crate::fence::{Fence, Streams};
use crate::id::{PoolId, StreamId};
use crate::plan::{Intent, Plan, Step};
use crate::space::block::{BlockIndex, NO_USES};
use uses::UseTable;

impl Streams {
    /// Retires a stream that is about to be destroyed, and plans its last fence.
    pub(crate) fn plan_retire(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        let fence = self.retire(stream)?;
        Ok(Plan { steps: vec![Step::Record { fence }], intent: Intent::Retire { fence } })
    }

    /// Plans to wait until the device is idle, for blocks that wait for nothing less and for pools.
    pub(crate) fn plan_idle(&mut self, quarantined: Vec<BlockIndex>, pools: Vec<PoolId>) -> Plan {
        let fences = self.fences_when_idle();
        let intent = Intent::Synchronize { fences, quarantined, pools };
        Plan { steps: vec![Step::SynchronizeDevice], intent }
    }

    /// Plans a fence on each stream that uses a freed block, and forgets the uses that are over.
    /// `None` if none is left.
    pub(crate) fn plan_free(
        &mut self,
        block: BlockIndex,
        table: &mut UseTable,
        uses: &mut u32,
    ) -> Option<Plan> {
        let (mut fences, mut steps) = (Vec::new(), Vec::new());
        for stream in table.get(*uses).to_vec() {
            let Some((fence, is_new)) = self.fence_of_use(stream) else {
                table.remove(uses, stream);
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

    /// A fence that a freed block needs is recorded. Queues the block until it passes; false if it
    /// has passed already.
    pub(crate) fn wait_for(&mut self, fence: Fence, block: BlockIndex) -> bool {
        // A stream that took the place of the fence's has passed all fences of that.
        let stream = self.at_mut(fence.stream.index);
        if !stream.is_retired {
            stream.recorded = stream.recorded.max(fence.point);
        }
        let waits = fence.point > stream.passed;
        if waits {
            stream.enqueue(fence.point, block);
        }
        waits
    }

    /// The device has passed a fence. Takes the next block out of the queue that waits for it or
    /// for an earlier one of its stream. Fences of streams that were succeeded are ignored.
    pub(crate) fn pass(&mut self, fence: Fence) -> Option<BlockIndex> {
        let stream = self.of_fence(fence)?;
        stream.passed = stream.passed.max(fence.point);
        stream.dequeue()
    }
}
