//! Libraries that are loaded already, where nobody preloaded ours: what the loader has bound for
//! them is made to lead to ours. So is their `dlsym`, and with it what they look up from now on;
//! and their `dlopen`, with which libraries that come later are covered.
//!
//! Invariants: ours, the driver and the C library are left alone; every other object is looked at
//! once. What an object has found before by a look-up, and keeps by itself, is not seen from here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use drystone_interpose::{driver, functions};
use drystone_process::barrier::barrier;
use libc::dl_phdr_info;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lookup::{self, Decision, c_librarys, jump};
use crate::object::Object;
use crate::{place, registration};

/// From now on libraries of this process, also those that are loaded later, get what Drystone holds
/// unused where the driver refuses memory to them: as if this library had been preloaded.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_cover_libraries() {
    drystone_interpose::give_back();
    let _ = place::COVERS.set(look_again);
    look_again();
}

/// Covers what was loaded since it was last looked. Whoever comes while another thread looks leaves
/// it to that one, which may wait for a library that this one loads.
fn look_again() {
    static KNOWN: Mutex<Known> = Mutex::new(Known { counts: (0, 0), objects: None });
    barrier((), || {
        let Ok(mut known) = KNOWN.try_lock() else { return };
        loop {
            let fresh = known.look();
            if fresh.is_empty() {
                break;
            }
            fresh.iter().for_each(Object::cover);
        }
    });
}

/// What was looked at.
struct Known {
    /// How many objects were loaded and unloaded by then.
    counts: (u64, u64),
    /// By their program headers.
    objects: Option<FxHashSet<usize>>,
}

/// A look at all objects.
struct Look<'a> {
    known: &'a mut Known,
    has_begun: bool,
    left_alone: [usize; 3],
    fresh: Vec<Object>,
}

impl Known {
    /// Objects that are new, and have slots for functions that ours stand in for.
    fn look(&mut self) -> Vec<Object> {
        unsafe extern "C" fn add(about: *mut dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
            // SAFETY: the loader's description of an object.
            let about = unsafe { &*about };
            // SAFETY: the look, below.
            let look = unsafe { &mut *to.cast::<Look<'_>>() };
            barrier(1, || look.add(about))
        }
        let drivers = driver::loaded().map_or(0, |driver| driver.cuDeviceGetCount as usize);
        let left_alone = [add as *const () as usize, drivers, c_librarys(c"dlopen").addr()];
        let mut look = Look { known: self, has_begun: false, left_alone, fresh: Vec::new() };
        // SAFETY: the function takes the look, which lives until the call ends.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut look).cast()) };
        look.fresh
    }
}

impl Look<'_> {
    /// Looks at an object; 1 if no more need be looked at.
    fn add(&mut self, about: &dl_phdr_info) -> c_int {
        let counts = (about.dlpi_adds, about.dlpi_subs);
        let objects = self.known.objects.get_or_insert_default();
        if !self.has_begun {
            if self.known.counts == counts {
                return 1;
            }
            // Another may be where one was.
            if self.known.counts.1 != counts.1 {
                objects.clear();
            }
            self.known.counts = counts;
            self.has_begun = true;
        }
        if objects.insert(about.dlpi_phdr.addr())
            && let Some(object) = Object::of(about, &self.left_alone, stand_ins())
        {
            self.fresh.push(object);
        }
        0
    }
}

/// `dlopen`, for libraries that were led to it. Where a library is looked for by its name, the C
/// library's has to see who calls: then it is jumped to, and what it loads is covered by the next
/// look-up.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn open(file: *const c_char, mode: c_int) -> *mut c_void {
    jump!(decide_open)
}

/// What comes of loading a library.
extern "C" fn decide_open(file: *const c_char, mode: c_int, _: *const c_void) -> Decision {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    look_again();
    let next = c_librarys(c"dlopen");
    // SAFETY: a C string, by the caller's word, unless it is null.
    let path = if file.is_null() { c"" } else { unsafe { CStr::from_ptr(file) } }.to_bytes();
    // A path, in which nothing stands for the caller's folder, is the same whoever calls.
    if next.is_null() || !path.contains(&b'/') || path.contains(&b'$') {
        return Decision { onward: next, found: ptr::null_mut() };
    }
    // SAFETY: the C library's function of this name has this type.
    let next = unsafe { transmute::<*mut c_void, Dlopen>(next) };
    // SAFETY: the caller's own arguments.
    let found = unsafe { next(file, mode) };
    if !found.is_null() {
        look_again();
    }
    Decision { onward: ptr::null_mut(), found }
}

/// Functions of ours by their names.
fn stand_ins() -> &'static FxHashMap<CString, usize> {
    static ALL: OnceLock<FxHashMap<CString, usize>> = OnceLock::new();
    ALL.get_or_init(|| {
        let hooks = functions().chain(lookup::HOOKS).chain(registration::HOOKS);
        let hooks = hooks.filter_map(|hook| {
            Some((CString::new(hook.name).ok()?, hook.address.expose_provenance()))
        });
        let lookups = [
            (c"dlsym".to_owned(), lookup::dlsym as *const () as usize),
            (c"dlopen".to_owned(), open as *const () as usize),
        ];
        hooks.chain(lookups).collect()
    })
}
