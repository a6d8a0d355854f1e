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
    match process_state() {
        ProcessState::Running => Ok(()),
        ProcessState::Exiting => Err(Failure::exiting()),
        ProcessState::Forked => Err(Failure::forked()),
    }
}

/// Whether memory can be taken back. At exit it need not be: it ends with the process (B55).
///
/// # Errors
/// The process is forked.
#[inline]
pub fn takes_frees() -> Result<bool, Failure> {
    match process_state() {
        ProcessState::Running => Ok(true),
        ProcessState::Exiting => Ok(false),
        ProcessState::Forked => Err(Failure::forked()),
    }
}
