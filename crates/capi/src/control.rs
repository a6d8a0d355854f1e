//! Options, limits, trimming, peers and pools.

use std::ffi::{CStr, c_char, c_double, c_int};
use std::time::Duration;

use drystone::driver::sizes::Thousandths;
use drystone::{Allocator, FreeError, TrimError};

use crate::barrier::answer;
use crate::out::{not_null, put};
use crate::snapshot::backed_runs;
use crate::status::{Failure, Status};
use crate::{free, process, registry};

/// Settles the options of a device before its first use, or with device -1 of every device that is
/// given none of its own. `options` is text as in the environment variable `DRYSTONE_CONF`, which
/// it replaces: `key:value,...`; null takes the environment's again.
///
/// Statuses: BAD_OPTION (the message says what is valid), ALREADY_IN_USE, INVALID_DEVICE, EXITING,
/// FORKED. Calls no driver. Any thread.
///
/// # Safety
/// `options` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_configure(device: c_int, options: *const c_char) -> Status {
    answer(|| {
        process::check()?;
        if options.is_null() {
            return registry::configure(device, None);
        }
        // SAFETY: not null, and a C string by the caller's word.
        let text = unsafe { CStr::from_ptr(options) };
        registry::configure(device, Some(text.to_string_lossy().parse()?))
    })
}

/// Gives the unused memory of a device back, or with device -1 of all, and writes how many bytes
/// that was to `given_back`, if that is not null. Waits until the device is idle. Memory of private
/// pools goes back once they are released. A device that is not in use has nothing to give back.
///
/// Statuses: INVALID_DEVICE, CAPTURING, DRIVER_ERROR, EXITING, FORKED; what was given back before a
/// failure stays so. Any thread.
///
/// # Safety
/// `given_back` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_trim(device: c_int, given_back: *mut usize) -> Status {
    let mut bytes = 0;
    let status = answer(|| {
        bytes = trim(device)?;
        Ok(())
    });
    // SAFETY: by the caller's word.
    unsafe { put(given_back, bytes as usize) };
    status
}

/// Gives the unused memory of a device's released pools back, or with device -1 of all devices,
/// and leaves what the default pool has cached. Waits until the device is idle.
///
/// Statuses: as `drystone_trim`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_trim_released(device: c_int) -> Status {
    answer(|| trim_by(device, Allocator::trim_released).map(drop))
}

/// Whether live memory of a device moves together by itself where a request would be refused, and
/// when memory is given back. If not, the message says why.
///
/// Statuses: NOT_SUPPORTED (it does not), INVALID_DEVICE, DRIVER_ERROR, EXITING, FORKED. Any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_check_moves(device: c_int) -> Status {
    answer(|| {
        process::check()?;
        match registry::get(device)?.allocator.stays() {
            None => Ok(()),
            Some(stays) => {
                let message = format!("live memory does not move by itself: {}", stays.why());
                Err(Failure::new(Status::NotSupported, message))
            }
        }
    })
}

/// Moves what is live on a device together, for about so many milliseconds at most, so that whole
/// handles are left over; writes how many bytes were copied to `moved_bytes`, if that is not null.
/// Waits until the device is idle. What was emptied serves the next requests, or goes back with the
/// next `drystone_trim`, which moves by itself where all streams are known.
///
/// The caller answers for it that no stream uses the memory meanwhile but those that were brought
/// by requests and uses, or that `drystone_stream_created` told of.
///
/// Statuses: INVALID_DEVICE, CAPTURING, DRIVER_ERROR, EXITING, FORKED. Any thread.
///
/// # Safety
/// `moved_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_compact(
    device: c_int,
    milliseconds: u32,
    moved_bytes: *mut usize,
) -> Status {
    let mut bytes = 0;
    let status = answer(|| {
        process::check()?;
        let budget = Duration::from_millis(milliseconds.into());
        bytes = registry::get(device)?.allocator.compact(budget)?.moved_bytes;
        Ok(())
    });
    // SAFETY: by the caller's word.
    unsafe { put(moved_bytes, bytes as usize) };
    status
}

/// Writes how many bytes can be had of a device to `bytes`: free on it, unused here, and unused at
/// other processes of the same user that run Drystone, which give it back for a request that is
/// refused. They are asked, which takes milliseconds at most; somebody else may be faster.
///
/// Statuses: INVALID_VALUE (`bytes` is null), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR,
/// EXITING, FORKED. Any thread.
///
/// # Safety
/// `bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_available(device: c_int, bytes: *mut usize) -> Status {
    let mut available_bytes = 0;
    let status = answer(|| {
        not_null(bytes, "bytes")?;
        process::check()?;
        available_bytes = registry::get(device)?.allocator.available()?;
        Ok(())
    });
    // SAFETY: by the caller's word.
    unsafe { put(bytes, available_bytes as usize) };
    status
}

/// Gives unused memory back, and says how many bytes.
pub(crate) fn trim(ordinal: c_int) -> Result<u64, Failure> {
    trim_by(ordinal, Allocator::trim)
}

fn trim_by(ordinal: c_int, trim: fn(&Allocator) -> Result<u64, TrimError>) -> Result<u64, Failure> {
    process::check()?;
    if ordinal != registry::ALL {
        registry::check(ordinal)?;
    }
    let mut bytes = 0;
    let mut failed = None;
    for device in registry::in_use() {
        if ordinal == registry::ALL || u32::try_from(ordinal) == Ok(device.ordinal) {
            match trim(&device.allocator) {
                Ok(given_back) => bytes += given_back,
                // The others' memory is given back all the same.
                Err(error) => failed = Some(error),
            }
        }
    }
    failed.map_or(Ok(bytes), |error| Err(error.into()))
}

/// Limits the memory that is held on a device, in bytes. What is held above it stays until it is
/// freed and given back.
///
/// Statuses: INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_set_limit(device: c_int, bytes: usize) -> Status {
    answer(|| {
        process::check()?;
        registry::get(device)?.allocator.set_limit(bytes as u64);
        Ok(())
    })
}

pub(crate) fn set_fraction(fraction: c_double, ordinal: c_int) -> Result<(), Failure> {
    process::check()?;
    if !(0.0..=1.0).contains(&fraction) {
        let message = format!("a fraction of {}; it is from 0 to 1", Thousandths(fraction));
        return Err(Failure::new(Status::InvalidValue, message));
    }
    let device = registry::get(ordinal)?;
    let total = device.driver.info().total_bytes;
    device.allocator.set_limit((total as f64 * fraction) as u64);
    Ok(())
}

/// Lets another device use all of this one's memory, whether it is held now or later; asking again
/// is harmless.
///
/// Statuses: INVALID_DEVICE (either), INVALID_VALUE (a device and itself), NOT_SUPPORTED (the two
/// are not connected), DRIVER_ERROR, EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_enable_peer_access(device: c_int, peer: c_int) -> Status {
    answer(|| {
        process::check()?;
        let device = registry::get(device)?;
        registry::check(peer)?;
        let peer = peer.cast_unsigned();
        if peer == device.ordinal {
            let message = format!("device {peer} is its own peer");
            return Err(Failure::new(Status::InvalidValue, message));
        }
        Ok(device.allocator.enable_peer_access(peer)?)
    })
}

/// Takes a use of a private pool, named by two numbers; it is made if it is not there. Its memory
/// serves `drystone_allocate_from_pool` with its name, and nobody else.
///
/// Statuses: INVALID_VALUE (0, 0 is the default pool), INVALID_DEVICE, BAD_OPTION, NO_DRIVER,
/// EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_pool_create(device: c_int, id0: u64, id1: u64) -> Status {
    answer(|| {
        process::check()?;
        let device = registry::get(device)?;
        device.pools.acquire(&device.allocator, (id0, id1))
    })
}

/// Gives up a use of a private pool. After the last one its unused memory goes back to the device
/// with the next trim; its live blocks stay valid, and are freed like any other.
///
/// Statuses: UNKNOWN_POOL, INVALID_DEVICE, EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_pool_destroy(device: c_int, id0: u64, id1: u64) -> Status {
    answer(|| release_pool(device, id0, id1))
}

pub(crate) fn release_pool(ordinal: c_int, id0: u64, id1: u64) -> Result<(), Failure> {
    process::check()?;
    let device = registry::get(ordinal)?;
    device.pools.release(&device.allocator, (id0, id1))
}

/// Says whether graphs that are captured in a private pool never run at the same time, and in the
/// order of their captures, as PyTorch wants it of graphs that share one. It is so unless said
/// otherwise: memory that one capture freed serves the next, whatever stream that captures. With 0
/// what a stream freed stays that stream's.
///
/// Statuses: UNKNOWN_POOL, INVALID_DEVICE, EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_set_pool_exclusive(
    device: c_int,
    id0: u64,
    id1: u64,
    is_exclusive: c_int,
) -> Status {
    answer(|| {
        process::check()?;
        let device = registry::get(device)?;
        let pool = device.pools.find((id0, id1))?;
        Ok(device.allocator.set_pool_exclusive(pool, is_exclusive != 0)?)
    })
}

/// Says that a capture may begin whose requests a private pool serves. Until the first request for
/// the pool, which tells whether one has begun, nothing is given back and the device not waited
/// for. A capture that is not announced is known from the first request that its stream makes.
///
/// Statuses: UNKNOWN_POOL, NOT_SUPPORTED (within a function that `drystone_on_remap` names),
/// INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_expect_capture(device: c_int, id0: u64, id1: u64) -> Status {
    answer(|| {
        process::check()?;
        let device = registry::get(device)?;
        Ok(device.allocator.expect_capture(device.pools.find((id0, id1))?)?)
    })
}

/// Says that every capture is over whose requests a pool served; 0, 0 is the default pool. Without
/// it a capture counts as over once its stream makes another request, or is retired: until then
/// nothing is given back. Streams that use memory which was freed in the capture live until then.
///
/// Statuses: UNKNOWN_POOL, INVALID_DEVICE, EXITING, FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_end_captures(device: c_int, id0: u64, id1: u64) -> Status {
    answer(|| {
        process::check()?;
        let device = registry::get(device)?;
        device.allocator.end_captures(device.pools.find((id0, id1))?);
        Ok(())
    })
}

/// The largest free block of a device, in bytes, of any pool and stream.
///
/// Statuses: INVALID_VALUE (`bytes` is null), INVALID_DEVICE, NO_DRIVER, EXITING, FORKED. Any
/// thread.
///
/// # Safety
/// `bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_largest_free(device: c_int, bytes: *mut usize) -> Status {
    answer(|| {
        not_null(bytes, "bytes")?;
        process::check()?;
        let largest = registry::get(device)?.allocator.largest_free_bytes();
        // SAFETY: by the caller's word.
        unsafe { put(bytes, largest as usize) };
        Ok(())
    })
}

/// Finds out whether the device was reset, and proves every invariant of its heap. Slow: for tests,
/// for hunting a defect, and after `cudaDeviceReset`.
///
/// Statuses: DEVICE_RESET, INTERNAL (the message names the invariant), INVALID_DEVICE, EXITING,
/// FORKED. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_check(device: c_int) -> Status {
    answer(|| {
        process::check()?;
        let device = registry::get(device)?;
        device.allocator.check_context()?;
        let checked = device.allocator.check();
        checked.map_err(|broken| Failure::new(Status::Internal, broken.to_string()))
    })
}

/// The contiguous memory around an address: where it starts, and its bytes.
pub(crate) fn base_of(address: u64) -> Result<(u64, u64), Failure> {
    process::check()?;
    let holds = |start: u64, bytes: u64| (start..start + bytes).contains(&address);
    // Others' memory is not looked through.
    let segments = free::owner(address)?.allocator.snapshot();
    let segment = segments.iter().find(|segment| holds(segment.address, segment.bytes));
    let mut runs =
        segment.into_iter().flat_map(backed_runs).map(|(start, bytes, _)| (start, bytes));
    let found = runs.find(|&(start, bytes)| holds(start, bytes));
    found.ok_or_else(|| FreeError::Unknown { address }.into())
}
