//! Giving unused memory back for others: for a library of the process, say, that the device refused
//! some to.
//!
//! Invariant: whoever was refused may hold any lock of the program's, and others may wait for that
//! while they hold ours or keep the device busy. So neither the growth lock nor the device is
//! waited for longer than the caller has patience.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use drystone_core::Captured;

use super::Engine;

/// How far it goes to give memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What is known to be used no more. Waits for no work of the device.
    Known,
    /// All that is unused, once the device is idle.
    Idle,
    /// That, and what is left over once live memory has moved together, where that may be.
    Moves,
}

/// How long fences are looked at before the device is waited for: about a step of training.
const FENCES: Duration = Duration::from_secs(1);
/// How often it is looked whether fences have passed, or the device is idle.
const LOOK: Duration = Duration::from_micros(100);

impl Engine {
    /// Gives back so many unused bytes, or what there is. Returns the bytes.
    pub(crate) fn give_back(
        self: &Arc<Self>,
        bytes: u64,
        effort: Effort,
        patience: Duration,
    ) -> u64 {
        let deadline = Instant::now() + patience;
        if self.refuse_at_the_end().is_err() {
            return 0;
        }
        let mut given_bytes = self.give(bytes, None, deadline);
        let mut goes_on = effort != Effort::Known;
        if goes_on && given_bytes < bytes {
            // Most of it goes so, and then nobody waits for the device, whose wait nobody can end.
            self.await_fences(deadline.min(Instant::now() + FENCES));
            given_bytes += self.give(bytes - given_bytes, None, deadline);
        }
        if goes_on && given_bytes < bytes {
            goes_on = Instant::now() + LOOK < deadline && self.is_idle_by(deadline);
            given_bytes += if goes_on { self.give(bytes - given_bytes, None, deadline) } else { 0 };
        }
        if goes_on && given_bytes < bytes && effort == Effort::Moves && self.moves_by(deadline) {
            given_bytes += self.give(bytes - given_bytes, None, deadline);
        }
        given_bytes
    }

    /// Looks, until that moment, whether what streams had to do when it was called is done.
    fn await_fences(&self, until: Instant) {
        self.note_synchronizing();
        while self.executor.events.lock().any_recorded() && Instant::now() + LOOK < until {
            thread::sleep(LOOK);
            self.collect();
        }
    }

    /// Moves all that can move in time. True if anything has moved.
    fn moves_by(&self, deadline: Instant) -> bool {
        if self.stays(Captured::None).is_some() {
            return false;
        }
        let Some(_growth) = self.growth.try_lock_until(deadline) else { return false };
        let left = deadline.saturating_duration_since(Instant::now());
        self.compact_all(Some(left)).moves > 0
    }

    /// Whether the device becomes idle in time, and the backend knows. A thread waits for that,
    /// since nobody can end the wait: one at a time.
    fn is_idle_by(self: &Arc<Self>, deadline: Instant) -> bool {
        while self.is_awaited.swap(true, Ordering::AcqRel) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(LOOK);
        }
        let engine = Arc::clone(self);
        let waiter = thread::Builder::new().name("drystone-waits".to_owned()).spawn(move || {
            let is_idle = engine.synchronize().is_ok();
            engine.is_awaited.store(false, Ordering::Release);
            is_idle
        });
        let Ok(waiter) = waiter else {
            self.is_awaited.store(false, Ordering::Release);
            return false;
        };
        while !waiter.is_finished() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(LOOK);
        }
        waiter.join().unwrap_or(false)
    }
}
