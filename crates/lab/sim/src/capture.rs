//! Captures: streams whose work is recorded into a graph, and which calls that forbids to whom.
//!
//! Invariant: a call that a capture forbids breaks every capture that forbids it; a broken capture
//! stays until it is ended, and ending it fails. Threads are told apart by their real identity.
//! Not modelled: the graphs themselves, and captures on another device of the process.

use crate::happens_before::VectorClock;
use crate::state::State;
use crate::stream::Membership;
use drystone_driver::{CaptureMode, CaptureStatus, ErrorCode, Stream};
use std::thread::{self, ThreadId};

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`: an earlier illegal call broke the capture.
const CAPTURE_INVALIDATED: ErrorCode = ErrorCode::Other(901);
/// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`: ended on another stream than it began on.
const CAPTURE_UNMATCHED: ErrorCode = ErrorCode::Other(903);
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`: a stream drawn into the capture was not joined back.
const CAPTURE_UNJOINED: ErrorCode = ErrorCode::Other(904);
/// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`: a wait for work outside the capture.
pub(crate) const CAPTURE_ISOLATION: ErrorCode = ErrorCode::Other(905);
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`: the default stream would be drawn into the capture.
pub(crate) const CAPTURE_IMPLICIT: ErrorCode = ErrorCode::Other(906);
/// `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`: ended by another thread than it began on.
const CAPTURE_WRONG_THREAD: ErrorCode = ErrorCode::Other(908);

#[derive(Debug, Default)]
pub(crate) struct Captures {
    ongoing: Vec<Capture>,
    begun: u64,
    /// Threads whose mode is not the initial one.
    modes: Vec<(ThreadId, CaptureMode)>,
}

#[derive(Debug)]
struct Capture {
    id: u64,
    origin: u32,
    thread: ThreadId,
    mode: CaptureMode,
    is_broken: bool,
}

impl Capture {
    /// Whether this capture forbids unsafe calls to a thread in `mode`.
    fn forbids(&self, thread: ThreadId, mode: CaptureMode) -> bool {
        let by_own = self.thread == thread && self.mode != CaptureMode::Relaxed;
        match mode {
            CaptureMode::Global => by_own || self.mode == CaptureMode::Global,
            CaptureMode::ThreadLocal => by_own,
            CaptureMode::Relaxed => false,
        }
    }
}

impl Captures {
    /// Refuses an unsafe call that a capture forbids to the calling thread, and breaks the capture.
    pub(crate) fn permit(&mut self) -> Result<(), ErrorCode> {
        if self.ongoing.is_empty() {
            return Ok(());
        }
        let thread = thread::current().id();
        let mode = self.mode_of(thread);
        let mut result = Ok(());
        for capture in self.ongoing.iter_mut().filter(|one| one.forbids(thread, mode)) {
            capture.is_broken = true;
            result = Err(ErrorCode::CaptureUnsupported);
        }
        result
    }

    pub(crate) fn break_one(&mut self, id: u64) {
        for capture in self.ongoing.iter_mut().filter(|one| one.id == id) {
            capture.is_broken = true;
        }
    }

    /// Whether there was any to break.
    pub(crate) fn break_all(&mut self) -> bool {
        for capture in &mut self.ongoing {
            capture.is_broken = true;
        }
        !self.ongoing.is_empty()
    }

    pub(crate) fn is_ongoing(&self, id: u64) -> bool {
        self.ongoing.iter().any(|one| one.id == id)
    }

    /// Refuses to add to a capture that is broken.
    pub(crate) fn check_intact(&self, id: u64) -> Result<(), ErrorCode> {
        let is_broken = self.ongoing.iter().any(|one| one.id == id && one.is_broken);
        if is_broken { Err(CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    pub(crate) fn exchange_mode(&mut self, mode: CaptureMode) -> CaptureMode {
        let thread = thread::current().id();
        let before = self.mode_of(thread);
        self.modes.retain(|&(other, _)| other != thread);
        if mode != CaptureMode::Global {
            self.modes.push((thread, mode));
        }
        before
    }

    fn mode_of(&self, thread: ThreadId) -> CaptureMode {
        let own = self.modes.iter().find(|&&(other, _)| other == thread);
        own.map_or(CaptureMode::Global, |&(_, mode)| mode)
    }
}

impl State {
    pub(crate) fn begin_capture(
        &mut self,
        stream: Stream,
        mode: CaptureMode,
    ) -> Result<(), ErrorCode> {
        let queue = self.streams.get_mut(stream)?;
        if stream == Stream::DEFAULT {
            return Err(ErrorCode::CaptureUnsupported);
        }
        if queue.capture.is_some() {
            return Err(ErrorCode::InvalidValue);
        }
        self.captures.begun += 1;
        let id = self.captures.begun;
        queue.capture = Some(Membership { capture: id, order: VectorClock::default(), path_ns: 0 });
        let thread = thread::current().id();
        let origin = queue.index;
        self.captures.ongoing.push(Capture { id, origin, thread, mode, is_broken: false });
        Ok(())
    }

    /// Returns how long the captured work takes when replayed.
    pub(crate) fn end_capture(&mut self, stream: Stream) -> Result<u64, ErrorCode> {
        let queue = self.streams.get(stream)?;
        let member = queue.capture.clone().ok_or(ErrorCode::InvalidValue)?;
        let index = queue.index;
        let ongoing = &mut self.captures.ongoing;
        let place = ongoing.iter().position(|one| one.id == member.capture);
        let place = place.ok_or(ErrorCode::InvalidValue)?;
        if ongoing[place].origin != index {
            ongoing[place].is_broken = true;
            return Err(CAPTURE_UNMATCHED);
        }
        let is_own = ongoing[place].thread == thread::current().id();
        if !is_own && ongoing[place].mode != CaptureMode::Relaxed {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let capture = ongoing.remove(place);
        let mut is_joined = true;
        for queue in self.streams.iter_mut() {
            let Some(left) = queue.capture.take_if(|one| one.capture == capture.id) else {
                continue;
            };
            is_joined &= left.order.at(queue.index) <= member.order.at(queue.index);
        }
        match (capture.is_broken, is_joined) {
            (true, _) => Err(CAPTURE_INVALIDATED),
            (false, false) => Err(CAPTURE_UNJOINED),
            (false, true) => Ok(member.path_ns),
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
