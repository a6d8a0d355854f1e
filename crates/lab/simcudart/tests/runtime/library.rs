//! A runtime library, and its functions by name.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::size_of;
use std::path::PathBuf;

/// A function of a library, with the types of its arguments, and of its result if that is no
/// status.
macro_rules! function {
    ($library:ident.$name:ident($($argument:ty),* $(,)?)) => {
        function!($library.$name($($argument),*) -> std::ffi::c_int)
    };
    ($library:ident.$name:ident($($argument:ty),* $(,)?) -> $result:ty) => {{
        let name = std::ffi::CString::new(stringify!($name)).unwrap();
        $library.function::<extern "C" fn($($argument),*) -> $result>(&name)
    }};
}
pub(crate) use function;

/// A library of the simulated runtime.
pub struct Runtime(*mut c_void);

// SAFETY: the handle of a library may be used by any thread.
unsafe impl Send for Runtime {}
// SAFETY: the same.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// Loads `libcudart.so.<version>`; none if the libraries were not built.
    pub fn load(version: &str) -> Option<Self> {
        Self::open(&format!("libcudart.so.{version}"))
    }

    /// Loads one of the libraries; none if they were not built.
    pub fn open(name: &str) -> Option<Self> {
        let Some(folder) = std::env::var_os("DRYSTONE_SIMCUDA") else {
            eprintln!("skipped: DRYSTONE_SIMCUDA names no simulated libraries");
            return None;
        };
        let path = PathBuf::from(folder).join(name);
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library's start-up code does nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "cannot load {}", path.display());
        Some(Self(handle))
    }

    fn address(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is a library's and the name a string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is not exported");
        address
    }

    pub fn has_version(&self, name: &CStr, version: &CStr) -> bool {
        // SAFETY: the handle is a library's and the names are strings.
        !unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) }.is_null()
    }

    /// A function, of the type that the caller says.
    pub fn function<F: Copy>(&self, name: &CStr) -> F {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        let address = self.address(name);
        // SAFETY: a function pointer has the size and validity of the address of a function; the
        // tests state the types that CUDA's header does.
        unsafe { std::mem::transmute_copy(&address) }
    }

    /// Calls a function without parameters.
    pub fn call(&self, name: &CStr) -> c_int {
        let function: extern "C" fn() -> c_int = self.function(name);
        function()
    }

    /// Calls a function that tells an `int`.
    pub fn number(&self, name: &CStr) -> c_int {
        let function: extern "C" fn(*mut c_int) -> c_int = self.function(name);
        let mut number = -1;
        assert_eq!(function(&raw mut number), 0, "{name:?}");
        number
    }
}
