//! The end of a process, and children of it.

/// Runs `body` in a forked child; whether it came back with true within ten seconds. The child ends
/// without running what the parent has set up.
pub fn forked_child_succeeds(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child makes no call of CUDA but through `body`, whose calls are what is tested.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that hangs is ended by the alarm, and counts as failed.
        unsafe { libc::alarm(10) };
        let body = std::panic::AssertUnwindSafe(body);
        let is_good = std::panic::catch_unwind(body).unwrap_or(false);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if is_good { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child, writes one number; refused if there is none.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    child > 0 && waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42
}

/// Has a function called when the process exits, after those that are registered later.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: a function with nothing to pass to it.
    unsafe { libc::atexit(function) };
}
