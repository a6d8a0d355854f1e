//! Streams that come and go.
//!
//! Invariant: a stream that ended is forgotten, and none of the tables in `known` grows with
//! streams that came and went, as long as their end is told or found out. It is found out without a
//! question to the driver: the handle comes again as another stream's, or the thread is gone whose
//! own stream it was. What such a stream freed last has no fence, so the next miss waits for the
//! device once, and the memory serves others.

use std::sync::atomic::Ordering;

use drystone_core::{Captured, Granted, PoolId, StreamError, StreamId};
use drystone_driver::{Call, DriverError, ErrorCode, Stream, StreamUid};

use super::Engine;
use super::known::Known;
use crate::backend::BackendState;
use crate::error::{AllocateError, poisoned};
use crate::executor::Executor;
use crate::told::Who;

impl Engine {
    /// The key of a device stream, made if it is a new one. Of one that `is_passing` nobody says
    /// when it ends, unless that is known already.
    pub(crate) fn add_stream(
        &self,
        stream: Stream,
        is_passing: bool,
    ) -> Result<StreamId, DriverError> {
        self.check_context()?;
        let uid = self.executor.stream_uid(stream)?;
        let mut known = self.streams.known.lock();
        if let Some(&(id, _)) = known.by_uid.get(&uid.0) {
            let was_passing = self.executor.events.lock().is_passing(id);
            if was_passing && !is_passing {
                self.set_passing(id, false)?;
            }
            return Ok(id);
        }
        self.forget_ended(&mut known, Some(stream));
        let id = self.backend.state().change(|state| state.add_stream());
        let id = id.map_err(poisoned(Call::StreamUid))?;
        let Executor { driver, events, .. } = &self.executor;
        events.lock().add_stream(&**driver, id, stream, uid);
        if is_passing {
            self.set_passing(id, true)?;
        }
        known.add(id, stream, uid.0);
        if self.executor.covers(stream) != Some(true) {
            self.streams.note_covered(id, false);
        }
        Ok(id)
    }

    /// Refuses a request on a stream of a context that the program made: what it frees would serve
    /// others once the device was idle, and no wait for the device is one for it.
    pub(super) fn refuse_uncovered(&self, stream: StreamId) -> Result<(), DriverError> {
        if self.streams.is_covered(stream) {
            return Ok(());
        }
        let handle = self.executor.events.lock().stream(stream);
        match handle.and_then(|handle| self.executor.covers(handle)) {
            Some(false) => Err(DriverError::new(Call::StreamUid, ErrorCode::OtherContext)),
            Some(true) => {
                self.streams.note_covered(stream, true);
                Ok(())
            }
            // The next request tells, after the capture.
            None => Ok(()),
        }
    }

    /// Forgets streams that must have ended, also by this newcomer.
    fn forget_ended(&self, known: &mut Known, newcomer: Option<Stream>) {
        while let Some((gone, uid)) = known.ended(newcomer) {
            known.forget(uid);
            // Its handle leads nowhere, or to another stream.
            self.executor.events.lock().forget_handle(gone);
            // A stream in the table was added and is not retired; who is poisoned says so himself.
            let _ = self.end_stream(gone);
            // Not before: who waits by then would have waited for nothing of this one's.
            self.streams.has_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets the own streams of threads that are gone, and with them their captures.
    pub(super) fn forget_threads(&self) {
        self.forget_ended(&mut self.streams.known.lock(), None);
    }

    /// Who a stream is. Asked by a relaxed thread always: a capture that nobody told of may be
    /// under way, and one that is told of may begin right now.
    #[inline]
    pub(crate) fn stream_uid(&self, stream: Stream) -> Result<StreamUid, DriverError> {
        self.executor.stream_uid(stream)
    }

    /// Retires a stream that is about to be destroyed.
    pub(crate) fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        let uid = self.executor.events.lock().uid(stream);
        if let Some(uid) = uid {
            self.streams.known.lock().forget(uid.0);
        }
        self.end_stream(stream)
    }

    /// The same by its handle, if that is one's that was added.
    pub(crate) fn retire_handle(&self, stream: Stream) {
        let found = self.streams.known.lock().with_handle(stream);
        // Retired by another thread meanwhile: then it has ended already.
        let _ = found.map(|stream| self.retire_stream(stream));
    }

    /// The stream's last fence is recorded if it can be; its handle is not used again.
    fn end_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        let plan = self.backend.state().change(|state| state.retire_stream(stream))??;
        self.finish(plan);
        self.executor.events.lock().forget_handle(stream);
        self.executor.captures.forget(stream);
        self.streams.note_covered(stream, true);
        Ok(())
    }

    /// Whether nobody says when the stream ends.
    fn set_passing(&self, stream: StreamId, is_passing: bool) -> Result<(), DriverError> {
        self.executor.events.lock().set_passing(stream, is_passing);
        if is_passing {
            self.streams.has_passing.store(true, Ordering::Relaxed);
        }
        match &self.backend {
            BackendState::Heap(heap) => {
                let noted = heap.change(|heap| heap.set_passing(stream, is_passing));
                noted.map_err(poisoned(Call::StreamUid))
            }
            // The driver has the order of its own pools.
            BackendState::AsyncPools(_) => Ok(()),
        }
    }

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
            && self.executor.events.lock().is_passing(stream)
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
        let refused = match self.streams.is_gone() {
            true => Err(DriverError::new(Call::CaptureStatus, ErrorCode::DeviceReset)),
            false => self.refuse_uncovered(stream),
        };
        if let Err(error) = refused {
            // Nobody has it yet, and nobody gets it.
            let _ = self.free(granted.address);
            return Err(AllocateError::Driver { error, bytes });
        }
        self.streams.note_given(stream);
        // A device that is lost says so to the next miss.
        if let Ok(false) = self.executor.is_captured(Some(pool), stream) {
            self.mark(stream, Captured::None);
        }
        Ok(granted)
    }

    /// Whether streams ended whose last work no fence tells of, and that may be waited for.
    pub(super) fn has_lost(&self, captured: Captured) -> bool {
        captured == Captured::None && self.streams.has_lost.load(Ordering::Relaxed)
    }

    /// Waits until work is over that no fence tells of, once for all streams that ended since.
    pub(super) fn find_lost(&self) {
        if self.streams.has_lost.swap(false, Ordering::Relaxed) && self.synchronize().is_err() {
            self.streams.has_lost.store(true, Ordering::Relaxed);
        }
    }

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
        if self.told.is(Who::Recorder) {
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
