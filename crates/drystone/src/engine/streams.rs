//! Streams that come and go.
//!
//! Invariant: a stream that ended is forgotten, and none of the tables in `known` grows with
//! streams that came and went, as long as their end is told or found out. It is found out without a
//! question to the driver: the handle comes again as another stream's, or the thread is gone whose
//! own stream it was. What such a stream freed last has no fence, so the next miss waits for the
//! device once, and the memory serves others.

use std::sync::atomic::Ordering;

use drystone_core::{Captured, StreamError, StreamId};
use drystone_driver::{Call, DriverError, Stream};

use super::Engine;
use crate::backend::BackendState;
use crate::error::poisoned;

impl Engine {
    /// The key of a device stream, made if it is a new one.
    pub(crate) fn add_stream(&self, stream: Stream) -> Result<StreamId, DriverError> {
        let uid = self.executor.driver.stream_uid(stream)?;
        let mut known = self.streams.known.lock();
        if let Some(&(id, _)) = known.by_uid.get(&uid.0) {
            return Ok(id);
        }
        while let Some((gone, uid)) = known.ended(stream) {
            known.forget(uid);
            // Its handle leads nowhere, or to another stream.
            self.executor.events.lock().forget_handle(gone);
            self.streams.has_lost.store(true, Ordering::Relaxed);
            // A stream in the table was added and is not retired; who is poisoned says so below.
            let _ = self.end_stream(gone);
        }
        let id = self.backend.state().change(|state| state.add_stream());
        let id = id.map_err(poisoned(Call::StreamUid))?;
        self.executor.events.lock().add_stream(id, stream, uid);
        known.add(id, stream, uid.0);
        Ok(id)
    }

    /// Retires a stream that is about to be destroyed.
    pub(crate) fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        let uid = self.executor.events.lock().uid(stream);
        if let Some(uid) = uid {
            self.streams.known.lock().forget(uid.0);
        }
        self.end_stream(stream)
    }

    /// The stream's last fence is recorded if it can be; its handle is not used again.
    fn end_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        let plan = self.backend.state().change(|state| state.retire_stream(stream))??;
        self.finish(plan);
        let mut events = self.executor.events.lock();
        events.forget_handle(stream);
        let noted = &self.executor.is_capture_noted;
        noted.store(events.was_any_captured(), Ordering::Relaxed);
        Ok(())
    }

    /// Nobody says when the stream ends.
    pub(crate) fn let_pass(&self, stream: StreamId) -> Result<(), DriverError> {
        self.executor.events.lock().let_pass(stream);
        match &self.backend {
            BackendState::Heap(heap) => {
                let noted = heap.change(|heap| heap.let_pass(stream));
                noted.map_err(poisoned(Call::StreamUid))
            }
            // The driver has the order of its own pools.
            BackendState::AsyncPools(_) => Ok(()),
        }
    }

    /// Records a fence on the stream of a miss, if no other request may: a later one sees that what
    /// was freed before has passed.
    pub(super) fn mark(&self, stream: StreamId, captured: Captured) {
        if let BackendState::Heap(heap) = &self.backend
            && captured != Captured::Own
            && let Ok(Some(plan)) = heap.change(|heap| heap.plan_mark(stream))
        {
            // Without it the memory stays with its stream until the device was idle.
            let _ = self.perform(plan);
        }
    }

    /// Waits until work is over that no fence tells of, once for all streams that ended since. The
    /// growth lock is held.
    pub(super) fn find_lost(&self, captured: Captured) {
        if captured == Captured::None
            && self.streams.has_lost.swap(false, Ordering::Relaxed)
            && self.synchronize().is_err()
        {
            self.streams.has_lost.store(true, Ordering::Relaxed);
        }
    }
}
