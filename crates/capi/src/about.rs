//! The library itself: versions, names of statuses, and the last error.

use std::ffi::{c_char, c_int};

use crate::barrier::barrier;
use crate::last_error;
use crate::status::Status;

/// The version as text, such as "0.1.0". Valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version as one number: major * 1000000 + minor * 1000 + patch, as `DRYSTONE_VERSION` in the
/// header that the program was compiled with.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_version_number() -> c_int {
    VERSION
}

/// The binary interface: programs compiled with the same `DRYSTONE_ABI_VERSION` run with this
/// library. It grows only when a function or a status changes its meaning.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_abi_version() -> c_int {
    DRYSTONE_ABI_VERSION
}

const VERSION: c_int = number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// The binary interface that this header describes.
pub const DRYSTONE_ABI_VERSION: c_int = 1;

/// A decimal number, at compile time.
const fn number(text: &str) -> c_int {
    let mut value = 0;
    let mut at = 0;
    while at < text.len() {
        value = value * 10 + (text.as_bytes()[at] - b'0') as c_int;
        at += 1;
    }
    value
}

/// The name of a status, such as "DRYSTONE_STATUS_OUT_OF_MEMORY"; "unknown status" for a number
/// that is none. Valid forever, never null.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_status_name(status: c_int) -> *const c_char {
    Status::of(status).map_or(c"unknown status", Status::name).as_ptr()
}

/// The status of the calling thread's last failure; OK if there was none since the thread began or
/// `drystone_clear_error`. Success does not reset it.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_last_error() -> Status {
    barrier(Status::Internal, last_error::status)
}

/// What went wrong in the calling thread's last failure, with figures and the way out; empty if
/// nothing did. Never null. Valid until the thread's next failure, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_last_error_message() -> *const c_char {
    barrier(c"".as_ptr(), last_error::message)
}

/// Forgets the calling thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_clear_error() {
    barrier((), last_error::clear);
}
