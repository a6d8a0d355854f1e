//! Results that functions write through pointers of their callers.

use crate::status::{Failure, Status};

/// Ok unless a pointer that a function writes to is null.
pub(crate) fn not_null<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    match pointer.is_null() {
        true => Err(Failure::new(Status::InvalidValue, format!("{name} is a null pointer"))),
        false => Ok(()),
    }
}

/// Writes a result through a pointer that may be null and need not be aligned.
///
/// # Safety
/// The pointer is null or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, and writable by the caller's word.
        unsafe { to.write_unaligned(value) };
    }
}
