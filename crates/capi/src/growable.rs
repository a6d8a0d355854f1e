//! Memory that grows and shrinks at an address that never changes, by that address.
//!
//! Keeps: one that is being used by a call is not freed under its hands: another call for it waits;
//! but not a function that is told of mappings, which whoever holds it may be waiting for.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drystone::{FreeError, Growable};
use drystone_process::by_address::ByAddress;
use parking_lot::{Mutex, MutexGuard};

use crate::barrier::answer;
use crate::out::{not_null, put};
use crate::status::{Failure, Status};
use crate::streams::CUstream_st;
use crate::{pins, process, registry};

/// All there are, of every device, by address. The lock is not held while one grows.
static GROWABLES: Mutex<ByAddress<Arc<Entry>>> = Mutex::new(ByAddress::EMPTY);

struct Entry {
    device: c_int,
    room_bytes: u64,
    /// As the last call that was over left it: who asks does not wait.
    bytes: AtomicU64,
    growable: Mutex<Growable>,
}

impl Entry {
    fn new(device: c_int, growable: Growable) -> Arc<Self> {
        let room_bytes = growable.room_bytes();
        let growable = Mutex::new(growable);
        Arc::new(Self { device, room_bytes, bytes: AtomicU64::new(0), growable })
    }

    fn lock(&self) -> Result<MutexGuard<'_, Growable>, Failure> {
        if !pins::is_telling() {
            return Ok(self.growable.lock());
        }
        self.growable.try_lock().ok_or_else(|| {
            let message = "a function that is told of mappings cannot wait for the call that uses \
                           this memory";
            Failure::new(Status::NotSupported, message)
        })
    }

    /// Makes a call that moves the front, perhaps in part before it fails.
    fn resize<E: Into<Failure>>(
        &self,
        resize: impl FnOnce(&mut Growable) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let mut growable = self.lock()?;
        let resized = resize(&mut growable);
        self.bytes.store(growable.bytes(), Ordering::Relaxed);
        resized.map_err(Into::into)
    }
}

fn find(address: u64) -> Result<Arc<Entry>, Failure> {
    process::check()?;
    let found = GROWABLES.lock().get_mut(address).cloned();
    found.ok_or_else(|| FreeError::Unknown { address }.into())
}

/// Reserves addresses for memory of up to `max_bytes` that grows and shrinks in place, in the order
/// of a stream, and writes where it starts to `out`: a multiple of the granule, which names it from
/// now on. It has no bytes yet. `max_bytes` is rounded up to whole granules, and may be more than
/// the device has. One driver call.
///
/// Each growth asks the driver about the stream: it lives until the memory is freed, or until
/// `drystone_retire_stream`, after which the memory only shrinks.
///
/// On failure `out` is set to null. Statuses: INVALID_VALUE (`out` is null), INVALID_SIZE,
/// INVALID_DEVICE, OUT_OF_MEMORY (of addresses), UNKNOWN_STREAM, BAD_OPTION, NO_DRIVER,
/// NOT_SUPPORTED (backend `async`, or a device without virtual memory), DRIVER_ERROR, EXITING,
/// FORKED. Any thread.
///
/// # Safety
/// `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_growable_reserve(
    out: *mut *mut c_void,
    max_bytes: usize,
    device: c_int,
    stream: *mut CUstream_st,
) -> Status {
    let mut address = 0;
    let status = answer(|| {
        not_null(out, "out")?;
        process::check()?;
        let of = registry::get(device)?;
        let growable = of.allocator.reserve(of.stream(stream as u64)?, max_bytes as u64)?;
        address = growable.address();
        let former = GROWABLES.lock().insert(address, Entry::new(device, growable));
        // Of a device that was reset; dropped with the table open.
        drop(former);
        Ok(())
    });
    // SAFETY: by the caller's word.
    unsafe { put(out, address as usize as *mut c_void) };
    status
}

/// Moves the end of such memory forward, to `bytes`; does nothing if it is there or beyond. What is
/// before stays as it is, also for graphs; nothing is copied. Free memory is mapped first, whose
/// last use is complete; the rest is created. May wait and give memory back as
/// `drystone_allocate` does. Legal while its stream is captured.
///
/// Statuses: UNKNOWN_POINTER (none starts there), INVALID_SIZE (more than was reserved),
/// OUT_OF_MEMORY, UNKNOWN_STREAM (it was retired), CAPTURING (in a capture, other streams still use
/// what was given up there), ALREADY_FREE (somebody has deallocated it), DRIVER_ERROR, EXITING,
/// FORKED; nothing has changed then. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_growable_grow_to(ptr: *mut c_void, bytes: usize) -> Status {
    answer(|| find(ptr as u64)?.resize(|growable| growable.grow_to(bytes as u64)))
}

/// Moves the end back, to `bytes`; does nothing if it is there or before. Never waits. What is
/// behind it serves the next growth without a driver call, or others, once its uses are over.
///
/// Statuses: UNKNOWN_POINTER, ALREADY_FREE (somebody has deallocated it), NOT_SUPPORTED (for a
/// function that is told of mappings, while another call uses it), EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_growable_shrink_to(ptr: *mut c_void, bytes: usize) -> Status {
    answer(|| find(ptr as u64)?.resize(|growable| growable.shrink_to(bytes as u64)))
}

/// Moves the end forward over all that is left of the device, and within the limit, except
/// `margin_bytes`, which is what everything else may ask for in all beside what is in use now: once
/// weights are loaded and graphs are captured. Gives back what is unused first, and waits until the
/// device is idle. Writes how many bytes it has then to `bytes`, if that is not null.
///
/// Statuses: UNKNOWN_POINTER, CAPTURING, and as for `drystone_growable_grow_to`. Any thread.
///
/// # Safety
/// `bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_growable_commit_rest(
    ptr: *mut c_void,
    margin_bytes: usize,
    bytes: *mut usize,
) -> Status {
    let mut has_bytes = 0;
    let status = answer(|| {
        let entry = find(ptr as u64)?;
        let committed =
            entry.resize(|growable| growable.commit_rest(margin_bytes as u64).map(drop));
        has_bytes = entry.bytes.load(Ordering::Relaxed);
        committed
    });
    // SAFETY: by the caller's word.
    unsafe { put(bytes, has_bytes as usize) };
    status
}

/// Notes that such memory is also used on another stream: what it gives up, also at its end, is not
/// used again before that stream has passed the point it has reached by then.
///
/// Statuses: UNKNOWN_POINTER, ALREADY_FREE (somebody has deallocated it), UNKNOWN_STREAM, EXITING,
/// FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_growable_record_use(
    ptr: *mut c_void,
    stream: *mut CUstream_st,
) -> Status {
    answer(|| {
        let entry = find(ptr as u64)?;
        let growable = entry.lock()?;
        let id = registry::get(entry.device)?.stream(stream as u64)?;
        Ok(growable.record_stream(id)?)
    })
}

/// Writes how many bytes such memory has to `bytes`, and of how many it has addresses to
/// `room_bytes`, each unless null. Waits for no call that is moving its end.
///
/// Statuses: UNKNOWN_POINTER, EXITING, FORKED. Any thread.
///
/// # Safety
/// Each is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_growable_size(
    ptr: *mut c_void,
    bytes: *mut usize,
    room_bytes: *mut usize,
) -> Status {
    let mut sizes = (0, 0);
    let status = answer(|| {
        let entry = find(ptr as u64)?;
        sizes = (entry.bytes.load(Ordering::Relaxed), entry.room_bytes);
        Ok(())
    });
    // SAFETY: by the caller's word.
    unsafe { put(bytes, sizes.0 as usize) };
    // SAFETY: as above.
    unsafe { put(room_bytes, sizes.1 as usize) };
    status
}

/// Frees such memory and its addresses, in the order of its stream and of those that used it. Null
/// is ignored.
///
/// Statuses: UNKNOWN_POINTER, FORKED; nothing has changed then. Once the process exits it does
/// nothing and succeeds. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_growable_free(ptr: *mut c_void) -> Status {
    answer(|| {
        if ptr.is_null() || !process::takes_frees()? {
            return Ok(());
        }
        let address = ptr as u64;
        // Dropped with the table open: it calls the driver, and another call may hold it.
        let ended = GROWABLES.lock().remove(address);
        ended.map(drop).ok_or_else(|| FreeError::Unknown { address }.into())
    })
}
