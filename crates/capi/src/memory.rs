//! Allocating and freeing, for C programs: every function returns a status.

use std::ffi::{c_int, c_void};

use drystone::FreeError;

use crate::barrier::answer;
use crate::out::{not_null, put};
use crate::status::{Failure, Status};
use crate::streams::CUstream_st;
use crate::{free, process, registry};

/// Allocates `size` bytes on a stream of a device and writes the address to `out`: a multiple of
/// 512, or null for size 0, which is no error. `stream` is a `cudaStream_t` or `CUstream`; null and
/// `cudaStreamLegacy` are the legacy default stream, `cudaStreamPerThread` the calling thread's
/// own.
///
/// The block may be used on that stream at once, and on others once they are ordered behind it. On
/// failure `out` is set to null. Statuses: INVALID_VALUE (`out` is null), INVALID_SIZE,
/// INVALID_DEVICE, OUT_OF_MEMORY, UNKNOWN_STREAM, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING,
/// FORKED. Any thread; the current device does not matter.
///
/// # Safety
/// `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_allocate(
    out: *mut *mut c_void,
    size: usize,
    device: c_int,
    stream: *mut CUstream_st,
) -> Status {
    // SAFETY: by the caller's word.
    unsafe { drystone_allocate_from_pool(out, size, device, stream, 0, 0) }
}

/// The same from a private pool, named by two numbers; 0, 0 is the default pool, or the private one
/// that takes the stream's requests at the moment. Statuses as for `drystone_allocate`, and
/// UNKNOWN_POOL.
///
/// # Safety
/// `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_allocate_from_pool(
    out: *mut *mut c_void,
    size: usize,
    device: c_int,
    stream: *mut CUstream_st,
    id0: u64,
    id1: u64,
) -> Status {
    let mut address = 0;
    let status = answer(|| {
        not_null(out, "out")?;
        process::check()?;
        let device = registry::get(device)?;
        let pool = (id0, id1);
        address = match pool {
            _ if size == 0 => 0,
            (0, 0) => device.allocate(stream as u64, size as u64)?,
            _ => device.allocate_from(device.pools.find(pool)?, stream as u64, size as u64)?,
        };
        Ok(())
    });
    // SAFETY: by the caller's word.
    unsafe { put(out, address as usize as *mut c_void) };
    status
}

/// Allocates free memory of a private pool at `ptr`, as a block of `block_bytes` bytes that was
/// there when `drystone_layout` told so: for putting a pool's blocks back as they were. It is not
/// ordered behind what other streams have queued there, and no driver call is made.
///
/// Statuses: INVALID_VALUE (the memory is not all free, or no such block can be there; nothing has
/// changed), INVALID_SIZE, INVALID_DEVICE, UNKNOWN_STREAM, UNKNOWN_POOL, EXITING, FORKED. Any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_allocate_at(
    ptr: *mut c_void,
    block_bytes: usize,
    size: usize,
    device: c_int,
    stream: *mut CUstream_st,
    id0: u64,
    id1: u64,
) -> Status {
    answer(|| {
        process::check()?;
        let device = registry::get(device)?;
        let (start, bytes) = (ptr as u64, block_bytes as u64);
        let pool = device.pools.find((id0, id1))?;
        let place = start..start.saturating_add(bytes);
        let id = device.stream(stream as u64)?;
        match device.allocator.allocate_at(pool, id, size as u64, place)? {
            Some(_) => Ok(()),
            None => {
                let message = format!(
                    "no block of {bytes} bytes can be put at {start:#x}: the memory is not all \
                     free memory of pool {id0}, {id1}"
                );
                Err(Failure::new(Status::InvalidValue, message))
            }
        }
    })
}

/// Frees a block of any device in the order of the stream it was allocated on. Null is ignored.
///
/// Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, FORKED; nothing has changed then.
/// Once the process exits it does nothing and succeeds. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_deallocate(ptr: *mut c_void) -> Status {
    answer(|| match ptr.is_null() || !process::takes_frees()? {
        true => Ok(()),
        false => free::anywhere(ptr as u64),
    })
}

/// The same if size, device and stream are those of the allocation; else nothing changes, and the
/// status says what is wrong: as for `drystone_deallocate`, and WRONG_SIZE, WRONG_DEVICE,
/// WRONG_STREAM. The stream may have been destroyed since. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_deallocate_checked(
    ptr: *mut c_void,
    size: usize,
    device: c_int,
    stream: *mut CUstream_st,
) -> Status {
    answer(|| match ptr.is_null() || !process::takes_frees()? {
        true => Ok(()),
        false => free::checked(ptr as u64, size as u64, device, stream as u64),
    })
}

/// Notes that a block is also used on another stream than its own: once freed, it is not used again
/// before that stream has passed the point it has reached by then. Null is ignored.
///
/// Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, UNKNOWN_STREAM, EXITING, FORKED. Any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_record_use(ptr: *mut c_void, stream: *mut CUstream_st) -> Status {
    answer(|| match ptr.is_null() {
        true => Ok(()),
        false => record_use(ptr as u64, stream as u64),
    })
}

/// Says of a stream, before its first use here, that it is there until `drystone_retire_stream`, or
/// forever: the driver may be asked about it at any time, and memory goes between such streams
/// sooner. Any other stream is asked by those calls alone that are given it.
///
/// Statuses: INVALID_DEVICE, UNKNOWN_STREAM, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED.
/// Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_add_stream(device: c_int, stream: *mut CUstream_st) -> Status {
    answer(|| {
        process::check()?;
        registry::get(device)?.keep_stream(stream as u64).map(drop)
    })
}

/// Says that a stream is about to be destroyed. Blocks allocated on it stay valid and may be freed
/// later; its free memory serves other streams once its work is complete. Without this call that
/// memory serves again only once the device was idle.
///
/// Statuses: INVALID_VALUE (the default stream), INVALID_DEVICE, UNKNOWN_STREAM, EXITING, FORKED.
/// Any thread; a thread ends its own `cudaStreamPerThread` with it.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_retire_stream(device: c_int, stream: *mut CUstream_st) -> Status {
    answer(|| {
        process::check()?;
        registry::get(device)?.retire_stream(stream as u64)
    })
}

/// Notes a use on another stream than the block's own.
#[inline(never)]
pub(crate) fn record_use(address: u64, stream: u64) -> Result<(), Failure> {
    process::check()?;
    let mut devices = registry::in_use();
    let unknown = FreeError::Unknown { address };
    let device = match (devices.next(), devices.next()) {
        (Some(only), None) => only,
        (Some(_), Some(_)) => free::owner(address)?,
        (None, _) => return Err(unknown.into()),
    };
    let id = device.stream(stream)?;
    device.allocator.note_capture(None, id)?;
    Ok(device.allocator.record_stream(address, id)?)
}
