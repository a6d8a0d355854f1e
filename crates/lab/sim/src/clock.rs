//! [`Clock`]: the host's time, and the numbers of streams. Neither ever goes back.
//!
//! Devices made beside each other share one, so that the times of their events compare and an
//! index names one stream among all of them.
//!
//! An atomic outside the device's lock, because a replay moves it before every event.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Nanoseconds since the first device was made, and how many streams were.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    now_ns: AtomicU64,
    streams: AtomicU32,
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

    /// The number of a new stream.
    pub(crate) fn next_stream(&self) -> u32 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn advance_by(&self, duration_ns: u64) {
        self.advance_to(self.now_ns().saturating_add(duration_ns));
    }
}
