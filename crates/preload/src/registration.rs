//! Functions of network, disk and collective libraries that register memory by its address: ours
//! stand before them, so that the memory stays where it is until it is given up.
//!
//! Invariants: the library's own function does all else, and its answer is the program's. Memory is
//! held before the call, and for as long as that succeeded; what was given up moves again. A call
//! that a library makes within one of these is its own matter.
//!
//! Calls that the linker binds go on to the first library behind ours that has the function: of two
//! copies of a library in a process only that one's may be called so.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use drystone_interpose::Hook;
use drystone_process::barrier::barrier;
use drystone_process::registered::{self, Held, Registered};
use drystone_process::registry;

use crate::place;

/// Something of the library's, or where it writes one.
type Place = *mut c_void;

/// Registered for nobody whose end would be seen.
const NOBODY: usize = 0;

/// `IBV_REREG_MR_CHANGE_TRANSLATION`.
const CHANGES_PLACE: c_int = 1;
/// `ncclSystemError`.
const NCCL_SYSTEM_ERROR: c_int = 2;
/// `CU_FILE_DRIVER_NOT_INITIALIZED`, as the first word of two.
const CUFILE_NOT_INITIALIZED: u64 = 5001;

/// Whether cuFile's answer, two words, says that it is done: the first is 0.
const fn is_cufile_done(answer: u64) -> bool {
    answer as u32 == 0
}

/// Empties the place for a name, which not every version of a library writes.
fn clear(to: *mut Place) {
    if !to.is_null() {
        // SAFETY: the program's place for an answer.
        unsafe { to.write_unaligned(ptr::null_mut()) };
    }
}

/// What a function of a library wrote, if it may have.
fn written(to: *mut Place) -> usize {
    // SAFETY: null, or the program's place for an answer, which the library has written.
    if to.is_null() { 0 } else { unsafe { to.read_unaligned() }.addr() }
}

/// Where the first library that is loaded and has a function has it, other than ours.
pub(crate) fn find(name: &CStr) -> Option<*mut c_void> {
    loaded_behind_ours().iter().find_map(|path| {
        // SAFETY: nothing is loaded, so nothing runs.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        // SAFETY: only the address is taken.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if !found.is_null() && !place::is_ours(found) {
            // Never closed: its function is called.
            return Some(found);
        }
        // SAFETY: opened above.
        unsafe { libc::dlclose(library) };
        None
    })
}

/// The libraries that were loaded after ours: what lies before calls us to go on; all where ours
/// came later, and such a call goes on by itself. The program itself, which has no name there,
/// finds its own functions before ours.
fn loaded_behind_ours() -> Vec<CString> {
    unsafe extern "C" fn add(about: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
        // SAFETY: the list, below.
        let paths = unsafe { &mut *to.cast::<Vec<CString>>() };
        // SAFETY: the loader's description of a library.
        let path = unsafe { (*about).dlpi_name };
        if !path.is_null() {
            // SAFETY: a C string of the loader's.
            let path = unsafe { CStr::from_ptr(path) };
            paths.extend((!path.is_empty()).then(|| path.to_owned()));
        }
        0
    }
    let mut paths = Vec::<CString>::new();
    // SAFETY: the function takes the list, which lives until the call ends.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut paths).cast()) };
    let ours = place::about(loaded_behind_ours as *const c_void).dli_fname;
    // SAFETY: a C string of the loader's, if it is one.
    let ours = (!ours.is_null()).then(|| unsafe { CStr::from_ptr(ours) });
    let is_ours = |path: &CString| !place::is_late() && Some(path.as_c_str()) == ours;
    let at = paths.iter().position(is_ours);
    paths.split_off(at.map_or(0, |at| at + 1))
}

/// A library's own function, once it was found.
struct Real(AtomicPtr<c_void>);

impl Real {
    #[inline(never)]
    fn get(&self, name: &[u8]) -> Option<*mut c_void> {
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let found = barrier(None, || find(CStr::from_bytes_with_nul(name).ok()?))?;
        self.0.store(found, Ordering::Release);
        Some(found)
    }
}

thread_local! {
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// A call that is within none of these, until it ends.
struct Outermost;

impl Outermost {
    fn enter() -> Option<Self> {
        let is_within = IS_WITHIN.try_with(|is_within| is_within.replace(true));
        (!is_within.unwrap_or(true)).then_some(Self)
    }
}

impl Drop for Outermost {
    fn drop(&mut self) {
        let _ = IS_WITHIN.try_with(|is_within| is_within.set(false));
    }
}

/// Defines functions by the libraries' names. One that `registers` addresses tells what the library
/// calls them then, unless it failed, and for whom. One that `gives_up` says when it is done.
macro_rules! registrations {
    ($(
        $library:literal
        fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $refusal:expr,
        |$result:pat_param| $way:ident $what:tt
    )*) => {
        $(
            /// # Safety
            /// As the library's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
                static REAL: Real = Real(AtomicPtr::new(ptr::null_mut()));
                const NAME: &str = concat!(stringify!($name), "\0");
                let Some(real) = REAL.get(NAME.as_bytes()) else { return $refusal };
                type Function = unsafe extern "C" fn($($type),*) -> $answer;
                // SAFETY: the library's function of this name has this type.
                let real = unsafe { transmute::<*mut c_void, Function>(real) };
                // SAFETY: the caller's own arguments, as it promised the library.
                let call = || unsafe { real($($argument),*) };
                let Some(_outermost) = Outermost::enter() else { return call() };
                $way!($library, stringify!($name), call, |$result| $what)
            }
        )*

        pub(crate) static HOOKS: &[Hook] = &[$(
            Hook { name: stringify!($name), address: $name as *const () },
        )*];
    };
}

/// Memory that is about to be registered. NCCL and NVSHMEM take it for one allocation: it is made
/// one handle, if it can be, while it is not held yet.
#[inline(never)]
fn hold(library: &'static str, start: u64, bytes: u64) -> Option<Held> {
    barrier(None, || {
        if matches!(library, "nccl" | "nvshmem") {
            registry::in_use().find_map(|device| device.allocator.make_whole(start));
        }
        Held::new(start..start.saturating_add(bytes))
    })
}

/// Keeps what was registered by a name, unless it was not.
#[inline(never)]
fn keep(
    held: Option<Held>,
    (library, call): (&'static str, &'static str),
    name: Option<usize>,
    owner: usize,
) {
    barrier((), || {
        if let (Some(held), Some(name)) = (held, name) {
            held.keep(call, (library, name), owner);
        }
    });
}

/// What a call is about to give up.
enum Given {
    /// All that was registered by a name.
    Name(usize),
    /// What was registered last by an owner and a name.
    Of(usize, usize),
    Owner(usize),
}

/// Takes it out of the table.
#[inline(never)]
fn take(library: &'static str, given: Given) -> Vec<Registered> {
    barrier(Vec::new(), || match given {
        Given::Name(name) => registered::take_named((library, name)),
        Given::Of(owner, name) => registered::take((library, name), owner).into_iter().collect(),
        Given::Owner(owner) => registered::take_all(library, owner),
    })
}

/// Lets go of it, or puts it back.
#[inline(never)]
fn end(taken: Vec<Registered>, is_done: bool) {
    barrier((), || {
        if !is_done {
            taken.into_iter().for_each(Registered::keep);
        }
    });
}

/// Holds addresses during a call, and as long as its answer has a name for them.
macro_rules! registers {
    ($library:literal, $call:expr, $do:expr, |$result:pat_param|
        [$address:expr, $bytes:expr, $name:expr, $owner:expr]) => {{
        let held = hold($library, $address as u64, $bytes as u64);
        let answer = $do();
        let $result = answer;
        keep(held, ($library, $call), $name, $owner);
        answer
    }};
}

/// Lets go of what a call has given up.
macro_rules! gives_up {
    ($library:literal, $call:expr, $do:expr, |$result:pat_param|
        [$given:ident($($of:expr),*), $is_done:expr]) => {{
        let taken = take($library, Given::$given($($of),*));
        let answer = $do();
        let $result = answer;
        end(taken, $is_done);
        answer
    }};
}

registrations! {
    "verbs" fn ibv_reg_mr(
        domain: Place, address: Place, bytes: usize, access: c_int
    ) -> Place, ptr::null_mut(),
    |region| registers [address, bytes, (!region.is_null()).then(|| region.addr()), NOBODY]

    "verbs" fn ibv_reg_mr_iova(
        domain: Place, address: Place, bytes: usize, iova: u64, access: c_int
    ) -> Place, ptr::null_mut(),
    |region| registers [address, bytes, (!region.is_null()).then(|| region.addr()), NOBODY]

    "verbs" fn ibv_reg_mr_iova2(
        domain: Place, address: Place, bytes: usize, iova: u64, access: c_uint
    ) -> Place, ptr::null_mut(),
    |region| registers [address, bytes, (!region.is_null()).then(|| region.addr()), NOBODY]

    "verbs" fn ibv_reg_dmabuf_mr(
        domain: Place, offset: u64, bytes: usize, iova: u64, file: c_int, access: c_int
    ) -> Place, ptr::null_mut(),
    // By custom it is reached at its own address.
    |region| registers [iova, bytes, (!region.is_null()).then(|| region.addr()), NOBODY]

    // Its old place stays held, too.
    "verbs" fn ibv_rereg_mr(
        region: Place, flags: c_int, domain: Place, address: Place, bytes: usize, access: c_int
    ) -> c_int, libc::ENOSYS,
    |answer| registers [
        address,
        if flags & CHANGES_PLACE == 0 { 0 } else { bytes },
        (answer == 0).then(|| region.addr()),
        NOBODY]

    "verbs" fn ibv_dereg_mr(region: Place) -> c_int, libc::ENOSYS,
    |answer| gives_up [Name(region.addr()), answer == 0]

    "cufile" fn cuFileBufRegister(
        address: Place, bytes: usize, flags: c_int
    ) -> u64, CUFILE_NOT_INITIALIZED,
    |answer| registers [address, bytes, is_cufile_done(answer).then(|| address.addr()), NOBODY]

    "cufile" fn cuFileBufDeregister(address: Place) -> u64, CUFILE_NOT_INITIALIZED,
    |answer| gives_up [Of(NOBODY, address.addr()), is_cufile_done(answer)]

    "cufile" fn cuFileDriverClose() -> u64, CUFILE_NOT_INITIALIZED,
    |answer| gives_up [Owner(NOBODY), is_cufile_done(answer)]

    "cufile" fn cuFileDriverClose_v2() -> u64, CUFILE_NOT_INITIALIZED,
    |answer| gives_up [Owner(NOBODY), is_cufile_done(answer)]

    // Where NCCL does not register it gives no handle.
    "nccl" fn ncclCommRegister(
        owner: Place, address: Place, bytes: usize, to: *mut Place
    ) -> c_int, NCCL_SYSTEM_ERROR,
    |answer| registers [
        { clear(to); address },
        bytes,
        Some(written(to)).filter(|&name| answer == 0 && name != 0),
        owner.addr()]

    "nccl" fn ncclCommDeregister(owner: Place, name: Place) -> c_int, NCCL_SYSTEM_ERROR,
    |answer| gives_up [Of(owner.addr(), name.addr()), answer == 0]

    // In a group of calls the window has no name before the group ends: it is the owner's then.
    "nccl" fn ncclCommWindowRegister(
        owner: Place, address: Place, bytes: usize, to: *mut Place, flags: c_int
    ) -> c_int, NCCL_SYSTEM_ERROR,
    |answer| registers [
        { clear(to); address }, bytes, (answer == 0).then(|| written(to)), owner.addr()]

    "nccl" fn ncclCommWindowDeregister(owner: Place, name: Place) -> c_int, NCCL_SYSTEM_ERROR,
    |answer| gives_up [Of(owner.addr(), name.addr()), answer == 0]

    "nccl" fn ncclCommDestroy(owner: Place) -> c_int, NCCL_SYSTEM_ERROR,
    |answer| gives_up [Owner(owner.addr()), answer == 0]

    "nccl" fn ncclCommAbort(owner: Place) -> c_int, NCCL_SYSTEM_ERROR,
    |answer| gives_up [Owner(owner.addr()), answer == 0]

    "nvshmem" fn nvshmemx_buffer_register(address: Place, bytes: usize) -> c_int, -1,
    |answer| registers [address, bytes, (answer == 0).then(|| address.addr()), NOBODY]

    "nvshmem" fn nvshmemx_buffer_unregister(address: Place) -> c_int, -1,
    |answer| gives_up [Of(NOBODY, address.addr()), answer == 0]

    "nvshmem" fn nvshmemx_buffer_unregister_all() -> (), Default::default(),
    |()| gives_up [Owner(NOBODY), true]
}
