//! Polls: programs that ask again and again whether work is complete.
//!
//! Time stands still while a program polls, unless calls take time: so that no program hangs, a
//! long row of answers "not ready" moves the clock to where the answer changes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::Device;

/// So many answers "not ready" in a row, of all threads, before the clock moves by itself.
const POLLS: u64 = 10_000;
static POLLED: AtomicU64 = AtomicU64::new(0);

/// Counts an answer "not ready".
pub(crate) fn note_poll(device: &Device, ready_ns: u64) {
    if POLLED.fetch_add(1, Ordering::Relaxed) >= POLLS {
        POLLED.store(0, Ordering::Relaxed);
        device.sim.advance_to(ready_ns);
    }
}
