//! Capture: what is allowed while a stream is being captured into a graph.
//!
//! Keeps I11: nothing that a capture forbids is called while one is under way that the allocator
//! knows of: a stream says so whose end will be told, or said so when a request came with it. A
//! stream that may be gone is never asked. Growing is always allowed, and events outside the
//! capture may be asked by a thread that is relaxed; waiting for the device and giving memory back
//! are not.

use drystone_driver::{CaptureMode, Driver, DriverError, Stream, StreamUid};

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

/// Who a stream is. Another stream's capture may forbid the question to a restricted thread.
pub(crate) fn stream_uid(driver: &dyn Driver, stream: Stream) -> Result<StreamUid, DriverError> {
    let _relaxed = Relaxed::enter(driver)?;
    driver.stream_uid(stream)
}
