//! The driver's own functions, by which ours go on: the only ones that are called from here. And
//! whether ours serve, give back alone, or hand every call on.
//!
//! Invariant: the driver's library is never loaded from here, only found once the program has.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use drystone_process::registry;
use libloading::os::unix::{Library, RTLD_LAZY};

use crate::ipc::token::Token;

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
pub(crate) const NOT_SUPPORTED: Status = 801;

/// A context, stream, event, pool or graph: it points to something of the driver's.
pub type Handle = *mut c_void;
/// A place in the program's memory that the driver reads or writes.
pub type Place = *mut c_void;

/// The name by which every user of CUDA loads the driver.
pub const LIBRARY: &str = "libcuda.so.1";

/// Where the library has a symbol. A name that ends in a zero is not copied.
#[inline(never)]
pub(crate) fn address(library: &Library, name: &str) -> Option<*const ()> {
    // SAFETY: only the address is looked at.
    unsafe { library.get::<*const ()>(name) }.ok().map(|found| *found)
}

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
                        // SAFETY: the driver's function of this name has this type.
                        let typed = |found| unsafe {
                            std::mem::transmute::<*const (), Function>(found)
                        };
                        let found = address(library, concat!(stringify!($name), "\0"));
                        found.map_or(missing as Function, typed)
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
    cuCtxSetLimit(c_int, usize);
    cuCtxEnablePeerAccess(Handle, c_uint);
    cuCtxSynchronize();
    cuCtxSynchronize_v2(Handle);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemGetAddressRange_v2(*mut u64, *mut usize, u64);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemAllocManaged(*mut u64, usize, c_uint);
    cuMemAllocHost_v2(*mut Place, usize);
    cuMemHostAlloc(*mut Place, usize, c_uint);
    cuMemHostRegister_v2(Place, usize, c_uint);
    cuMemCreate(*mut u64, usize, Place, u64);
    cuMemMap(u64, usize, usize, u64, u64);
    cuMemSetAccess(u64, usize, Place, usize);
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
    cuIpcGetMemHandle(*mut Token, u64);
    cuIpcOpenMemHandle_v2(*mut u64, Token, c_uint);
    cuIpcCloseMemHandle(u64);
    cuMemRetainAllocationHandle(*mut u64, Place);
    cuMemGetHandleForAddressRange(Place, u64, usize, c_int, u64);
    cuPointerSetAttribute(Place, c_int, u64);
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
    cuEventCreate(*mut Handle, c_uint);
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
    cuModuleLoad(*mut Handle, *const c_char);
    cuModuleLoadData(*mut Handle, Place);
    cuModuleLoadDataEx(*mut Handle, Place, c_uint, Place, Place);
    cuModuleLoadFatBinary(*mut Handle, Place);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuLibraryLoadData(*mut Handle, Place, Place, Place, c_uint, Place, Place, c_uint);
    cuLibraryLoadFromFile(*mut Handle, *const c_char, Place, Place, c_uint, Place, Place, c_uint);
    cuLibraryGetModule(*mut Handle, Handle);
    cuKernelGetFunction(*mut Handle, Handle);
    cuFuncLoad(Handle);
    cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, Place, Place);
    cuLaunchKernel_ptsz(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, Place, Place);
    cuLaunchKernelEx(Place, Handle, Place, Place);
    cuLaunchKernelEx_ptsz(Place, Handle, Place, Place);
    cuLaunchCooperativeKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, Place);
    cuLaunchCooperativeKernel_ptsz(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, Place);
    cuGraphInstantiate(*mut Handle, Handle, *mut Handle, *mut c_char, usize);
    cuGraphInstantiate_v2(*mut Handle, Handle, *mut Handle, *mut c_char, usize);
    cuGraphInstantiateWithFlags(*mut Handle, Handle, u64);
    cuGraphInstantiateWithParams(*mut Handle, Handle, Place);
    cuGraphInstantiateWithParams_ptsz(*mut Handle, Handle, Place);
    cuGraphUpload(Handle, Handle);
    cuGraphUpload_ptsz(Handle, Handle);
    cuGraphLaunch(Handle, Handle);
    cuGraphLaunch_ptsz(Handle, Handle);
}

/// Ours hand every call on.
const HANDS_ON: u8 = 0;
/// They give unused memory back where the driver has none, and hand on all else.
const GIVES_BACK: u8 = 1;
/// They serve, too.
const SERVES: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(HANDS_ON);

thread_local! {
    /// Whether this thread asks if a call comes to ours, and whether one has.
    static PROBE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// From now on Drystone serves, in this process, for good: as soon as the program has loaded the
/// driver. Every stream is seen to come and go.
pub fn serve() {
    MODE.fetch_max(SERVES, Ordering::AcqRel);
    registry::know_all_streams();
}

/// From now on Drystone gives back what it holds unused where the driver refuses memory to whoever
/// asks for it. Its own memory is served elsewhere.
pub fn give_back() {
    MODE.fetch_max(GIVES_BACK, Ordering::AcqRel);
}

/// Whether [`serve`] was called.
#[inline]
pub fn is_serving() -> bool {
    MODE.load(Ordering::Acquire) == SERVES
}

/// Whether a call of a function of the driver's comes to ours, while these do not serve. Where it
/// does it goes no further, and fails.
pub fn is_reached_by(call: impl FnOnce()) -> bool {
    PROBE.set(Some(false));
    call();
    PROBE.replace(None) == Some(true)
}

/// The driver, if ours serve and the program has loaded it.
pub fn serving() -> Option<&'static Driver> {
    if is_serving() { loaded() } else { None }
}

/// The driver, once calls that come to ours are not only handed on.
static CALLED: AtomicPtr<Driver> = AtomicPtr::new(ptr::null_mut());

/// The driver, for a call that has come to ours.
#[inline]
pub(crate) fn called() -> Option<&'static Driver> {
    // SAFETY: null, or a driver that is never dropped, published with all it consists of.
    let known = unsafe { CALLED.load(Ordering::Acquire).as_ref() };
    if known.is_some() { known } else { called_first() }
}

#[cold]
fn called_first() -> Option<&'static Driver> {
    if hands_on() {
        if PROBE.get().is_some() {
            PROBE.set(Some(true));
            return None;
        }
        return loaded();
    }
    loaded().inspect(|&driver| CALLED.store(ptr::from_ref(driver).cast_mut(), Ordering::Release))
}

/// Whether calls are handed on, and nothing else done.
pub(crate) fn hands_on() -> bool {
    MODE.load(Ordering::Acquire) == HANDS_ON
}

/// The driver, if the program has loaded it, whether ours serve or not.
pub fn loaded() -> Option<&'static Driver> {
    static LOADED: OnceLock<Driver> = OnceLock::new();
    LOADED.get().or_else(|| {
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
