//! Where this library stands: which one an address lies in, and whether others came before it.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

/// What covers other libraries, where this one was not preloaded.
pub(crate) static COVERS: OnceLock<fn()> = OnceLock::new();

/// Whether this library came after others, which were led to it.
pub(crate) fn is_late() -> bool {
    COVERS.get().is_some()
}

/// Covers libraries that have come since.
pub(crate) fn cover_more() {
    COVERS.get().inspect(|cover| cover());
}

/// Whether an address is one of ours.
pub(crate) fn is_ours(address: *const c_void) -> bool {
    library_of(address) == library_of(library_of as *const c_void)
}

/// Where the library begins that an address lies in.
pub(crate) fn library_of(address: *const c_void) -> *mut c_void {
    about(address).dli_fbase
}

/// The library that an address lies in.
pub(crate) fn about(address: *const c_void) -> libc::Dl_info {
    let mut about = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: there is room for the answer.
    unsafe { libc::dladdr(address, &raw mut about) };
    about
}
