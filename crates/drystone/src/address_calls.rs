//! Calls of the driver that take an address and look at once at what is there: copies, memsets,
//! questions. While memory moves there is nothing for a moment, and the driver refuses such a call,
//! or takes the address for one of the host's (vllm-project/vllm#12981).
//!
//! Invariant: memory moves once no such call is under way, or not at all; and a call that begins
//! meanwhile waits. Whoever stands before the driver runs them by [`run`]. So it does with calls
//! that bring streams which would not stand still: new ones, and captured ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How many are under way.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// How many moves are.
static MOVES: AtomicUsize = AtomicUsize::new(0);

/// How long calls are waited for. No stream stands still yet, and most take microseconds; but their
/// threads may have lost the processor, and a copy that waits for its end may take any time.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a call waits for moves. In a forked child they never end.
const MOVING: Duration = Duration::from_secs(1);

/// Runs a call. It waits first while memory moves.
#[inline]
pub fn run<R>(call: impl FnOnce() -> R) -> R {
    CALLS.fetch_add(1, Ordering::SeqCst);
    if MOVES.load(Ordering::SeqCst) != 0 {
        wait();
    }
    let done = call();
    CALLS.fetch_sub(1, Ordering::Release);
    done
}

#[cold]
fn wait() {
    let begun = Instant::now();
    while MOVES.load(Ordering::SeqCst) != 0 && begun.elapsed() < MOVING {
        CALLS.fetch_sub(1, Ordering::SeqCst);
        thread::sleep(Duration::from_micros(50));
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
}

/// No call is under way for as long as this lives.
pub(crate) struct Stopped(());

impl Stopped {
    /// `None`: some call takes too long.
    pub(crate) fn new() -> Option<Self> {
        MOVES.fetch_add(1, Ordering::SeqCst);
        let (stopped, begun) = (Self(()), Instant::now());
        while CALLS.load(Ordering::SeqCst) != 0 {
            if begun.elapsed() >= PATIENCE {
                return None;
            }
            thread::yield_now();
        }
        Some(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        MOVES.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen;
    use drystone_driver::Stream;
    use std::sync::atomic::AtomicBool;

    /// One test for both: they share what the process has.
    #[test]
    fn memory_moves_while_no_call_is_under_way_and_calls_wait() {
        assert!(run(Stopped::new).is_none(), "a call is under way");
        let stopped = Stopped::new().unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let call = scope.spawn(|| run(|| is_over.load(Ordering::SeqCst)));
            thread::sleep(Duration::from_millis(5));
            is_over.store(true, Ordering::SeqCst);
            drop(stopped);
            assert!(call.join().unwrap());
        });
        // A stream that was created meanwhile does not stand still: it is nobody's before.
        let stopped = Stopped::new().unwrap();
        thread::scope(|scope| {
            let created = scope.spawn(|| seen::created(Stream(0x9000), 0));
            thread::sleep(Duration::from_millis(5));
            assert!(!seen::is_seen(Stream(0x9000)) && !created.is_finished());
            drop(stopped);
            created.join().unwrap();
        });
        assert!(seen::is_seen(Stream(0x9000)));
        assert!(Stopped::new().is_some());
    }
}
