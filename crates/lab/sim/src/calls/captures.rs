//! Captures as calls: streams whose work is recorded into a graph.

use crate::capture::{CAPTURE_INVALIDATED, CAPTURE_UNJOINED};
use crate::happens_before::VectorClock;
use crate::refuse::refuse;
use crate::state::State;
use crate::stream::Membership;
use drystone_driver::{CaptureMode, CaptureStatus, ErrorCode, Stream};

impl State {
    pub(crate) fn begin_capture(
        &mut self,
        stream: Stream,
        mode: CaptureMode,
    ) -> Result<(), ErrorCode> {
        let queue = self.streams.get_mut(stream)?;
        refuse(ErrorCode::CaptureUnsupported, queue.is_legacy)?;
        refuse(ErrorCode::InvalidValue, queue.capture.is_some())?;
        let capture = self.captures.begin(queue.index, mode);
        queue.capture = Some(Membership { capture, order: VectorClock::default(), path_ns: 0 });
        Ok(())
    }

    /// Draws a stream into the capture that began on another, as a wait for an event captured there
    /// does.
    pub(crate) fn join_capture(&mut self, stream: Stream, origin: Stream) -> Result<(), ErrorCode> {
        let within = self.streams.get(origin)?.capture.clone().ok_or(ErrorCode::InvalidValue)?;
        self.captures.check_intact(within.capture)?;
        let queue = self.streams.get_mut(stream)?;
        refuse(ErrorCode::CaptureUnsupported, queue.is_legacy || queue.capture.is_some())?;
        queue.capture = Some(within);
        Ok(())
    }

    /// Ends a capture after the work of every stream that takes part in it.
    pub(crate) fn end_joined_capture(&mut self, origin: Stream) -> Result<u64, ErrorCode> {
        let mut whole = self.streams.get(origin)?.capture.clone().ok_or(ErrorCode::InvalidValue)?;
        for queue in self.streams.iter_mut() {
            let own = queue.capture.as_ref();
            if let Some(part) = own.filter(|part| part.capture == whole.capture) {
                whole.order.join(&part.order);
                whole.path_ns = whole.path_ns.max(part.path_ns);
            }
        }
        self.streams.get_mut(origin)?.capture = Some(whole);
        self.end_capture(origin)
    }

    /// Returns how long the captured work takes when replayed.
    pub(crate) fn end_capture(&mut self, stream: Stream) -> Result<u64, ErrorCode> {
        let queue = self.streams.get(stream)?;
        let member = queue.capture.clone().ok_or(ErrorCode::InvalidValue)?;
        let is_intact = self.captures.end(member.capture, queue.index)?;
        let mut is_joined = true;
        for queue in self.streams.iter_mut() {
            let Some(left) = queue.capture.take_if(|one| one.capture == member.capture) else {
                continue;
            };
            is_joined &= left.order.at(queue.index) <= member.order.at(queue.index);
        }
        match (is_intact, is_joined) {
            (false, _) => Err(CAPTURE_INVALIDATED),
            (true, false) => Err(CAPTURE_UNJOINED),
            (true, true) => Ok(member.path_ns),
        }
    }

    pub(crate) fn capture_status(&self, stream: Stream) -> Result<CaptureStatus, ErrorCode> {
        let Some(member) = &self.streams.get(stream)?.capture else {
            return Ok(CaptureStatus::None);
        };
        Ok(match self.captures.check_intact(member.capture) {
            Ok(()) => CaptureStatus::Active,
            Err(_) => CaptureStatus::Invalidated,
        })
    }
}
