//! The driver's own functions, by which ours go on. The only ones that are called from here.
//!
//! Invariant: the driver's library is never loaded from here, only found once the program has.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LAZY};

/// What the driver's functions answer with (`CUresult`).
pub(crate) type Status = u32;
pub(crate) const SUCCESS: Status = 0;
pub(crate) const OUT_OF_MEMORY: Status = 2;
/// `CUDA_ERROR_NOT_INITIALIZED`: what a function answers while there is no driver in the process.
pub(crate) const NOT_INITIALIZED: Status = 3;
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`.
pub(crate) const PEER_ACCESS_UNSUPPORTED: Status = 217;
/// `CUDA_ERROR_NOT_SUPPORTED`: what a function answers that the driver does not have.
const NOT_SUPPORTED: Status = 801;

/// A context, stream, pool or graph: it points to something of the driver's.
pub(crate) type Handle = *mut c_void;
/// A place in the program's memory that the driver reads or writes.
pub(crate) type Place = *mut c_void;

/// The name by which every user of CUDA loads the driver.
const LIBRARY: &str = "libcuda.so.1";

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The functions that are called.
        #[expect(non_snake_case, reason = "the names that CUDA gives them")]
        pub(crate) struct Driver {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Driver {
            /// A function that the library lacks refuses every call.
            fn of(library: &Library) -> Self {
                Self {
                    $($name: {
                        type Function = unsafe extern "C" fn($($argument),*) -> Status;
                        unsafe extern "C" fn missing($(_: $argument),*) -> Status {
                            NOT_SUPPORTED
                        }
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the driver's function of this name has this type.
                        let found = unsafe { library.get::<Function>(name) };
                        found.map_or(missing as Function, |found| *found)
                    },)*
                }
            }
        }
    };
}

functions! {
    cuGetProcAddress(*const c_char, *mut *mut c_void, c_int, u64);
    cuGetProcAddress_ptsz(*const c_char, *mut *mut c_void, c_int, u64);
    cuGetProcAddress_v2(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int);
    cuGetProcAddress_v2_ptsz(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int);
    cuDevicePrimaryCtxRetain(*mut Handle, c_int);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuDevicePrimaryCtxReset(c_int);
    cuDevicePrimaryCtxReset_v2(c_int);
    cuCtxGetCurrent(*mut Handle);
    cuCtxSetCurrent(Handle);
    cuCtxPushCurrent(Handle);
    cuCtxPushCurrent_v2(Handle);
    cuCtxPopCurrent(*mut Handle);
    cuCtxPopCurrent_v2(*mut Handle);
    cuCtxCreate(*mut Handle, c_uint, c_int);
    cuCtxCreate_v2(*mut Handle, c_uint, c_int);
    cuCtxCreate_v3(*mut Handle, Place, c_int, c_uint, c_int);
    cuCtxCreate_v4(*mut Handle, Place, c_uint, c_int);
    cuCtxDestroy(Handle);
    cuCtxDestroy_v2(Handle);
    cuCtxGetDevice(*mut c_int);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemGetAddressRange_v2(*mut u64, *mut usize, u64);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemAllocPitch_v2(*mut u64, *mut usize, usize, usize, c_uint);
    cuMemFree_v2(u64);
    cuMemAllocAsync(*mut u64, usize, Handle);
    cuMemAllocAsync_ptsz(*mut u64, usize, Handle);
    cuMemAllocFromPoolAsync(*mut u64, usize, Handle, Handle);
    cuMemAllocFromPoolAsync_ptsz(*mut u64, usize, Handle, Handle);
    cuMemFreeAsync(u64, Handle);
    cuMemFreeAsync_ptsz(u64, Handle);
    cuDeviceGetDefaultMemPool(*mut Handle, c_int);
    cuDeviceSetMemPool(c_int, Handle);
    cuMemSetMemPool(Place, c_int, Handle);
    cuMemPoolCreate(*mut Handle, Place);
    cuMemPoolDestroy(Handle);
    cuMemPoolTrimTo(Handle, usize);
    cuMemPoolGetAttribute(Handle, c_int, Place);
    cuMemPoolSetAttribute(Handle, c_int, Place);
    cuMemPoolSetAccess(Handle, Place, usize);
    cuPointerGetAttribute(Place, c_int, u64);
    cuPointerGetAttributes(c_uint, *const c_int, *const Place, u64);
    cuStreamCreate(*mut Handle, c_uint);
    cuStreamCreateWithPriority(*mut Handle, c_uint, c_int);
    cuStreamDestroy(Handle);
    cuStreamDestroy_v2(Handle);
    cuStreamGetCtx(Handle, *mut Handle);
    cuStreamSynchronize(Handle);
    cuStreamIsCapturing(Handle, *mut c_uint);
    cuStreamBeginCapture(Handle, c_uint);
    cuStreamBeginCapture_ptsz(Handle, c_uint);
    cuStreamBeginCapture_v2(Handle, c_uint);
    cuStreamBeginCapture_v2_ptsz(Handle, c_uint);
    cuStreamBeginCaptureToGraph(Handle, Handle, Place, Place, usize, c_uint);
    cuStreamBeginCaptureToGraph_ptsz(Handle, Handle, Place, Place, usize, c_uint);
    cuStreamEndCapture(Handle, *mut Handle);
    cuStreamEndCapture_ptsz(Handle, *mut Handle);
}

/// The driver, if the program has loaded it.
#[inline]
pub(crate) fn loaded() -> Option<&'static Driver> {
    DRIVER.get().or_else(look)
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

#[cold]
fn look() -> Option<&'static Driver> {
    let library = library()?;
    let driver = Driver::of(&library);
    // Kept, so that it is not unloaded.
    std::mem::forget(library);
    Some(DRIVER.get_or_init(|| driver))
}

/// The driver's library, if the program has loaded it.
pub(crate) fn library() -> Option<Library> {
    // SAFETY: nothing is loaded, so nothing runs.
    unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
}

/// What a function of the driver writes, if it succeeds.
pub(crate) fn answer<T: Copy>(empty: T, ask: impl FnOnce(*mut T) -> Status) -> Option<T> {
    let mut value = empty;
    (ask(&raw mut value) == SUCCESS).then_some(value)
}
