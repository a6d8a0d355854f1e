//! [`Relaxed`]: a thread that the captures of others forbid nothing, for the time of some calls.

use crate::{CaptureMode, Driver, DriverError};

/// Who can set the calling thread's capture mode.
pub trait CaptureModes {
    /// Why it was refused.
    type Error;

    /// Sets the calling thread's capture mode and returns the one before.
    ///
    /// # Errors
    /// The device is lost, or there is no context.
    fn exchange(&self, mode: CaptureMode) -> Result<CaptureMode, Self::Error>;
}

impl CaptureModes for dyn Driver + '_ {
    type Error = DriverError;

    fn exchange(&self, mode: CaptureMode) -> Result<CaptureMode, DriverError> {
        self.exchange_capture_mode(mode)
    }
}

/// The calling thread relaxed, until this goes. Entered whether or not a capture is known of: it
/// costs next to nothing, and a capture by another library may forbid calls to this thread, too.
pub struct Relaxed<'a, T: CaptureModes + ?Sized> {
    modes: &'a T,
    before: CaptureMode,
}

impl<'a, T: CaptureModes + ?Sized> Relaxed<'a, T> {
    /// Lifts the restrictions.
    ///
    /// # Errors
    /// As the exchange. The calls it was for are not to be made then: where a capture forbids them
    /// to this thread, they would break it.
    pub fn enter(modes: &'a T) -> Result<Self, T::Error> {
        Ok(Self { modes, before: modes.exchange(CaptureMode::Relaxed)? })
    }
}

impl<T: CaptureModes + ?Sized> Drop for Relaxed<'_, T> {
    fn drop(&mut self) {
        // Accepted a moment ago: refused only where the device is lost, and every call will say so.
        let _ = self.modes.exchange(self.before);
    }
}
