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

/// How often it is looked whether the device is idle.
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
        if effort != Effort::Known && !self.is_idle_by(deadline) {
            return 0;
        }
        let given_bytes = self.give(bytes, None, deadline);
        let has_moved = given_bytes < bytes && effort == Effort::Moves && self.moves_by(deadline);
        match has_moved {
            true => given_bytes + self.give(bytes - given_bytes, None, deadline),
            false => given_bytes,
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
