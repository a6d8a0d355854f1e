//! Captures: which are going on, and which calls they forbid to whom.
//!
//! Invariant: a call that a capture forbids breaks every capture that forbids it; a broken capture
//! stays until it is ended, and ending it fails. Threads are told apart by their real identity.
//! Not modelled: the graphs themselves, and captures on another device of the process.

use crate::legality::Legality;
use crate::refuse::refuse;
use drystone_driver::{CaptureMode, ErrorCode};
use std::thread::{self, ThreadId};

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`: an earlier illegal call broke the capture.
pub(crate) const CAPTURE_INVALIDATED: ErrorCode = ErrorCode::Other(901);
/// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`: ended on another stream than it began on.
const CAPTURE_UNMATCHED: ErrorCode = ErrorCode::Other(903);
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`: a stream drawn into the capture was not joined back.
pub(crate) const CAPTURE_UNJOINED: ErrorCode = ErrorCode::Other(904);
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

impl Captures {
    /// Refuses a call that a capture forbids to the calling thread, and breaks the capture.
    pub(crate) fn permit(&mut self, legality: Legality) -> Result<(), ErrorCode> {
        if self.ongoing.is_empty() {
            return Ok(());
        }
        let thread = thread::current().id();
        let mode = self.mode_of(thread);
        let mut result = Ok(());
        for capture in &mut self.ongoing {
            if !legality.permits(capture.mode, capture.thread == thread, mode) {
                capture.is_broken = true;
                result = Err(ErrorCode::CaptureUnsupported);
            }
        }
        result
    }

    /// Begins a capture by the calling thread, on the stream with this index; returns its number.
    pub(crate) fn begin(&mut self, origin: u32, mode: CaptureMode) -> u64 {
        self.begun += 1;
        let (id, thread) = (self.begun, thread::current().id());
        self.ongoing.push(Capture { id, origin, thread, mode, is_broken: false });
        id
    }

    /// Ends a capture on the stream with this index; returns whether it was intact.
    pub(crate) fn end(&mut self, id: u64, index: u32) -> Result<bool, ErrorCode> {
        let place = self.ongoing.iter().position(|one| one.id == id);
        let place = place.ok_or(ErrorCode::InvalidValue)?;
        let capture = &mut self.ongoing[place];
        if capture.origin != index {
            capture.is_broken = true;
            return Err(CAPTURE_UNMATCHED);
        }
        let is_own = capture.thread == thread::current().id();
        refuse(CAPTURE_WRONG_THREAD, !is_own && capture.mode != CaptureMode::Relaxed)?;
        Ok(!self.ongoing.remove(place).is_broken)
    }

    pub(crate) fn break_one(&mut self, id: u64) {
        for capture in self.ongoing.iter_mut().filter(|one| one.id == id) {
            capture.is_broken = true;
        }
    }

    /// A stream of a capture is gone: one that began on it can never be ended.
    pub(crate) fn lose_stream(&mut self, id: u64, index: u32) {
        self.break_one(id);
        self.ongoing.retain(|one| (one.id, one.origin) != (id, index));
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
