//! [`Clock`]: the host's time, and the numbers of streams. Neither ever goes back.
//!
//! Devices made beside each other share one, so that the times of their events compare and an
//! index names one stream among all of them.
//!
//! An atomic outside the device's lock, because a replay moves it before every event. In real time
//! nobody moves it: whoever would waits instead, so that a program takes as long as on a device
//! with these costs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The system may wake a thread so much later than it asked for.
const WAKING: Duration = Duration::from_micros(100);

/// Nanoseconds since the first device was made, and how many streams were.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    now_ns: AtomicU64,
    streams: AtomicU32,
    /// When real time began, if the clock goes by it.
    real_start: Option<Instant>,
}

impl Clock {
    pub(crate) fn new(is_real: bool) -> Self {
        Self { real_start: is_real.then(Instant::now), ..Self::default() }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        match self.real_start {
            Some(start) => start.elapsed().as_nanos() as u64,
            None => self.now_ns.load(Ordering::Relaxed),
        }
    }

    /// Does nothing when that time has passed already.
    pub(crate) fn advance_to(&self, time_ns: u64) {
        if let Some(start) = self.real_start {
            wait_until(start + Duration::from_nanos(time_ns));
        } else if self.now_ns() < time_ns {
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

/// Sleeps while that is precise enough, then spins.
fn wait_until(end: Instant) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(WAKING) {
            Some(time) => std::thread::sleep(time),
            None => std::hint::spin_loop(),
        }
    }
}
