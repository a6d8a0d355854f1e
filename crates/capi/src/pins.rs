//! Pins of mappings, and the callback that is told of mapping changes.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use drystone::{MappingChange, PinError, SegmentKind};

use crate::barrier::answer;
use crate::status::{Failure, Status};
use crate::{free, process, registry};

type OnChange = unsafe extern "C" fn(
    data: *mut c_void,
    device: c_int,
    ptr: *mut c_void,
    bytes: usize,
    backing: c_int,
);

/// A function of the program, and what it is to be called with.
struct Listener {
    function: OnChange,
    data: *mut c_void,
}

// SAFETY: the header says that it is called from any thread.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

thread_local! {
    /// Whether this thread runs a listener, while memory grows or goes back.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a function that is told of mappings calls: it must wait for nobody.
pub(crate) fn is_telling() -> bool {
    IS_TELLING.get()
}

impl Listener {
    fn tell(&self, change: &MappingChange) {
        let address = change.address as usize as *mut c_void;
        let backing = match change.kind {
            _ if !change.is_backed => 0,
            SegmentKind::Mapped => 1,
            _ => 2,
        };
        let (bytes, device) = (change.bytes as usize, change.ordinal.cast_signed());
        let was_telling = IS_TELLING.replace(true);
        // SAFETY: the program's own function, called as the header says.
        unsafe { (self.function)(self.data, device, address, bytes, backing) };
        IS_TELLING.set(was_telling);
    }
}

/// Pins a live block of any device: its memory stays where it is, also once the block is free,
/// until `drystone_unpin_mapping` was called as often. For memory that a network card, NCCL or
/// another process knows by its address: it is not remapped or given back, and serves requests at
/// its own addresses as before. A pin covers whole handles: a granule each, or up to 128 MiB.
///
/// Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, NOT_SUPPORTED (backend `async`),
/// EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_pin_mapping(ptr: *mut c_void) -> Status {
    answer(|| {
        process::check()?;
        Ok(free::owner(ptr as u64)?.allocator.pin_mapping(ptr as u64)?)
    })
}

/// Takes a pin of an address back, whether its block is live still or not.
///
/// Statuses: UNKNOWN_POINTER (nothing is pinned there), EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_unpin_mapping(ptr: *mut c_void) -> Status {
    answer(|| {
        process::check()?;
        let address = ptr as u64;
        let unpinned =
            registry::in_use().any(|device| device.allocator.unpin_mapping(address).is_ok());
        if unpinned { Ok(()) } else { Err(PinError::NotPinned { address }.into()) }
    })
}

/// Calls a function whenever addresses of a device are backed by memory anew, or will be by none,
/// with `data`: before memory goes, after it came and before anybody is given it, in the order of
/// the changes. For tables by address, such as registrations, to drop a range. `backing` is 0 for
/// none, 1 for mapped memory, 2 for one plain allocation, which comes and goes as a whole.
///
/// It is called from any thread but never by two at once, while memory grows or goes back. It may
/// free, pin, unpin and ask; allocations that need more memory, trims and announcements of captures
/// are refused from within (NOT_SUPPORTED). It must not throw, nor begin a capture, nor wait for a
/// thread that allocates or trims, and stays for as long as the process lives.
///
/// Statuses: INVALID_VALUE (the function is null), NOT_SUPPORTED (backend `async`), INVALID_DEVICE,
/// BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
///
/// # Safety
/// The function is null or such a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_on_remap(
    device: c_int,
    function: Option<
        unsafe extern "C" fn(
            data: *mut c_void,
            device: c_int,
            ptr: *mut c_void,
            bytes: usize,
            backing: c_int,
        ),
    >,
    data: *mut c_void,
) -> Status {
    answer(|| {
        let Some(function) = function else {
            return Err(Failure::new(Status::InvalidValue, "the function is a null pointer"));
        };
        process::check()?;
        let listener = Listener { function, data };
        let tell = move |change: &MappingChange| listener.tell(change);
        Ok(registry::get(device)?.allocator.on_remap(Arc::new(tell))?)
    })
}
