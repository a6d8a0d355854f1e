//! Whether the library may still do anything: not in a forked child, and only frees at exit (P6).
//!
//! Asked first by every exported function, before any lock is taken: in a forked child nobody may
//! be left to release it (B56).

use drystone_cuda::{ProcessState, process_state};

use crate::status::Failure;

/// Ok while memory may be given out.
///
/// # Errors
/// The process is exiting, or forked.
#[inline]
pub fn check() -> Result<(), Failure> {
    if process_state() == ProcessState::Running { Ok(()) } else { Err(refusal()) }
}

#[cold]
fn refusal() -> Failure {
    match process_state() {
        ProcessState::Forked => Failure::forked(),
        _ => Failure::exiting(),
    }
}

/// Whether memory can be taken back. At exit it need not be: it ends with the process (B55).
///
/// # Errors
/// The process is forked.
#[inline]
pub fn takes_frees() -> Result<bool, Failure> {
    if process_state() == ProcessState::Running { Ok(true) } else { refused_or_not_needed() }
}

#[cold]
fn refused_or_not_needed() -> Result<bool, Failure> {
    match process_state() {
        ProcessState::Forked => Err(Failure::forked()),
        _ => Ok(false),
    }
}
