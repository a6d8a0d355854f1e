//! Streams that come and go.
//!
//! Invariant: a stream that ended is forgotten, and the table in `crate::streams` does not grow
//! with streams that came and went, as long as their end is told or found out. It is found out
//! without a question to the driver: the handle comes again as another stream's, or the thread is
//! gone whose own stream it was. What such a stream freed last has no fence, so the next miss waits
//! for the device once, and the memory serves others.

use std::sync::atomic::Ordering;

use drystone_core::{StreamError, StreamId};
use drystone_driver::{Call, DriverError, ErrorCode, Stream, StreamUid};

use super::Engine;
use crate::backend::BackendState;
use crate::error::poisoned;
use crate::streams::{StreamEnd, Table, identity};

impl Engine {
    /// The key of the stream that has a handle now, made if it is a new one. It is asked whether
    /// the stream's end will be told where the thread does not know the stream.
    #[inline]
    pub(crate) fn stream(
        &self,
        stream: Stream,
        end: impl FnOnce() -> StreamEnd,
    ) -> Result<StreamId, DriverError> {
        match self.executor.streams.remembered(stream) {
            Some(id) => Ok(id),
            None => self.asked_stream(stream, end),
        }
    }

    #[cold]
    fn asked_stream(
        &self,
        stream: Stream,
        end: impl FnOnce() -> StreamEnd,
    ) -> Result<StreamId, DriverError> {
        let uid = identity(&*self.executor.driver, stream)?;
        match self.executor.streams.known(stream, uid) {
            Some(id) => Ok(id),
            None => {
                // Who resets a device makes its streams anew.
                self.check_context()?;
                self.meet(stream, uid, end())
            }
        }
    }

    /// The same of which the driver is asked always.
    pub(crate) fn add_stream(
        &self,
        stream: Stream,
        end: StreamEnd,
    ) -> Result<StreamId, DriverError> {
        self.check_context()?;
        let uid = identity(&*self.executor.driver, stream)?;
        self.meet(stream, uid, end)
    }

    /// The key of a stream of which the driver has said who it is.
    fn meet(
        &self,
        stream: Stream,
        uid: Option<StreamUid>,
        end: StreamEnd,
    ) -> Result<StreamId, DriverError> {
        // Of its two handles it has one.
        let stream = if stream.is_default() { Stream::DEFAULT } else { stream };
        let streams = &self.executor.streams;
        let mut table = streams.lock();
        let known = table.find(stream, uid).map(|known| (known.id, known.is_passing));
        let id = match known {
            Some((id, was_passing)) => {
                if was_passing && end == StreamEnd::Told {
                    self.set_passing(&mut table, id, false)?;
                }
                id
            }
            None => self.take_in(&mut table, stream, uid, end)?,
        };
        // Whose end may be told is asked again.
        let uid = uid.filter(|_| end != StreamEnd::Unknown);
        streams.remember(&table, (id, stream), uid);
        Ok(id)
    }

    fn take_in(
        &self,
        table: &mut Table,
        stream: Stream,
        uid: Option<StreamUid>,
        end: StreamEnd,
    ) -> Result<StreamId, DriverError> {
        self.forget_ended(table, Some(stream));
        let id = self.backend.state().change(|state| state.add_stream());
        let id = id.map_err(poisoned(Call::StreamUid))?;
        self.executor.events.lock().add_stream(&*self.executor.driver, id);
        let is_covered = self.executor.covers(stream) == Some(true);
        table.add(id, stream, uid, is_covered);
        if !is_covered {
            self.executor.streams.note_uncovered(id);
        }
        if end != StreamEnd::Told {
            self.set_passing(table, id, true)?;
        }
        Ok(id)
    }

    /// Refuses a request on a stream of a context that the program made: what it frees would serve
    /// others once the device was idle, and no wait for the device is one for it.
    pub(super) fn refuse_uncovered(&self, stream: StreamId) -> Result<(), DriverError> {
        let mut table = self.executor.streams.lock();
        let Some(known) = table.of_mut(stream).filter(|known| !known.is_covered) else {
            return Ok(());
        };
        match self.executor.covers(known.stream) {
            Some(false) => Err(DriverError::new(Call::StreamUid, ErrorCode::OtherContext)),
            Some(true) => {
                known.is_covered = true;
                Ok(())
            }
            // The next request tells, after the capture.
            None => Ok(()),
        }
    }

    /// Forgets streams that must have ended, also by this newcomer.
    fn forget_ended(&self, table: &mut Table, newcomer: Option<Stream>) {
        while let Some(gone) = table.ended(newcomer) {
            self.executor.streams.end(table, gone);
            let plan = self.backend.state().change(|state| state.retire_stream(gone));
            if let Ok(Ok(plan)) = plan {
                // Its handle leads nowhere, or to another stream: nothing can be recorded on it.
                self.abandon_all(vec![plan]);
            }
            self.executor.captures.forget(gone);
            // Not before: who waits by then would have waited for nothing of this one's.
            self.executor.streams.has_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets the own streams of threads that are gone, and with them their captures.
    pub(super) fn forget_threads(&self) {
        self.forget_ended(&mut self.executor.streams.lock(), None);
    }

    /// Who a stream is. Asked by a relaxed thread always: a capture that nobody told of may be
    /// under way, and one that is told of may begin right now.
    pub(crate) fn stream_uid(&self, stream: Stream) -> Result<StreamUid, DriverError> {
        let asked = identity(&*self.executor.driver, stream)?;
        let known = || self.executor.streams.lock().find(stream, None)?.uid;
        let captured = DriverError::new(Call::StreamUid, ErrorCode::CaptureUnsupported);
        asked.or_else(known).ok_or(captured)
    }

    /// Retires a stream that is about to be destroyed: its last fence is recorded if it can be, and
    /// its handle is not used again.
    pub(crate) fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        let plan = self.backend.state().change(|state| state.retire_stream(stream))??;
        self.finish(plan);
        let streams = &self.executor.streams;
        streams.end(&mut streams.lock(), stream);
        self.executor.captures.forget(stream);
        Ok(())
    }

    /// The same by its handle, if that is one's that was added.
    pub(crate) fn retire_handle(&self, stream: Stream) {
        let found = self.executor.streams.lock().with_handle(stream);
        // Retired by another thread meanwhile: then it has ended already.
        let _ = found.map(|stream| self.retire_stream(stream));
    }

    /// Whether nobody says when the stream ends.
    fn set_passing(
        &self,
        table: &mut Table,
        stream: StreamId,
        is_passing: bool,
    ) -> Result<(), DriverError> {
        if let Some(known) = table.of_mut(stream) {
            known.is_passing = is_passing;
        }
        if is_passing {
            self.executor.streams.note_passing();
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
}
