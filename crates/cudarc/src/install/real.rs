//! The driver's own functions, by which ours go on.

use std::ffi::c_void;
use std::sync::OnceLock;

use libloading::os::unix::Library;

/// What the driver's functions answer with.
pub(super) type Status = u32;
pub(super) const SUCCESS: Status = 0;
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`: there is no driver to go on with.
pub(super) const NO_DRIVER: Status = 302;

pub(super) type Handle = *mut c_void;

/// The name by which the driver's library calls itself.
pub(super) const LIBRARY: &str = "libcuda.so.1";

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        /// The driver's functions, found.
        pub(super) struct Real {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Real {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: CUDA gives the function of this name this signature.
                        $field: *unsafe { library.get($name.as_bytes()) }?,
                    )*
                })
            }
        }
    };
}

functions! {
    alloc_async = "cuMemAllocAsync": fn(*mut u64, usize, Handle);
    free_async = "cuMemFreeAsync": fn(u64, Handle);
    free = "cuMemFree_v2": fn(u64);
    create_stream = "cuStreamCreate": fn(*mut Handle, u32);
    create_stream_with_priority = "cuStreamCreateWithPriority": fn(*mut Handle, u32, i32);
    destroy_stream = "cuStreamDestroy_v2": fn(Handle);
    begin_capture = "cuStreamBeginCapture_v2": fn(Handle, u32);
    end_capture = "cuStreamEndCapture": fn(Handle, *mut Handle);
    is_capturing = "cuStreamIsCapturing": fn(Handle, *mut u32);
    context_of = "cuStreamGetCtx": fn(Handle, *mut Handle);
    current_context = "cuCtxGetCurrent": fn(*mut Handle);
    synchronize_stream = "cuStreamSynchronize": fn(Handle);
    synchronize_context = "cuCtxSynchronize": fn();
    device = "cuDeviceGet": fn(*mut i32, i32);
    retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, i32);
    release = "cuDevicePrimaryCtxRelease_v2": fn(i32);
    state = "cuDevicePrimaryCtxGetState": fn(i32, *mut u32, *mut i32);
}

impl Real {
    /// The driver of this process, loaded for good at the first call.
    pub(super) fn load() -> Result<&'static Self, libloading::Error> {
        static REAL: OnceLock<Real> = OnceLock::new();
        if let Some(real) = REAL.get() {
            return Ok(real);
        }
        // SAFETY: loading the driver runs its initialisers, as in any CUDA program.
        let library = unsafe { Library::new(LIBRARY) }?;
        let real = Self::find(&library)?;
        std::mem::forget(library);
        Ok(REAL.get_or_init(|| real))
    }
}
