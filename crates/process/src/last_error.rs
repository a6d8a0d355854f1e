//! The last error of each thread: a status, a message, and the figures of a lack of memory.
//!
//! Invariant: the text ends with a NUL, and stays where it is until the thread's next failure. It
//! lies in the thread's own memory and has no destructor, so that recording an error neither
//! allocates nor fails while the thread ends.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_char;
use std::mem::ManuallyDrop;

use drystone::OutOfMemory;

use crate::status::{Failure, Status};

/// Longer messages are cut.
const TEXT_BYTES: usize = 1024;

struct LastError {
    status: Cell<Status>,
    text: UnsafeCell<[u8; TEXT_BYTES]>,
    /// Without tags, so that it owns nothing that would have to be dropped.
    shortage: Cell<Option<ManuallyDrop<OutOfMemory>>>,
}

const _: () = assert!(!std::mem::needs_drop::<LastError>(), "nothing is to do when a thread ends");

thread_local! {
    static LAST: LastError = const {
        LastError {
            status: Cell::new(Status::Ok),
            text: UnsafeCell::new([0; TEXT_BYTES]),
            shortage: Cell::new(None),
        }
    };
}

/// Keeps why a call failed.
#[cold]
pub fn set(failure: &Failure) {
    // Where the thread's memory is gone already there is nobody left to ask.
    let _ = LAST.try_with(|last| {
        last.status.set(failure.status);
        let shortage = failure.shortage.as_deref();
        last.shortage.set(shortage.map(|of| ManuallyDrop::new(without_tags(of))));
        // SAFETY: the cell is this thread's own, and nothing here keeps a reference into it.
        let text = unsafe { &mut *last.text.get() };
        let end = floor_char_boundary(&failure.message, TEXT_BYTES - 1);
        text[..end].copy_from_slice(&failure.message.as_bytes()[..end]);
        text[end] = 0;
    });
}

/// The last place, not behind this one, where a text may be cut. (The standard library's own is
/// not in the oldest Rust that this crate is for.)
fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// The status of the last failure; [`Status::Ok`] if there was none.
pub fn status() -> Status {
    LAST.try_with(|last| last.status.get()).unwrap_or(Status::Ok)
}

/// The message of the last failure, empty if there was none. Never null.
pub fn message() -> *const c_char {
    LAST.try_with(|last| last.text.get().cast_const().cast()).unwrap_or(c"".as_ptr())
}

/// The figures of the last failure, if it was a lack of memory that has them.
pub fn shortage() -> Option<OutOfMemory> {
    let copied = LAST.try_with(|last| {
        let shortage = last.shortage.take();
        last.shortage.set(shortage.clone());
        shortage.map(ManuallyDrop::into_inner)
    });
    copied.unwrap_or(None)
}

/// An empty list has no memory of its own.
fn without_tags(of: &OutOfMemory) -> OutOfMemory {
    let mut copied = of.clone();
    copied.tags = Vec::new();
    copied
}

/// Forgets the last failure.
pub fn clear() {
    set(&Failure::new(Status::Ok, ""));
}
