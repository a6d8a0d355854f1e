//! What the loader keeps for an object, that is a library or the program: slots with addresses of
//! functions, which can be made to lead to ours.
//!
//! Invariants: a slot changes that leads to the function which ours stands in for, or will once it
//! is bound, and none that leads elsewhere. While its slots change an object stays loaded, and is
//! bound.

use std::ffi::{CStr, CString, c_void};
use std::mem::size_of;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info};
use rustc_hash::FxHashMap;

use crate::lookup;

/// Kinds of relocations that are a symbol's address: in a table, and of calls.
#[cfg(target_arch = "x86_64")]
const KINDS: [u64; 3] = [1, 6, 7];
#[cfg(target_arch = "aarch64")]
const KINDS: [u64; 3] = [257, 1025, 1026];

/// Where the loader keeps the address of a function for an object.
pub(crate) struct Slot {
    at: usize,
    name: &'static CStr,
    ours: usize,
}

/// A library, or the program.
pub(crate) struct Object {
    path: CString,
    base: usize,
    /// From its first address to its last.
    loaded: Range<usize>,
    /// Pages that cannot be written once it is loaded.
    closed: Range<usize>,
    slots: Vec<Slot>,
}

/// An entry of the dynamic section.
#[repr(C)]
struct Entry {
    tag: usize,
    value: usize,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    at: usize,
    info: u64,
    addend: i64,
}

impl Object {
    /// An object with slots for functions that others stand in for, if any; these are not touched
    /// yet. One where any of some addresses lies is left alone.
    pub(crate) fn of(
        about: &dl_phdr_info,
        left_alone: &[usize],
        stand_ins: &'static FxHashMap<CString, usize>,
    ) -> Option<Self> {
        if about.dlpi_phdr.is_null() || about.dlpi_name.is_null() {
            return None;
        }
        // SAFETY: so many, which are mapped as long as the loader describes the object.
        let parts =
            unsafe { std::slice::from_raw_parts(about.dlpi_phdr, usize::from(about.dlpi_phnum)) };
        let base = about.dlpi_addr as usize;
        let range = |part: &Elf64_Phdr| {
            let start = base + part.p_vaddr as usize;
            start..start + part.p_memsz as usize
        };
        let of_type = |kind: u32| parts.iter().filter(move |part| part.p_type == kind);
        let start = of_type(libc::PT_LOAD).map(|part| range(part).start).min()?;
        let end = of_type(libc::PT_LOAD).map(|part| range(part).end).max()?;
        // SAFETY: a C string of the loader's.
        let path = unsafe { CStr::from_ptr(about.dlpi_name) }.to_owned();
        let file_name = path.to_bytes().rsplit(|&byte| byte == b'/').next()?;
        let is_left_alone = left_alone.iter().any(|one| (start..end).contains(one));
        if is_left_alone || file_name.starts_with(b"libdrystone") {
            return None;
        }
        let page = page_bytes();
        // As the loader rounds it.
        let closed = of_type(libc::PT_GNU_RELRO).map(range).next().unwrap_or(0..0);
        let closed = closed.start & !(page - 1)..closed.end & !(page - 1);
        let dynamic = range(of_type(libc::PT_DYNAMIC).next()?);
        // Only these can be changed.
        let open: Vec<_> = of_type(libc::PT_LOAD)
            .filter(|part| part.p_flags & libc::PF_W != 0)
            .map(range)
            .collect();
        // SAFETY: the object is loaded, and this is its dynamic section.
        let mut slots = unsafe { slots(base, dynamic, stand_ins) };
        slots.retain(|slot| {
            let is_open = open.iter().any(|part| part.contains(&slot.at));
            is_open && slot.at.is_multiple_of(size_of::<usize>())
        });
        let object = Self { path, base, loaded: start..end, closed, slots };
        (!object.slots.is_empty()).then_some(object)
    }

    /// Leads its slots to ours.
    pub(crate) fn cover(&self) {
        let path = if self.path.is_empty() { ptr::null() } else { self.path.as_ptr() };
        // Waits until it is bound, and keeps it.
        // SAFETY: nothing is loaded, so nothing runs.
        let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return;
        }
        // SAFETY: the loader's handle is its description of the object, which begins with the base.
        if unsafe { handle.cast::<usize>().read() } == self.base {
            let changes = self.slots.iter().filter(|slot| self.is_led_to(slot, handle));
            changes.for_each(|slot| self.change(slot));
        }
        // SAFETY: opened above.
        unsafe { libc::dlclose(handle) };
    }

    /// Whether a slot leads to the function that ours stands in for, or will.
    fn is_led_to(&self, slot: &Slot, handle: *mut c_void) -> bool {
        let original = match slot.name.to_bytes() {
            b"dlopen" | b"dlsym" => lookup::c_librarys(slot.name),
            _ => lookup::original(slot.name).unwrap_or(ptr::null_mut()),
        };
        // SAFETY: an aligned place of an object that is kept, which the loader may be binding.
        let now = unsafe { AtomicUsize::from_ptr(ptr::with_exposed_provenance_mut(slot.at)) };
        let now = now.load(Ordering::Acquire);
        let Some(next) = lookup::next_dlsym().filter(|_| !original.is_null()) else {
            return false;
        };
        // SAFETY: only the address is taken.
        let find = |handle| unsafe { next(handle, slot.name.as_ptr()) }.addr();
        // What is not bound yet leads into the object itself. Of what it may be bound to, what is
        // there for all comes first; ours may be so for us alone.
        let will_be = || match find(libc::RTLD_DEFAULT) {
            first if first == original.addr() => true,
            first if first == 0 || first == slot.ours => find(handle) == original.addr(),
            _ => false,
        };
        now == original.addr() || (self.loaded.contains(&now) && will_be())
    }

    fn change(&self, slot: &Slot) {
        let page = slot.at & !(page_bytes() - 1);
        let protect = |protection| {
            // SAFETY: a page of the object's data, which the loader has closed.
            self.closed.contains(&page)
                && unsafe {
                    let page = ptr::with_exposed_provenance_mut(page);
                    libc::mprotect(page, page_bytes(), protection) != 0
                }
        };
        if !protect(libc::PROT_READ | libc::PROT_WRITE) {
            // SAFETY: an aligned place, which can be written now.
            let at = unsafe { AtomicUsize::from_ptr(ptr::with_exposed_provenance_mut(slot.at)) };
            at.store(slot.ours, Ordering::Release);
            protect(libc::PROT_READ);
        }
    }
}

/// Slots of an object for functions that others stand in for.
///
/// # Safety
/// It is loaded at that base, and has its dynamic section there.
unsafe fn slots(
    base: usize,
    dynamic: Range<usize>,
    stand_ins: &'static FxHashMap<CString, usize>,
) -> Vec<Slot> {
    /// `DT_SYMTAB`, `DT_STRTAB`.
    const TABLES: [usize; 2] = [6, 5];
    /// Where relocations are and how many bytes: `DT_RELA` and `DT_RELASZ`; `DT_JMPREL` and
    /// `DT_PLTRELSZ`.
    const RELOCATIONS: [[usize; 2]; 2] = [[7, 8], [23, 2]];
    let count = dynamic.len() / size_of::<Entry>();
    // SAFETY: by the caller's word.
    let entries: &[Entry] =
        unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(dynamic.start), count) };
    let value = |tag| entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.value);
    // The loader has added the base, except where the section cannot be written.
    let address = |tag| value(tag).map(|at| if at < base { at + base } else { at });
    let [Some(symbols), Some(names)] = TABLES.map(address) else { return Vec::new() };
    let symbols = ptr::with_exposed_provenance::<Elf64_Sym>(symbols);
    let mut found = Vec::new();
    for [at, bytes] in RELOCATIONS {
        let (Some(at), Some(bytes)) = (address(at), value(bytes)) else { continue };
        let at = ptr::with_exposed_provenance::<Relocation>(at);
        // SAFETY: the section says that so many are there.
        let all = unsafe { std::slice::from_raw_parts(at, bytes / size_of::<Relocation>()) };
        found.extend(all.iter().filter_map(|one| {
            if !KINDS.contains(&(one.info & u64::from(u32::MAX))) || one.addend != 0 {
                return None;
            }
            let symbol = symbols.wrapping_add((one.info >> 32) as usize);
            // SAFETY: its symbol is there.
            let name = names + unsafe { (*symbol).st_name } as usize;
            let name = ptr::with_exposed_provenance(name);
            // SAFETY: a C string among the names.
            let name = unsafe { CStr::from_ptr(name) };
            // Most names are of C++.
            let is_like_ours = matches!(name.to_bytes().first()?, b'c' | b'd' | b'i' | b'n');
            let (name, &ours) = is_like_ours.then(|| stand_ins.get_key_value(name)).flatten()?;
            Some(Slot { at: base + one.at, name, ours })
        }));
    }
    found
}

fn page_bytes() -> usize {
    // SAFETY: only asks.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
