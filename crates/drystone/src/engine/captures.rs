//! Captures that the program tells of.

use drystone_core::{PoolId, StreamId};
use drystone_driver::DriverError;

use super::Engine;
use crate::backend::BackendState;
use crate::observers::Observer;

impl Engine {
    /// A capture whose requests a pool serves may begin from now on. No wait for the device is
    /// under way that would break it, and none begins. What has passed by now serves it from its
    /// first request on: a hit finds out nothing, and what it takes the graph keeps.
    pub(crate) fn expect_capture(&self, pool: PoolId) -> Result<(), DriverError> {
        self.collect();
        self.while_memory_stays(|| self.executor.captures.expect(pool))
    }

    /// Every capture whose requests the pool served is over, and its streams are there still. A
    /// fence on each tells the next capture that what was freed in this one is over.
    pub(crate) fn end_captures(&self, pool: PoolId) {
        if self.observers.has(Observer::Recorder) {
            self.recorder.captures_ended(pool);
        }
        let captured = self.executor.captures.end(pool);
        if !self.executor.is_any_captured() {
            self.perform_all(self.executor.take_until_capture_ends());
        }
        if let BackendState::Heap(heap) = &self.backend {
            let plan = |stream| heap.change(|heap| heap.plan_mark(stream)).ok().flatten();
            // Without it the memory serves others once the device was idle.
            self.perform_all(captured.into_iter().filter_map(plan).collect());
        }
    }

    /// Notes that a capture of the stream has begun, which other threads may not be able to ask it.
    pub(crate) fn note_begun_capture(&self, stream: StreamId) -> Result<(), DriverError> {
        self.executor.is_captured(Some(PoolId::DEFAULT), stream).map(drop)
    }

    /// Notes whether the stream that a call brings is captured, if a capture is known of.
    #[inline]
    pub(crate) fn note_capture(
        &self,
        pool: Option<PoolId>,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        if self.executor.captures.is_any() {
            self.executor.is_captured(pool, stream)?;
        }
        Ok(())
    }
}
