//! Capture: what is allowed while a stream is being captured into a graph.
//!
//! Keeps I11: nothing that a capture forbids is called while one is under way on the request's
//! stream. Growing is allowed; waiting, querying events and giving memory back are not.

use drystone_driver::{CaptureMode, CaptureStatus, Driver, Stream};

/// Whether work on the stream is being recorded. A device that cannot say is treated as if it
/// were: then only what is always legal is done.
pub(crate) fn is_capturing(driver: &dyn Driver, stream: Stream) -> bool {
    driver.capture_status(stream) != Ok(CaptureStatus::None)
}

/// Lifts the calling thread's capture restrictions for the time of some driver calls, none of
/// which queues work on a stream.
pub(crate) struct Relaxed<'a> {
    driver: &'a dyn Driver,
    before: Option<CaptureMode>,
}

impl<'a> Relaxed<'a> {
    pub(crate) fn enter(driver: &'a dyn Driver) -> Self {
        Self { driver, before: driver.exchange_capture_mode(CaptureMode::Relaxed).ok() }
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Nothing to be done about a failure: the device is lost, and every call will say so.
            let _ = self.driver.exchange_capture_mode(before);
        }
    }
}
