//! The driver, and the oracle of the simulated one; on any other device nobody is told.

use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;

use crate::lookup::real_dlsym;

pub(crate) type Stream = *mut c_void;

type CheckAlloc = unsafe extern "C" fn(i32, u64, u64, Stream) -> i32;
type CheckFree = unsafe extern "C" fn(i32, u64) -> i32;

struct Oracle {
    alloc: CheckAlloc,
    free: CheckFree,
}

/// The one device that the engines use.
const DEVICE: i32 = 0;

/// The address of a function of the driver's.
pub(crate) fn function(name: *const c_char) -> Option<*mut c_void> {
    // SAFETY: a C string; whoever asks uses the driver anyway.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if driver.is_null() {
        return None;
    }
    // SAFETY: a library that is loaded, and the caller's C string.
    ptr::NonNull::new(unsafe { real_dlsym(driver, name) }).map(ptr::NonNull::as_ptr)
}

fn oracle() -> Option<&'static Oracle> {
    static ORACLE: OnceLock<Option<Oracle>> = OnceLock::new();
    let named = |name: &CStr| function(name.as_ptr());
    let find = || {
        Some(Oracle {
            // SAFETY: `docs/use/simcuda.md` gives it this signature.
            alloc: unsafe { transmute::<*mut c_void, CheckAlloc>(named(c"simcuda_check_alloc")?) },
            // SAFETY: as above.
            free: unsafe { transmute::<*mut c_void, CheckFree>(named(c"simcuda_check_free")?) },
        })
    };
    ORACLE.get_or_init(find).as_ref()
}

/// A block was handed out, and a kernel uses it.
pub(crate) fn check_alloc(address: u64, bytes: u64, stream: Stream) {
    if let Some(oracle) = oracle() {
        // SAFETY: numbers, and the engine's own stream.
        unsafe { (oracle.alloc)(DEVICE, address, bytes, stream) };
    }
}

/// A block is about to be freed, and a kernel uses it up to then.
pub(crate) fn check_free(address: u64) {
    if let Some(oracle) = oracle() {
        // SAFETY: numbers.
        unsafe { (oracle.free)(DEVICE, address) };
    }
}
