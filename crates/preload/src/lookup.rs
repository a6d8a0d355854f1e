//! How programs that look for the driver's functions find ours: `dlsym` and `cuGetProcAddress`.
//!
//! Invariant: a look-up answers as it would without us, but that an address of the driver's which
//! ours stands in for becomes ours. So nothing is found that is not there, versions of functions
//! that are not known here stay the driver's, and so do functions of another driver.
//!
//! `dlsym` goes on to the C library's by a jump, as if that had been called: what `RTLD_NEXT` and
//! `RTLD_DEFAULT` mean depends on who calls.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use drystone_interpose::driver::{self, Driver, NOT_INITIALIZED, SUCCESS, Status};
use drystone_interpose::{Hook, functions};
use drystone_process::barrier::barrier;
use rustc_hash::FxHashMap;

use crate::place::{about, library_of};
use crate::{place, registration};

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Where a look-up goes on, or what it has found.
#[repr(C)]
pub(crate) struct Decision {
    /// The C library's function, to be called in our place; null if the look-up is over.
    pub(crate) onward: *mut c_void,
    pub(crate) found: *mut c_void,
}

/// Asks first what comes of a call, then jumps to the function that it goes on to, as if that had
/// been called.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($decide:ident) => {
        core::arch::naked_asm!(
            "endbr64",
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            // Who called.
            "mov rdx, [rsp + 24]",
            "call {decide}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "jz 2f",
            "jmp rax",
            "2: mov rax, rdx",
            "ret",
            decide = sym $decide,
        )
    };
}

/// The same.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($decide:ident) => {
        core::arch::naked_asm!(
            "hint #34", // bti c
            "stp x29, x30, [sp, #-32]!",
            "stp x0, x1, [sp, #16]",
            // Who called.
            "mov x2, x30",
            "bl {decide}",
            "mov x16, x0",
            "mov x9, x1",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            "cbz x16, 2f",
            "br x16",
            "2: mov x0, x9",
            "ret",
            decide = sym $decide,
        )
    };
}

pub(crate) use jump;

/// `dlsym`, for the whole process.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    jump!(decide)
}

/// What comes of a look-up.
extern "C" fn decide(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Decision {
    place::cover_more();
    let Some(next) = next_dlsym() else {
        return Decision { onward: ptr::null_mut(), found: ptr::null_mut() };
    };
    let goes_on = Decision { onward: next as *mut c_void, found: ptr::null_mut() };
    if name.is_null() {
        return goes_on;
    }
    // SAFETY: a C string, by the caller's word.
    let name = unsafe { CStr::from_ptr(name) };
    // Most names are unlike those of functions of ours.
    let is_like_ours = match name.to_bytes() {
        [b'c', b'u', third, ..] => third.is_ascii_uppercase(),
        [b'i', b'b', b'v', ..] | [b'n', b'c', b'c', b'l', ..] | [b'n', b'v', b's', b'h', ..] => {
            true
        }
        _ => false,
    };
    if !is_like_ours {
        return goes_on;
    }
    barrier(None, || replacement(handle, name, caller, next)).unwrap_or(goes_on)
}

/// Ends a look-up that would find one of the driver's functions, or the one of ours in its place.
fn replacement(
    handle: *mut c_void,
    name: &CStr,
    caller: *const c_void,
    next: Dlsym,
) -> Option<Decision> {
    let ours = ours(name.to_str().ok()?)?;
    // What we look for ourselves is the driver's, and what lies behind a library in the order of
    // loading is that library's to know.
    if handle == libc::RTLD_NEXT || library_of(caller) == library_of(ours) {
        return None;
    }
    // SAFETY: only the address is taken.
    let find = |handle| unsafe { next(handle, name.as_ptr()) };
    let found = find(handle);
    let found = match original(name) {
        Some(drivers) if !drivers.is_null() && found == drivers => ours,
        // Ours is found wherever the program's own libraries are, since it is preloaded: the
        // driver's may be there, too, behind it, or only where the caller looks besides.
        Some(drivers) if !drivers.is_null() && found == ours => {
            let behind = find(libc::RTLD_NEXT);
            let is_seen = || handle == libc::RTLD_DEFAULT && sees(caller, name, drivers, next);
            let is_found = !behind.is_null() || place::is_late() || is_seen();
            if is_found { ours } else { find(libc::RTLD_NEXT) }
        }
        // There is no driver: nothing is to be found, and the C library says so.
        _ if found == ours => find(libc::RTLD_NEXT),
        _ => return None,
    };
    Some(Decision { onward: ptr::null_mut(), found })
}

/// The function that ours stands in for: the driver's, or a library's that registers memory.
pub(crate) fn original(name: &CStr) -> Option<*mut c_void> {
    if registration::HOOKS.iter().any(|hook| hook.name.as_bytes() == name.to_bytes()) {
        return registration::find(name);
    }
    // Let go of before the last look-up, whose failure the program may ask about.
    driver::library().map(|library| {
        // SAFETY: only the address is taken.
        let found = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
        found.map_or(ptr::null_mut(), |found| found.as_raw_ptr())
    })
}

/// The function of ours by a name of the driver's, or of a library's.
fn ours(name: &str) -> Option<*mut c_void> {
    let all = functions().chain(HOOKS).chain(registration::HOOKS);
    let hook = all.into_iter().find(|hook| hook.name == name)?;
    Some(hook.address.cast_mut().cast())
}

/// Whether the library that looks for a function has the driver's among those it was loaded with.
fn sees(caller: *const c_void, name: &CStr, drivers: *mut c_void, next: Dlsym) -> bool {
    let path = about(caller).dli_fname;
    if path.is_null() {
        return false;
    }
    // SAFETY: a C string of the loader's; nothing is loaded, so nothing runs.
    let library = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return false;
    }
    // SAFETY: only the address is taken.
    let found = unsafe { next(library, name.as_ptr()) };
    // SAFETY: opened above.
    unsafe { libc::dlclose(library) };
    found == drivers
}

/// The C library's own `dlsym`.
pub(crate) fn next_dlsym() -> Option<Dlsym> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        found = c_librarys(c"dlsym");
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: the C library's function of this name has this type; null is none.
    unsafe { transmute::<*mut c_void, Option<Dlsym>>(found) }
}

/// A function of the C library's that finds or loads others, by the versions that it has had there.
pub(crate) fn c_librarys(name: &CStr) -> *mut c_void {
    const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"];
    // SAFETY: the names are C strings; only the address is taken.
    let find =
        |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
    let found = VERSIONS.iter().map(|version| find(version)).find(|found| !found.is_null());
    found.unwrap_or(ptr::null_mut())
}

/// Where functions of the driver are that ours stand in for, and those.
fn by_address(driver: &Driver) -> &'static FxHashMap<usize, *const ()> {
    struct Table(FxHashMap<usize, *const ()>);
    // SAFETY: addresses of functions, which any thread may read.
    unsafe impl Sync for Table {}
    // SAFETY: as above.
    unsafe impl Send for Table {}
    static TABLE: OnceLock<Table> = OnceLock::new();
    &TABLE.get_or_init(|| Table(find_addresses(driver))).0
}

/// By the loader, and as `cuGetProcAddress` itself gives them: where the two differ, both.
fn find_addresses(driver: &Driver) -> FxHashMap<usize, *const ()> {
    let mut table = FxHashMap::default();
    let Some(library) = driver::library() else { return table };
    for hook in functions().chain(HOOKS) {
        // SAFETY: only the address is taken.
        let found = unsafe { library.get::<*mut c_void>(hook.name) };
        let Ok(found) = found.map(|found| found.as_raw_ptr()) else { continue };
        table.insert(found.addr(), hook.address);
        if let Some(other) = by_proc_address(driver, hook.name) {
            table.entry(other.addr()).or_insert(hook.address);
        }
    }
    table
}

/// What `cuGetProcAddress` gives for a function whose version has a name of its own.
fn by_proc_address(driver: &Driver, name: &str) -> Option<*mut c_void> {
    /// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` and `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
    const FLAGS: [u64; 2] = [1, 2];
    let own = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
    let (name, flags) = own.map_or((name, FLAGS[0]), |name| (name, FLAGS[1]));
    let version = match SINCE.iter().find(|since| since.0 == name) {
        Some(&(_, version)) => version,
        None if name.starts_with("cuMem") && name.ends_with("_v2") => 3_020,
        // Its name has come to stand for a later one, and nobody is given it.
        None if ours(&format!("{name}_v2")).is_some() => return None,
        None => 12_000,
    };
    let base = name.rsplit_once("_v").map_or(name, |(base, _)| base);
    let base = CString::new(base).ok()?;
    let (mut found, mut status) = (ptr::null_mut(), 0);
    let ask = driver.cuGetProcAddress_v2;
    // SAFETY: the name is a C string; writes an address and a number.
    let asked = unsafe { ask(base.as_ptr(), &raw mut found, version, flags, &raw mut status) };
    (asked == SUCCESS && !found.is_null()).then_some(found)
}

/// Functions whose name stands for several versions, and the first CUDA in which it stands for
/// this one (`cudaTypedefs.h`). Second versions of what is done with memory are there from CUDA
/// 3.2 on; all others are there in CUDA 12.0, by their own names.
const SINCE: [(&str, c_int); 28] = [
    ("cuMemHostRegister_v2", 6_050),
    ("cuIpcOpenMemHandle_v2", 11_000),
    ("cuCtxCreate_v2", 3_020),
    ("cuCtxCreate_v3", 11_040),
    ("cuCtxCreate_v4", 12_050),
    ("cuGreenCtxCreate", 12_040),
    ("cuCtxDestroy_v2", 4_000),
    ("cuCtxSynchronize", 2_000),
    ("cuCtxSynchronize_v2", 13_000),
    ("cuCtxPushCurrent_v2", 4_000),
    ("cuCtxPopCurrent_v2", 4_000),
    ("cuDevicePrimaryCtxReset", 7_000),
    ("cuDevicePrimaryCtxReset_v2", 11_000),
    ("cuEventDestroy_v2", 4_000),
    ("cuStreamDestroy_v2", 4_000),
    ("cuStreamBeginCapture", 10_000),
    ("cuStreamBeginCapture_v2", 10_010),
    ("cuStreamBeginCaptureToGraph", 12_030),
    ("cuGraphInstantiate", 10_000),
    ("cuGraphInstantiate_v2", 11_000),
    ("cuFuncLoad", 12_040),
    ("cuGetProcAddress", 11_030),
    ("cuGetProcAddress_v2", 12_000),
    ("cuMemSetMemPool", 13_000),
    ("cuMemcpyBatchAsync", 12_080),
    ("cuMemcpyBatchAsync_v2", 13_000),
    ("cuMemcpy3DBatchAsync", 12_080),
    ("cuMemcpy3DBatchAsync_v2", 13_000),
];

/// Puts ours instead of what the driver has found.
fn put_ours(driver: &Driver, to: *mut *mut c_void) {
    if to.is_null() {
        return;
    }
    // SAFETY: the driver has written it.
    let found = unsafe { to.read_unaligned() };
    if let Some(ours) = barrier(None, || by_address(driver).get(&found.addr()).copied()) {
        // SAFETY: the same place.
        unsafe { to.write_unaligned(ours.cast_mut().cast()) };
    }
}

/// Functions that look others up, which must find ours, too.
macro_rules! lookups {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// # Safety
            /// As CUDA's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                name: *const c_char, to: *mut *mut c_void, $($argument: $type),*
            ) -> Status {
                let Some(driver) = driver::loaded() else { return NOT_INITIALIZED };
                // SAFETY: the caller's own arguments, as it promised the driver.
                let status = unsafe { (driver.$name)(name, to, $($argument),*) };
                if status == SUCCESS {
                    put_ours(driver, to);
                }
                status
            }
        )*

        pub(crate) static HOOKS: &[Hook] = &[$(
            Hook { name: stringify!($name), address: $name as *const () },
        )*];
    };
}

lookups! {
    fn cuGetProcAddress(version: c_int, flags: u64);
    fn cuGetProcAddress_ptsz(version: c_int, flags: u64);
    fn cuGetProcAddress_v2(version: c_int, flags: u64, status: *mut c_int);
    fn cuGetProcAddress_v2_ptsz(version: c_int, flags: u64, status: *mut c_int);
}
