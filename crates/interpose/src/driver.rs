//! The driver's own functions, by which ours go on: the only ones that are called from here. And
//! whether ours serve, or hand every call on.
//!
//! Invariant: the driver's library is never loaded from here, only found once the program has.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix::{Library, RTLD_LAZY};

/// What the driver's functions answer with (`CUresult`).
pub type Status = u32;
/// `CUDA_SUCCESS`.
pub const SUCCESS: Status = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: Status = 2;
/// `CUDA_ERROR_NOT_PERMITTED`.
pub(crate) const NOT_PERMITTED: Status = 800;
/// `CUDA_ERROR_NOT_INITIALIZED`: what a function answers while there is no driver in the process.
pub const NOT_INITIALIZED: Status = 3;
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`.
pub(crate) const PEER_ACCESS_UNSUPPORTED: Status = 217;
/// `CUDA_ERROR_NOT_SUPPORTED`: what a function answers that the driver does not have.
const NOT_SUPPORTED: Status = 801;

/// A context, stream, event, pool or graph: it points to something of the driver's.
pub type Handle = *mut c_void;
/// A place in the program's memory that the driver reads or writes.
pub type Place = *mut c_void;

/// The name by which every user of CUDA loads the driver.
pub const LIBRARY: &str = "libcuda.so.1";

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The functions that are called.
        #[expect(non_snake_case, reason = "the names that CUDA gives them")]
        #[derive(Clone, Copy)]
        pub struct Driver {
            $(#[doc = "The driver's."] pub $name: unsafe extern "C" fn($($argument),*) -> Status,)*
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
    cuGreenCtxCreate(*mut Handle, Handle, c_int, c_uint);
    cuCtxDestroy(Handle);
    cuCtxDestroy_v2(Handle);
    cuCtxGetDevice(*mut c_int);
    cuCtxSynchronize();
    cuCtxSynchronize_v2(Handle);
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
    cuStreamSynchronize_ptsz(Handle);
    cuStreamWaitEvent(Handle, Handle, c_uint);
    cuStreamWaitEvent_ptsz(Handle, Handle, c_uint);
    cuEventRecord(Handle, Handle);
    cuEventRecord_ptsz(Handle, Handle);
    cuEventRecordWithFlags(Handle, Handle, c_uint);
    cuEventRecordWithFlags_ptsz(Handle, Handle, c_uint);
    cuEventDestroy(Handle);
    cuEventDestroy_v2(Handle);
    cuStreamIsCapturing(Handle, *mut c_uint);
    cuThreadExchangeStreamCaptureMode(*mut c_uint);
    cuStreamBeginCapture(Handle, c_uint);
    cuStreamBeginCapture_ptsz(Handle, c_uint);
    cuStreamBeginCapture_v2(Handle, c_uint);
    cuStreamBeginCapture_v2_ptsz(Handle, c_uint);
    cuStreamBeginCaptureToGraph(Handle, Handle, Place, Place, usize, c_uint);
    cuStreamBeginCaptureToGraph_ptsz(Handle, Handle, Place, Place, usize, c_uint);
    cuStreamEndCapture(Handle, *mut Handle);
    cuStreamEndCapture_ptsz(Handle, *mut Handle);
}

/// Whether ours are to serve.
static SERVES: AtomicBool = AtomicBool::new(false);

/// The driver, since ours serve.
static SERVED: OnceLock<Driver> = OnceLock::new();

thread_local! {
    /// Whether this thread asks if a call comes to ours, and whether one has.
    static PROBE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// From now on Drystone serves, in this process, for good: as soon as the program has loaded the
/// driver.
pub fn serve() {
    SERVES.store(true, Ordering::Release);
}

/// Whether [`serve`] was called.
pub fn is_serving() -> bool {
    SERVES.load(Ordering::Acquire)
}

/// Whether a call of a function of the driver's comes to ours, while these do not serve. Where it
/// does it goes no further, and fails.
pub fn is_reached_by(call: impl FnOnce()) -> bool {
    PROBE.set(Some(false));
    call();
    PROBE.replace(None) == Some(true)
}

/// The driver, if ours serve and the program has loaded it.
#[inline]
pub fn serving() -> Option<&'static Driver> {
    SERVED.get().or_else(begin)
}

#[cold]
fn begin() -> Option<&'static Driver> {
    if !is_serving() {
        return None;
    }
    let driver = look()?;
    Some(SERVED.get_or_init(|| driver))
}

/// The driver, for a call that is handed on.
#[cold]
pub(crate) fn handing_on() -> Option<&'static Driver> {
    if PROBE.get().is_some() {
        PROBE.set(Some(true));
        return None;
    }
    loaded()
}

/// The driver, if the program has loaded it, whether ours serve or not.
pub fn loaded() -> Option<&'static Driver> {
    static LOADED: OnceLock<Driver> = OnceLock::new();
    serving().or_else(|| LOADED.get()).or_else(|| {
        let driver = look()?;
        Some(LOADED.get_or_init(|| driver))
    })
}

#[cold]
fn look() -> Option<Driver> {
    let library = library()?;
    let driver = Driver::of(&library);
    // Kept, so that it is not unloaded.
    std::mem::forget(library);
    Some(driver)
}

/// The driver's library, if the program has loaded it.
pub fn library() -> Option<Library> {
    // SAFETY: nothing is loaded, so nothing runs.
    unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
}

/// What a function of the driver writes, if it succeeds.
pub(crate) fn answer<T: Copy>(empty: T, ask: impl FnOnce(*mut T) -> Status) -> Option<T> {
    let mut value = empty;
    (ask(&raw mut value) == SUCCESS).then_some(value)
}
