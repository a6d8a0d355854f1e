//! `dlsym`, also where it is watched itself.

#[cfg(feature = "linked")]
pub(crate) use libc::dlsym as real_dlsym;

#[cfg(not(feature = "linked"))]
unsafe extern "C" {
    #[link_name = "__real_dlsym"]
    pub(crate) fn real_dlsym(
        library: *mut std::ffi::c_void,
        name: *const std::ffi::c_char,
    ) -> *mut std::ffi::c_void;
}
