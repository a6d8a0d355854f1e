//! The CUDA runtime that the program uses: the functions behind the ones of their names here; and
//! whether this library stands in for it.
//!
//! Each is looked for once, behind this library in the order of loading; else in a runtime that the
//! process has loaded for itself alone. None is ever loaded from here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::barrier::barrier;
use crate::device::is_default;

/// How a call of the runtime ended.
pub(super) type Code = c_int;
/// A pool of the driver's.
pub(super) type Handle = *mut c_void;
/// A stream, as the runtime takes it.
pub(super) type StreamHandle = *mut c_void;

pub(super) const SUCCESS: Code = 0;
pub(super) const MEMORY_ALLOCATION: Code = 2;
const SYMBOL_NOT_FOUND: Code = 302;

/// Runtimes that may be there without being in the order of loading.
const RUNTIMES: [&CStr; 3] = [c"libcudart.so.13", c"libcudart.so.12", c"libcudart.so.11.0"];

/// Where a function is, once it was looked for.
struct Found(AtomicPtr<c_void>);

impl Found {
    /// The function's address; null if there is none.
    #[inline]
    fn address(&self, name: &'static CStr) -> *mut c_void {
        let known = self.0.load(Ordering::Acquire);
        if known.is_null() { self.look(name) } else { present(known) }
    }

    /// The loader takes what lies behind this library, since it is asked from here.
    #[cold]
    fn look(&self, name: &'static CStr) -> *mut c_void {
        // SAFETY: the name is a C string; only the address is taken.
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        for runtime in RUNTIMES {
            if found.is_null() {
                found = function_of(runtime, name);
            }
        }
        let known = if found.is_null() { missing() } else { found };
        self.0.store(known, Ordering::Release);
        present(known)
    }
}

fn function_of(runtime: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: nothing is loaded, so nothing runs.
    let handle = unsafe { libc::dlopen(runtime.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the handle is the loader's, and kept, so that the function stays.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// Stands for a function that there is not.
fn missing() -> *mut c_void {
    ptr::without_provenance_mut(1)
}

fn present(known: *mut c_void) -> *mut c_void {
    if known == missing() { ptr::null_mut() } else { known }
}

/// Functions of the runtime, with its types. Each is as safe as the runtime's.
macro_rules! runtime {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            #[expect(non_snake_case, reason = "the name that CUDA gives it")]
            pub(super) unsafe fn $name($($argument: $type),*) -> Code {
                static FOUND: Found = Found(AtomicPtr::new(ptr::null_mut()));
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                let address = FOUND.address(NAME);
                if address.is_null() {
                    return SYMBOL_NOT_FOUND;
                }
                type Function = unsafe extern "C" fn($($type),*) -> Code;
                // SAFETY: the runtime's function of this name has this type.
                let function = unsafe { transmute::<*mut c_void, Function>(address) };
                // SAFETY: by the caller's word.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

runtime! {
    cudaMalloc(to: *mut *mut c_void, bytes: usize);
    cudaFree(address: *mut c_void);
    cudaMallocAsync(to: *mut *mut c_void, bytes: usize, stream: StreamHandle);
    cudaMallocAsync_ptsz(to: *mut *mut c_void, bytes: usize, stream: StreamHandle);
    cudaMallocFromPoolAsync(
        to: *mut *mut c_void, bytes: usize, pool: Handle, stream: StreamHandle);
    cudaMallocFromPoolAsync_ptsz(
        to: *mut *mut c_void, bytes: usize, pool: Handle, stream: StreamHandle);
    cudaFreeAsync(address: *mut c_void, stream: StreamHandle);
    cudaFreeAsync_ptsz(address: *mut c_void, stream: StreamHandle);
    cudaMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cudaMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cudaMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize);
    cudaMemPoolCreate(pool: *mut Handle, properties: *const c_void);
    cudaMemPoolDestroy(pool: Handle);
    cudaMemPoolTrimTo(pool: Handle, keep_bytes: usize);
    cudaDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    cudaDeviceGetMemPool(pool: *mut Handle, device: c_int);
    cudaGetDevice(device: *mut c_int);
    cudaGetDeviceCount(count: *mut c_int);
    cudaGetLastError();
    cudaStreamGetDevice(stream: StreamHandle, device: *mut c_int);
    cudaStreamIsCapturing(stream: StreamHandle, status: *mut c_int);
    cudaStreamSynchronize(stream: StreamHandle);
}

/// What a function of the runtime writes, if it succeeds.
fn answer<T: Copy>(empty: T, ask: impl FnOnce(*mut T) -> Code) -> Option<T> {
    let mut value = empty;
    (ask(&raw mut value) == SUCCESS).then_some(value)
}

/// The device whose memory a request on a stream gets; `None` where it is being captured: it may
/// not be asked for its device then, and the memory is the graph's.
#[inline]
pub(super) fn device_of(stream: StreamHandle) -> Option<c_int> {
    /// The thread's own default stream, also of the current device.
    const PER_THREAD: u64 = 2;
    if !is_default(stream as u64) && stream as u64 != PER_THREAD {
        // SAFETY: there is room for the answer; the program passed the stream.
        if answer(0, |status| unsafe { cudaStreamIsCapturing(stream, status) }) != Some(0) {
            return None;
        }
        let mut device = 0;
        // SAFETY: as above.
        let code = unsafe { cudaStreamGetDevice(stream, &raw mut device) };
        // Runtimes before 12.8 cannot be asked: there the device must be the current one.
        if code != SYMBOL_NOT_FOUND {
            return (code == SUCCESS).then_some(device);
        }
    }
    // SAFETY: there is room for the answer.
    answer(0, |device| unsafe { cudaGetDevice(device) })
}

/// The pool that a device's requests go to.
#[inline]
pub(super) fn current_pool(device: c_int) -> Option<Handle> {
    // SAFETY: there is room for the answer.
    answer(ptr::null_mut(), |pool| unsafe { cudaDeviceGetMemPool(pool, device) })
}

/// The pool that a device had from the beginning. It never changes.
#[inline]
pub(super) fn default_pool(device: c_int) -> Option<Handle> {
    static KNOWN: [AtomicPtr<c_void>; 64] = [const { AtomicPtr::new(ptr::null_mut()) }; 64];
    let known = KNOWN.get(device as usize)?;
    let pool = known.load(Ordering::Relaxed);
    if !pool.is_null() {
        return Some(pool);
    }
    // SAFETY: there is room for the answer.
    let pool = answer(ptr::null_mut(), |pool| unsafe { cudaDeviceGetDefaultMemPool(pool, device) });
    known.store(pool?, Ordering::Relaxed);
    pool
}

/// The device whose default pool this is.
pub(super) fn device_of_pool(pool: Handle) -> Option<c_int> {
    // SAFETY: there is room for the answer.
    let count = answer(0, |count| unsafe { cudaGetDeviceCount(count) })?;
    (0..count).find(|&device| default_pool(device) == Some(pool))
}

/// Whether this library stands in: it was preloaded, not linked or opened as a plug-in.
#[inline]
pub(super) fn is_active() -> bool {
    /// 0 is not asked yet.
    static ASKED: AtomicU8 = AtomicU8::new(0);
    const NO: u8 = 1;
    const YES: u8 = 2;
    match ASKED.load(Ordering::Relaxed) {
        0 => {
            let is_preloaded = barrier(false, is_preloaded);
            ASKED.store(if is_preloaded { YES } else { NO }, Ordering::Relaxed);
            is_preloaded
        }
        asked => asked == YES,
    }
}

/// Whether the loader was told to load this library before all others.
fn is_preloaded() -> bool {
    let mut own = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let here = is_preloaded as *const c_void;
    // SAFETY: there is room for the answer.
    if unsafe { libc::dladdr(here, &raw mut own) } == 0 || own.dli_fname.is_null() {
        return false;
    }
    let path: *const c_char = own.dli_fname;
    // SAFETY: the loader's name of this library, which is never unloaded.
    let path = unsafe { CStr::from_ptr(path) };
    let name = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
    let Some(list) = std::env::var_os("LD_PRELOAD") else { return false };
    let list = std::os::unix::ffi::OsStrExt::as_bytes(&*list);
    let mut entries = list.split(|&byte| byte == b':' || byte.is_ascii_whitespace());
    entries.any(|entry| name(entry) == name(path.to_bytes()))
}
