//! Capture: what is allowed while a stream is being captured into a graph.
//!
//! Keeps I11: nothing that a capture forbids is called while one is under way that the allocator
//! knows of: a stream says so whose end will be told, or said so when a request came with it. A stream that may be gone is never asked. Growing is always allowed, and events outside the capture may be asked by a
//! thread that is relaxed; waiting for the device and giving memory back are not.

use std::sync::atomic::Ordering;

use drystone_core::{Captured, StreamId};
use drystone_driver::{CaptureMode, CaptureStatus, Driver, DriverError, ErrorCode};

use super::Executor;
use crate::error::is_final;

/// Whether a request's stream is being captured, or another one.
///
/// Errors: the driver is gone for good.
pub(crate) fn captured(executor: &Executor, stream: StreamId) -> Result<Captured, DriverError> {
    Ok(match is_captured(executor, stream)? {
        true => Captured::Own,
        false if is_any_captured(executor) => Captured::Other,
        false => Captured::None,
    })
}

/// Whether the stream of the call at hand is being captured; remembered.
pub(crate) fn is_captured(executor: &Executor, stream: StreamId) -> Result<bool, DriverError> {
    // An unknown stream is refused by the heap, whatever is said of the capture before.
    let own = executor.events.lock().stream(stream);
    let is_captured = match own.map(|own| executor.driver.capture_status(own)) {
        Some(Err(error)) if is_final(error.code) => return Err(error),
        Some(Ok(CaptureStatus::None)) | None => false,
        // A device that cannot say is treated as if it were: only what is always legal is done.
        Some(_) => true,
    };
    let mut events = executor.events.lock();
    events.note_captured(stream, is_captured);
    executor.is_capture_noted.store(events.was_any_captured(), Ordering::Relaxed);
    Ok(is_captured)
}

/// Whether a stream is being captured as far as is known, or the device cannot say. Of streams that
/// may have been destroyed, what they said last counts.
pub(crate) fn is_any_captured(executor: &Executor) -> bool {
    let streams = executor.events.lock().streams();
    executor.is_capture_noted.load(Ordering::Relaxed)
        || streams.into_iter().any(|stream| match executor.driver.capture_status(stream) {
            Ok(status) => status != CaptureStatus::None,
            Err(error) => error.code != ErrorCode::InvalidHandle,
        })
}

/// Lifts the calling thread's capture restrictions for the time of some driver calls. Entered
/// whether or not a capture is known of: it costs next to nothing, and a capture by another
/// library may forbid calls to this thread, too.
pub(crate) struct Relaxed<'a> {
    driver: &'a dyn Driver,
    before: CaptureMode,
}

impl<'a> Relaxed<'a> {
    /// Errors: the driver's. The calls it was for are not to be made then: where a capture forbids
    /// them to this thread, they would break it.
    pub(crate) fn enter(driver: &'a dyn Driver) -> Result<Self, DriverError> {
        Ok(Self { driver, before: driver.exchange_capture_mode(CaptureMode::Relaxed)? })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // Nothing to be done about a failure: the device is lost, and every call will say so.
        let _ = self.driver.exchange_capture_mode(self.before);
    }
}
