//! One line on standard error for what a function cannot return.
//!
//! Invariant: however often something goes wrong, there are few lines (B32): the first eight, then
//! each time the number of failures has doubled.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::last_error;
use crate::status::Failure;

const EACH_OF_THE_FIRST: u64 = 8;

static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Keeps a failure as the thread's last error and says so.
#[cold]
pub fn report(function: &str, failure: &Failure) {
    last_error::set(failure);
    let number = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
    if number <= EACH_OF_THE_FIRST {
        print(&format!("drystone: {function}: {}\n", failure.message));
    } else if number.is_power_of_two() {
        print(&format!("drystone: {function}: {} (failure {number})\n", failure.message));
    }
}

/// Says what a program may want to know, once.
#[cold]
pub fn note(line: &str) {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut said = SAID.lock();
    if !said.iter().any(|before| before == line) {
        print(line);
        said.push(line.to_owned());
    }
}

/// Past the standard library's lock, which is nobody's at exit.
fn print(line: &str) {
    // SAFETY: the text is as long as said. A failure has nobody to be told to.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
