//! [`Clock`]: the host's time on one device. It never goes back.
//!
//! An atomic outside the device's lock, because a replay moves it before every event.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds since the device was made.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    now_ns: AtomicU64,
}

impl Clock {
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Does nothing when that time has passed already.
    pub(crate) fn advance_to(&self, time_ns: u64) {
        if self.now_ns() < time_ns {
            self.now_ns.fetch_max(time_ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn advance_by(&self, duration_ns: u64) {
        self.advance_to(self.now_ns().saturating_add(duration_ns));
    }
}
