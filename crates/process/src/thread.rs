//! Threads of the allocator's own, beside the program's.

use std::ffi::c_void;
use std::ptr;

/// Starts a thread that nobody waits for, which runs this with what is given. True if it has begun.
///
/// # Safety
/// `run` may have `given` on another thread, at any time from now on.
pub(crate) unsafe fn start(
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    given: *mut c_void,
) -> bool {
    // SAFETY: a plain C struct; filled below.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(&raw mut all) };
    // The program's signals are for its own threads; a new thread has its maker's mask.
    // SAFETY: reads one set, writes the other.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let mut thread: libc::pthread_t = 0;
    // SAFETY: by the caller.
    let status = unsafe { libc::pthread_create(&raw mut thread, ptr::null(), run, given) };
    // SAFETY: the mask of before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    if status == 0 {
        // SAFETY: just begun, and nobody waits for its end.
        unsafe { libc::pthread_detach(thread) };
    }
    status == 0
}
