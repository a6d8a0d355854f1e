//! Sleeping on a word of shared memory, and waking who sleeps there.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until somebody wakes the word, for that long at most, or not at all if the word is not
/// what was seen. May return for no reason.
pub(super) fn sleep(word: &AtomicU32, seen: u32, most: Option<Duration>) {
    let most = most.map(|most| libc::timespec {
        tv_sec: most.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    });
    let most = most.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the time outlive the call, which reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, most) };
}

/// Wakes whoever sleeps on the word, in any process.
pub(super) fn wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
