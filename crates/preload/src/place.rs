//! Which library an address lies in.

use std::ffi::c_void;
use std::ptr;

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
