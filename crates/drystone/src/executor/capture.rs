//! Capture: what is allowed while a stream is being captured into a graph.
//!
//! Keeps I11: nothing that a capture forbids is called while one is under way on any stream the
//! allocator knows. Growing is always allowed, and events outside the capture may be asked by a
//! thread that is relaxed; waiting for the device and giving memory back are not.

use drystone_core::{Captured, StreamId};
use drystone_driver::{CaptureMode, CaptureStatus, Driver, DriverError, ErrorCode};
use parking_lot::Mutex;

use crate::error::is_final;
use crate::executor::events::Events;

/// Whether a request's stream is being captured, or another one.
///
/// Errors: the driver is gone for good.
pub(crate) fn captured(
    driver: &dyn Driver,
    events: &Mutex<Events>,
    stream: StreamId,
) -> Result<Captured, DriverError> {
    // An unknown stream is refused by the heap, whatever is said of the capture before.
    let own = events.lock().stream(stream);
    match own.map(|own| driver.capture_status(own)) {
        Some(Err(error)) if is_final(error.code) => return Err(error),
        Some(Ok(CaptureStatus::None)) | None => {}
        // A device that cannot say is treated as if it were: only what is always legal is done.
        Some(_) => return Ok(Captured::Own),
    }
    Ok(if is_any_captured(driver, events) { Captured::Other } else { Captured::None })
}

/// Whether a stream is being captured, or the device cannot say. A stream that was destroyed is
/// not.
pub(crate) fn is_any_captured(driver: &dyn Driver, events: &Mutex<Events>) -> bool {
    let streams = events.lock().streams();
    streams.into_iter().any(|stream| match driver.capture_status(stream) {
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
