//! For engines that look the driver's functions up.

use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::calls::{Alloc, Free, alloc, free};
use crate::device::{self, Stream};
use crate::lookup::real_dlsym;

/// `CUDA_ERROR_NOT_INITIALIZED`: called by nobody who looked it up.
const NOT_INITIALIZED: u32 = 3;

static ALLOC: OnceLock<Alloc> = OnceLock::new();
static FREE: OnceLock<Free> = OnceLock::new();

/// Whether Drystone is part of the program, and calls the driver itself.
static HAS_DRYSTONE: AtomicBool = AtomicBool::new(false);

/// To be called first by a program that Drystone is part of: what Drystone itself asks of the
/// driver is not the engine's.
pub fn drystone_is_here() {
    HAS_DRYSTONE.store(true, Ordering::Relaxed);
}

unsafe extern "C" fn watched_alloc(out: *mut u64, bytes: usize, stream: Stream) -> u32 {
    let Some(next) = ALLOC.get() else { return NOT_INITIALIZED };
    // SAFETY: the caller's own arguments.
    unsafe { alloc(*next, out, bytes, stream) }
}

unsafe extern "C" fn watched_free(address: u64, stream: Stream) -> u32 {
    let Some(next) = FREE.get() else { return NOT_INITIALIZED };
    // SAFETY: the caller's own arguments.
    unsafe { free(*next, address, stream) }
}

/// Whether it is Drystone that looks the function up: the engine finds Drystone's own.
fn is_drystones(address: *mut c_void, name: *const c_char) -> bool {
    HAS_DRYSTONE.load(Ordering::Relaxed) && device::function(name) == Some(address)
}

#[unsafe(export_name = "__wrap_dlsym")]
unsafe extern "C" fn watched_dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's own arguments.
    let address = unsafe { real_dlsym(library, name) };
    if address.is_null() || is_drystones(address, name) {
        return address;
    }
    // SAFETY: what was found has a name.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"cuMemAllocAsync" => {
            // SAFETY: CUDA gives the function of this name this signature.
            ALLOC.get_or_init(|| unsafe { transmute::<*mut c_void, Alloc>(address) });
            watched_alloc as *mut c_void
        }
        b"cuMemFreeAsync" => {
            // SAFETY: as above.
            FREE.get_or_init(|| unsafe { transmute::<*mut c_void, Free>(address) });
            watched_free as *mut c_void
        }
        _ => address,
    }
}
