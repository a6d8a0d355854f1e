//! What one stream's calls do for the others: fences that tell when what it freed is over, and a
//! wait for the device where no fence can.

use std::sync::atomic::Ordering;

use drystone_core::{Captured, Granted, PoolId, StreamId};
use drystone_driver::{Call, DriverError, ErrorCode};

use super::Engine;
use crate::backend::BackendState;
use crate::error::AllocateError;

impl Engine {
    /// Does what a call may that brings the stream: records the fences that waited for the end of
    /// its capture, gives back what may go in its order alone, and records a fence that tells
    /// others that what was freed before has passed.
    pub(super) fn mark(&self, stream: StreamId, captured: Captured) {
        if captured == Captured::Own {
            return;
        }
        self.perform_all(self.executor.after_capture(Some(stream)));
        // What cannot go is tried again with its next call.
        let _ = self.backend.free_deferred(&self.executor, Some(stream));
        if let BackendState::Heap(heap) = &self.backend
            && self.executor.streams.lock().is_passing(stream)
            && let Ok(Some(plan)) = heap.change(|heap| heap.plan_mark(stream))
        {
            // Without it the memory stays with its stream until the device was idle.
            let _ = self.perform(plan);
        }
    }

    /// The same with a request that was served at once, since a miss of another stream: that found
    /// out nothing of what this one freed. Takes the block back if the device was reset, or if the
    /// stream may have none.
    #[cold]
    pub(super) fn look_after(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
        granted: Granted,
    ) -> Result<Granted, AllocateError> {
        let refused = match self.executor.streams.is_gone() {
            true => Err(DriverError::new(Call::CaptureStatus, ErrorCode::DeviceReset)),
            false => self.refuse_uncovered(stream),
        };
        if let Err(error) = refused {
            // Nobody has it yet, and nobody gets it.
            let _ = self.free(granted.address);
            return Err(AllocateError::Driver { error, bytes });
        }
        self.executor.streams.note_given(stream);
        // A device that is lost says so to the next miss.
        if let Ok(false) = self.executor.is_captured(Some(pool), stream) {
            self.mark(stream, Captured::None);
        }
        Ok(granted)
    }

    /// Whether streams ended whose last work no fence tells of, and that may be waited for.
    pub(super) fn has_lost(&self, captured: Captured) -> bool {
        captured == Captured::None && self.executor.streams.has_lost.load(Ordering::Relaxed)
    }

    /// Waits until work is over that no fence tells of, once for all streams that ended since.
    pub(super) fn find_lost(&self) {
        if self.executor.streams.has_lost.swap(false, Ordering::Relaxed)
            && self.synchronize().is_err()
        {
            self.executor.streams.has_lost.store(true, Ordering::Relaxed);
        }
    }
}
