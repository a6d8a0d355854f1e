//! Allocating for PyTorch, which wants a C++ exception where there is no memory.
//!
//! The exception is made by PyTorch's own constructor and thrown by the C++ library that PyTorch
//! has loaded, both found by name at run time, so that this library needs neither.
//!
//! Invariant: when the exception leaves, the frames here own nothing, and so have nothing that
//! would have to be cleaned up by a foreign unwinder.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::barrier::{answer, barrier};
use crate::status::{Failure, Status};
use crate::streams::CUstream_st;
use crate::{plugin, process, shortage, stream_owner};

/// It leads to everything that is looked up: PyTorch's core and the C++ library are among what it
/// needs.
const LIBRARY: &CStr = c"libc10_cuda.so";
/// More than `c10::Error` has in any version: 150 bytes or so.
const EXCEPTION_BYTES: usize = 1024;
/// More than a `std::string` has, of either kind: 32 bytes.
type CxxString = [u64; 8];

/// Devices beyond are not counted; there are none.
const DEVICES_MAX: usize = 64;
static REFUSALS: [AtomicU64; DEVICES_MAX] = [const { AtomicU64::new(0) }; DEVICES_MAX];

/// `c10::SourceLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: c_uint,
}

type AllocateException = unsafe extern "C" fn(usize) -> *mut c_void;
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void);
type MakeString = unsafe extern "C" fn(*mut CxxString, *const c_char, usize, *const u8);
type DropString = unsafe extern "C" fn(*mut CxxString);
type MakeError = unsafe extern "C" fn(*mut c_void, SourceLocation, *mut CxxString);

/// What making and throwing an exception takes.
#[derive(Clone, Copy)]
struct Cxx {
    allocate_exception: AllocateException,
    throw: Throw,
    make_string: MakeString,
    drop_string: DropString,
    make_error: MakeError,
    /// The table of `c10::OutOfMemoryError`, which differs from `c10::Error` in nothing else.
    out_of_memory: *const c_void,
}

// SAFETY: addresses of code and constants in a library that is never unloaded.
unsafe impl Send for Cxx {}
// SAFETY: as above.
unsafe impl Sync for Cxx {}

/// An exception to throw. Owns nothing by Rust's rules.
#[derive(Clone, Copy)]
struct Exception {
    object: *mut c_void,
    type_info: *const c_void,
    destructor: *const c_void,
    throw: Throw,
}

/// As `drystone_malloc`, but failure is a C++ exception: `c10::OutOfMemoryError`, in Python
/// `torch.OutOfMemoryError`, for a lack of memory, and `c10::Error`, in Python `RuntimeError`, for
/// everything else. Only PyTorch can call it: elsewhere it returns null, as `drystone_malloc` does.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn drystone_torch_malloc(
    size: isize,
    device: c_int,
    stream: *mut CUstream_st,
) -> *mut c_void {
    let address = plugin::drystone_malloc(size, device, stream);
    if address.is_null() && size != 0 {
        refuse(size, device);
    }
    address
}

/// Finds what throwing takes, in the PyTorch that is loaded. Optional: says early whether
/// `drystone_torch_malloc` can throw. From then on PyTorch is asked whose a new stream is: its own
/// stay, and the program's may end at any time.
///
/// Statuses: NOT_SUPPORTED (no PyTorch is loaded, or it is none that this version knows), EXITING,
/// FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_torch_bind() -> Status {
    answer(|| {
        process::check()?;
        cxx().as_ref().map(|_| ()).map_err(|missing| {
            let message =
                format!("cannot throw PyTorch's exceptions: {missing} is not in this process");
            Failure::new(Status::NotSupported, message)
        })
    })
}

/// How often `drystone_torch_malloc` found no memory on a device; 0 if there is no such device.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_torch_refusals(device: c_int) -> u64 {
    REFUSALS.get(device as usize).map_or(0, |count| count.load(Ordering::Relaxed))
}

/// Throws, or returns where it cannot.
#[cold]
#[inline(never)]
extern "C-unwind" fn refuse(size: isize, device: c_int) {
    if let Some(thrown) = barrier(None, || exception(size, device)) {
        // SAFETY: a whole C++ object in memory of the C++ library, with its own type.
        unsafe { (thrown.throw)(thrown.object, thrown.type_info, thrown.destructor) }
    }
}

fn exception(size: isize, device: c_int) -> Option<Exception> {
    let text = shortage::text(device, size.unsigned_abs() as u64);
    let is_out_of_memory = text.is_some();
    if is_out_of_memory && let Some(count) = REFUSALS.get(device as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    let cxx = cxx().as_ref().ok()?;
    let text = text.unwrap_or_else(|| format!("drystone: {}", shortage::last_message()));
    Some(make(cxx, &text, is_out_of_memory))
}

/// Has the exception made.
fn make(cxx: &Cxx, text: &str, is_out_of_memory: bool) -> Exception {
    let location = SourceLocation {
        function: c"drystone_torch_malloc".as_ptr(),
        file: c"drystone".as_ptr(),
        line: 0,
    };
    let mut string: CxxString = [0; 8];
    let allocator = 0_u8;
    // SAFETY: there is room for a string; the text is as long as said; `std::allocator` is empty.
    unsafe { (cxx.make_string)(&raw mut string, text.as_ptr().cast(), text.len(), &allocator) };
    // SAFETY: any size may be asked for; what is returned is never null.
    let object = unsafe { (cxx.allocate_exception)(EXCEPTION_BYTES) };
    // SAFETY: there is room for an exception. By its value's rules the string is passed by address.
    unsafe { (cxx.make_error)(object, location, &raw mut string) };
    // SAFETY: a string, if an empty one by now.
    unsafe { (cxx.drop_string)(&raw mut string) };
    let table: *mut *const *const c_void = object.cast();
    if is_out_of_memory {
        // The table begins with two words that are no functions.
        let functions = cxx.out_of_memory.cast::<*const c_void>().wrapping_add(2);
        // SAFETY: an object begins with the address of its class's functions.
        unsafe { table.write(functions) };
    }
    // SAFETY: as above.
    let functions = unsafe { table.read() };
    // SAFETY: the destructor is the first function of every such class.
    let destructor = unsafe { functions.read() };
    // SAFETY: the type lies before the functions.
    let type_info = unsafe { functions.wrapping_sub(1).read() };
    Exception { object, type_info, destructor, throw: cxx.throw }
}

/// Looked up once there is a PyTorch; until then at each call.
fn cxx() -> &'static Result<Cxx, &'static str> {
    static FOUND: OnceLock<Result<Cxx, &'static str>> = OnceLock::new();
    static NO_PYTORCH: Result<Cxx, &'static str> = Err("libc10_cuda.so");
    if let Some(found) = FOUND.get() {
        return found;
    }
    // SAFETY: the name is a C string; nothing is loaded that is not yet.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    match library.is_null() {
        true => &NO_PYTORCH,
        // The handle is kept, so that the library stays.
        false => FOUND.get_or_init(|| {
            stream_owner::ask(library);
            look_up(library)
        }),
    }
}

/// With the strings of today's C++, or with those of wheels up to PyTorch 2.6.
fn look_up(library: *mut c_void) -> Result<Cxx, &'static str> {
    let today = [
        c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcmRKS3_",
        c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev",
        c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    ];
    let former = [c"_ZNSsC1EPKcmRKSaIcE", c"_ZNSsD1Ev", c"_ZN3c105ErrorC1ENS_14SourceLocationESs"];
    let find = |name: &'static CStr| {
        // SAFETY: the library is loaded, the name a C string.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        match address.is_null() {
            true => Err(name.to_str().unwrap_or("a function")),
            false => Ok(address),
        }
    };
    let names = if find(former[2]).is_ok() { former } else { today };
    let [make_string, drop_string, make_error] =
        [find(names[0])?, find(names[1])?, find(names[2])?];
    let allocate_exception = find(c"__cxa_allocate_exception")?;
    let throw = find(c"__cxa_throw")?;
    let out_of_memory = find(c"_ZTVN3c1016OutOfMemoryErrorE")?.cast_const();
    type Address = *mut c_void;
    Ok(Cxx {
        // SAFETY: the C++ ABI's function of that name.
        allocate_exception: unsafe {
            mem::transmute::<Address, AllocateException>(allocate_exception)
        },
        // SAFETY: as above.
        throw: unsafe { mem::transmute::<Address, Throw>(throw) },
        // SAFETY: the constructor of a string from an address, a length and an allocator.
        make_string: unsafe { mem::transmute::<Address, MakeString>(make_string) },
        // SAFETY: its destructor.
        drop_string: unsafe { mem::transmute::<Address, DropString>(drop_string) },
        // SAFETY: the constructor from a place, and a string that is passed by address.
        make_error: unsafe { mem::transmute::<Address, MakeError>(make_error) },
        out_of_memory,
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::last_error;

    #[test]
    fn without_pytorch_failure_is_null_and_binding_says_what_is_missing() {
        assert_eq!(drystone_torch_bind(), Status::NotSupported);
        // SAFETY: the message lives until this thread's next failure.
        let text = unsafe { CStr::from_ptr(last_error::message()) }.to_string_lossy();
        assert!(text.contains("libc10_cuda.so"), "{text}");
        assert!(drystone_torch_malloc(-1, 0, ptr::null_mut()).is_null());
        assert!(drystone_torch_malloc(0, 0, ptr::null_mut()).is_null());
    }
}
