//! Memory for other processes, by a file descriptor for each handle; and theirs.
//!
//! Invariant: every import that was not closed is in the table, by its address.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use drystone::Imported;
use drystone::driver::Descriptor;
use drystone_process::by_address::ByAddress;
use parking_lot::Mutex;

use crate::barrier::answer;
use crate::out::{not_null, put};
use crate::status::{Failure, Status};
use crate::{free, process, registry};

/// A handle of physical memory, as it goes from process to process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CSharedHandle {
    /// Its size.
    pub bytes: u64,
    /// A file descriptor that leads to it.
    pub descriptor: c_int,
}

static IMPORTED: Mutex<ByAddress<Imported>> = Mutex::new(ByAddress::EMPTY);

/// Writes by which handles another process can import the memory of a live block, and where in the
/// memory of all of them the block begins. The count is of what there is room for, and becomes that
/// of what there is.
///
/// The block must stay live for as long as others use it. The descriptors are this library's and
/// stay open, the same for each block that has memory of a handle, until the memory goes back to
/// the device: send them over a socket, or their numbers, for `pidfd_getfd`. The first and the last
/// handle may hold memory of other blocks, too.
///
/// Statuses: BUFFER_TOO_SMALL (nothing is written but the count), INVALID_VALUE (the count or
/// `offset` is null, or the array, and there is room), NOT_SUPPORTED (plain memory, which
/// `cudaIpcGetMemHandle` shares; backend `async`; a device that cannot share), UNKNOWN_POINTER,
/// INTERIOR_POINTER, ALREADY_FREE, CAPTURING, DRIVER_ERROR, EXITING, FORKED. Any thread.
///
/// # Safety
/// The count is null or readable and writable, the array has room for as many, `offset` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_export(
    ptr: *mut c_void,
    handles: *mut CSharedHandle,
    handle_count: *mut usize,
    offset: *mut usize,
) -> Status {
    answer(|| {
        not_null(handle_count, "handle_count")?;
        not_null(offset, "offset")?;
        // SAFETY: not null, and readable by the caller's word.
        let room = unsafe { handle_count.read_unaligned() };
        if room > 0 {
            not_null(handles, "handles")?;
        }
        process::check()?;
        let exported = free::owner(ptr as u64)?.allocator.export(ptr as u64)?;
        let found = exported.handles.len();
        // SAFETY: writable by the caller's word.
        unsafe { put(handle_count, found) };
        if room < found {
            let message = format!("room for {room} handles; there are {found}");
            return Err(Failure::new(Status::BufferTooSmall, message));
        }
        for (at, handle) in exported.handles.iter().enumerate() {
            let descriptor = handle.descriptor.as_raw_fd();
            // SAFETY: there is room by the caller's word.
            let to = unsafe { handles.add(at) };
            // SAFETY: as above.
            unsafe { put(to, CSharedHandle { bytes: handle.bytes, descriptor }) };
        }
        // SAFETY: writable by the caller's word.
        unsafe { put(offset, exported.offset_bytes as usize) };
        Ok(())
    })
}

/// Maps memory of another process on a device, beside each other in the order of the handles, and
/// writes its address to `out`. The descriptors stay the caller's, and may be closed at once. No
/// statistics count the memory but those of the process that made it.
///
/// On failure `out` is set to null. Statuses: INVALID_VALUE (a pointer is null; a descriptor leads
/// to no memory of the device, or to some of another size), NOT_SUPPORTED, OUT_OF_MEMORY,
/// CAPTURING, INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED. Any thread.
///
/// # Safety
/// The array has as many readable handles as are counted, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_import(
    device: c_int,
    handles: *const CSharedHandle,
    handle_count: usize,
    out: *mut *mut c_void,
) -> Status {
    let mut address = 0;
    let status = answer(|| {
        not_null(out, "out")?;
        not_null(handles, "handles")?;
        process::check()?;
        let mut given = Vec::new();
        for at in 0..handle_count {
            // SAFETY: there are as many by the caller's word.
            let from = unsafe { handles.add(at) };
            // SAFETY: readable by the caller's word.
            let handle = unsafe { from.read_unaligned() };
            given.push((copy_of(handle.descriptor)?, handle.bytes));
        }
        let handles: Vec<_> = given.iter().map(|(one, bytes)| (one, *bytes)).collect();
        let imported = registry::get(device)?.allocator.import(&handles)?;
        address = imported.address();
        IMPORTED.lock().insert(address, imported);
        Ok(())
    });
    // SAFETY: by the caller's word.
    unsafe { put(out, address as usize as *mut c_void) };
    status
}

/// A descriptor of the program's, to hold for the length of a call.
fn copy_of(number: c_int) -> Result<Descriptor, Failure> {
    if number < 0 {
        return Err(Failure::new(Status::InvalidValue, format!("{number} is no descriptor")));
    }
    // SAFETY: it is only duplicated, and refused if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed.try_clone_to_owned().map_err(|error| {
        let message = format!("{number} is no descriptor that can be held: {error}");
        Failure::new(Status::InvalidValue, message)
    })
}

/// Gives up memory that was imported at an address. Waits until the device is idle; during a
/// capture the addresses go with the next that is closed, or the next trim.
///
/// Statuses: UNKNOWN_POINTER (nothing is imported there), EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_close_import(ptr: *mut c_void) -> Status {
    answer(|| {
        process::check()?;
        let address = ptr as u64;
        // Closed without the lock.
        let imported = IMPORTED.lock().remove(address);
        match imported {
            Some(imported) => drop(imported),
            None => return Err(drystone::ShareError::NotImported { address }.into()),
        }
        Ok(())
    })
}
