//! [`CallingOut`]: the program's code that runs while memory moves, under the growth lock.
//!
//! Invariant: a thread that runs such code is refused what would wait for that lock, which is its
//! own. At most one runs such code at a time.

use std::thread::{self, ThreadId};

use drystone_driver::{Call, DriverError, ErrorCode};
use parking_lot::Mutex;

/// The thread that runs a callback on mappings or a provider of memory, if one does.
#[derive(Default)]
pub(crate) struct CallingOut(Mutex<Option<ThreadId>>);

impl CallingOut {
    /// Runs the program's code, which must not unwind.
    pub(crate) fn run<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = self.0.lock().replace(thread::current().id());
        let result = run();
        *self.0.lock() = before;
        result
    }

    /// Refuses to take the lock that this thread has while it runs the program's code.
    pub(crate) fn refuse_within(&self) -> Result<(), DriverError> {
        match *self.0.lock() {
            Some(thread) if thread == thread::current().id() => {
                Err(DriverError::new(Call::Map, ErrorCode::InCallback))
            }
            _ => Ok(()),
        }
    }
}
