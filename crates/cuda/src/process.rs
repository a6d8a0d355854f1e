//! Whether the process may still call CUDA: not once its exit began, and not in a forked child.
//!
//! Keeps P6. The C library tells: an exit handler and a fork handler set one byte, which every call
//! reads first, before it takes any lock. So a forked child never waits for a lock that nobody is
//! left to release.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use drystone_driver::ErrorCode;

const RUNNING: u8 = 0;
const EXITING: u8 = 1;
/// Above `EXITING`: a forked child that exits stays one.
const FORKED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(RUNNING);

/// What the process may still do with CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// Everything.
    Running,
    /// Nothing: its exit began.
    Exiting,
    /// Nothing: it was forked from one that uses CUDA.
    Forked,
}

/// What the process may still do with CUDA. One load, no lock.
#[inline]
pub fn process_state() -> ProcessState {
    match STATE.load(Ordering::Relaxed) {
        RUNNING => ProcessState::Running,
        EXITING => ProcessState::Exiting,
        _ => ProcessState::Forked,
    }
}

/// Ok while CUDA may be called.
#[inline]
pub(crate) fn check() -> Result<(), ErrorCode> {
    match process_state() {
        ProcessState::Running => Ok(()),
        ProcessState::Exiting => Err(ErrorCode::Deinitialized),
        ProcessState::Forked => Err(ErrorCode::NotInitialized),
    }
}

extern "C" fn at_exit() {
    STATE.fetch_max(EXITING, Ordering::Relaxed);
}

#[cfg(unix)]
unsafe extern "C" fn in_child() {
    STATE.fetch_max(FORKED, Ordering::Relaxed);
}

/// Starts to watch for exit. Exit handlers run last registered first, so this is called after
/// whatever may make CUDA register its own: ours must run before.
pub(crate) fn watch_exit() {
    // SAFETY: the handler only sets an atomic byte. If it cannot be registered, calls at exit reach
    // the driver, which refuses them as best it can.
    unsafe { libc::atexit(at_exit) };
}

/// Starts to watch for forks, once.
pub(crate) fn watch_fork() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if IS_WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    #[cfg(unix)]
    // SAFETY: the handler only sets an atomic byte, which is legal in a forked child.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    }
}
