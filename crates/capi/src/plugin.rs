//! The functions of `torch.cuda.memory.CUDAPluggableAllocator`, with exactly its signatures.
//!
//! None of them can return an error: they keep it as the thread's last error, and those that
//! PyTorch cannot notice print a line.

use std::ffi::{c_double, c_int, c_void};
use std::ptr;

use drystone::{Options, PoolId};

use crate::barrier::{answer, barrier};
use crate::device::Device;
use crate::filter::{StdFunction, filter as copy_of};
use crate::out::put;
use crate::report::report;
use crate::status::{Failure, Status};
use crate::streams::CUstream_st;
use crate::{control, free, last_error, memory, process, registry};

/// Allocates on a stream (PyTorch's `alloc_fn`).
///
/// `size` in bytes; `device` counts from 0; `stream` is a `cudaStream_t` or `CUstream` of that
/// device. Returns an address that is a multiple of 512, or null: for size 0, which is no error,
/// and on failure, which `drystone_last_error` tells. Any thread; the current device does not
/// matter.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn drystone_malloc(
    size: isize,
    device: c_int,
    stream: *mut CUstream_st,
) -> *mut c_void {
    let Some(known) = registry::find(device) else { return first(size, device, stream) };
    // What a filter throws is for the caller: nothing here catches it.
    let pool = taker(known, stream);
    barrier(ptr::null_mut(), || given(allocate(|| Ok(known), pool, size, stream)))
}

/// The first request of a device, which is opened: no pool took requests there as it was made.
#[cold]
fn first(size: isize, device: c_int, stream: *mut CUstream_st) -> *mut c_void {
    barrier(ptr::null_mut(), || {
        given(allocate(|| registry::get(device), PoolId::DEFAULT, size, stream))
    })
}

/// The pool that serves the request.
#[inline]
fn taker(device: &Device, stream: *mut CUstream_st) -> PoolId {
    match device.pools.any_takes_requests() && process::check().is_ok() {
        true => device.pools.for_stream(stream as u64),
        false => PoolId::DEFAULT,
    }
}

#[inline]
fn allocate(
    device: impl FnOnce() -> Result<&'static Device, Failure>,
    pool: PoolId,
    size: isize,
    stream: *mut CUstream_st,
) -> Result<u64, Failure> {
    process::check()?;
    match size {
        1.. => device()?.allocate_from(pool, stream as u64, size as u64),
        0 => Ok(0),
        _ => Err(negative(size)),
    }
}

#[cold]
fn negative(size: isize) -> Failure {
    Failure::new(Status::InvalidSize, format!("a size of {size} bytes"))
}

#[inline]
fn given(allocated: Result<u64, Failure>) -> *mut c_void {
    match allocated {
        Ok(address) => address as usize as *mut c_void,
        Err(failure) => {
            not_allocated(&failure);
            ptr::null_mut()
        }
    }
}

/// PyTorch does not look for null: only what is no lack of memory is said aloud, since some callers
/// try again without it.
#[cold]
fn not_allocated(failure: &Failure) {
    match failure.status {
        Status::OutOfMemory | Status::Exiting | Status::Forked => last_error::set(failure),
        _ => report("drystone_malloc", failure),
    }
}

/// Frees a block in the order of the stream it was allocated on (PyTorch's `free_fn`).
///
/// `size` and `device` are those of its allocation; `stream` is ignored. Null is ignored. A
/// pointer, size or device that is wrong changes nothing, is the thread's last error, and is said
/// in one line on standard error, a few times. Any thread, also while the process exits.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_free(
    ptr: *mut c_void,
    size: isize,
    device: c_int,
    stream: *mut CUstream_st,
) {
    let _ = stream;
    barrier((), || {
        if ptr.is_null() {
            return;
        }
        match process::takes_frees() {
            Ok(true) => {
                // A negative size becomes one that no block has.
                if let Err(failure) = free::sized(ptr as u64, size as u64, device) {
                    report("drystone_free", &failure);
                }
            }
            Ok(false) => {}
            Err(failure) => last_error::set(&failure),
        }
    });
}

/// Notes that a block is also used on another stream (PyTorch's `record_stream_fn`): once freed, it
/// is not used again before that stream has passed the point it has reached by then.
///
/// Null and pointers that are not this library's are ignored, as PyTorch passes both.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_record_stream(ptr: *mut c_void, stream: *mut CUstream_st) {
    barrier((), || {
        if ptr.is_null() {
            return;
        }
        match memory::record_use(ptr as u64, stream as u64) {
            Ok(()) => {}
            Err(failure) => match failure.status {
                Status::UnknownPointer | Status::Exiting | Status::Forked => {
                    last_error::set(&failure);
                }
                _ => report("drystone_record_stream", &failure),
            },
        }
    });
}

/// Prepares for use (PyTorch's `init_fn`). Calls no driver and opens no device: that happens at
/// each device's first allocation. Says early what is wrong with `DRYSTONE_CONF`.
///
/// It says, too, that streams live as long as the process, as PyTorch's own do: memory goes between
/// them sooner than without it. A program that destroys a stream calls `drystone_retire_stream`
/// before that, or does not call this.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_init(device_count: c_int) {
    let _ = device_count;
    process::streams::all_stay();
    barrier((), || {
        if let Err(error) = Options::from_env() {
            report("drystone_init", &error.into());
        }
    });
}

/// Gives unused memory of every device back (PyTorch's `reset_fn`, which `empty_cache` calls).
/// Waits until the devices are idle. While a stream is being captured nothing is given back, and
/// the last error says so.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_reset() {
    answer(|| control::trim(registry::ALL).map(|_| ()));
}

/// Limits the memory held to a fraction of the device's, from 0 to 1 (PyTorch's
/// `memory_fraction_fn`). What is held above it stays until it is freed and given back.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_set_memory_fraction(fraction: c_double, device: c_int) {
    barrier((), || {
        if let Err(failure) = control::set_fraction(fraction, device) {
            report("drystone_set_memory_fraction", &failure);
        }
    });
}

/// The contiguous memory that a pointer lies in (PyTorch's `base_alloc_fn`): its first address, and
/// through `size`, if that is not null, its bytes. The pointer may lie inside a block. Null and 0
/// bytes if it is none of this library's.
///
/// # Safety
/// `size` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_base_allocation(
    ptr: *mut c_void,
    size: *mut usize,
) -> *mut c_void {
    let found = barrier(None, || match control::base_of(ptr as u64) {
        Ok(found) => Some(found),
        Err(failure) => {
            last_error::set(&failure);
            None
        }
    });
    let (address, bytes) = found.unwrap_or((0, 0));
    // SAFETY: by the caller's word.
    unsafe { put(size, bytes as usize) };
    address as usize as *mut c_void
}

/// From now on a private pool, named by two numbers, takes requests (PyTorch's
/// `begin_allocate_to_pool`). It is made if it is not there, and has one use more.
///
/// `filter` points to a `std::function<bool(cudaStream_t)>` of libstdc++ that says which streams'
/// requests it takes; null stands for all streams of the device. It is copied, and the copy called
/// at each request until `drystone_end_allocate_to_pool`, from any thread, by several at once. It
/// must not call this library. What it throws comes out of `drystone_malloc` and
/// `drystone_torch_malloc`; in any other function it ends the process with a line.
///
/// # Safety
/// `filter` is null or points to such a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_begin_allocate_to_pool(
    device: c_int,
    id0: u64,
    id1: u64,
    filter: *mut c_void,
) {
    barrier((), || {
        let begin = || {
            process::check()?;
            let device = registry::get(device)?;
            let function = filter.cast_const().cast::<StdFunction>();
            if !function.is_aligned() {
                let message = format!("filter is {function:p}, which no std::function is at");
                return Err(Failure::new(Status::InvalidValue, message));
            }
            // SAFETY: by the caller's word.
            let filter = unsafe { copy_of(function) };
            device.pools.begin(&device.allocator, (id0, id1), filter)
        };
        if let Err(failure) = begin() {
            report("drystone_begin_allocate_to_pool", &failure);
        }
    });
}

/// The pool takes no requests any more (PyTorch's `end_allocate_to_pool_fn`). What was allocated
/// from it stays, and its memory serves nobody else until it is released.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_end_allocate_to_pool(device: c_int, id0: u64, id1: u64) {
    barrier((), || {
        let end = || {
            process::check()?;
            let device = registry::get(device)?;
            device.pools.end(&device.allocator, (id0, id1))
        };
        if let Err(failure) = end() {
            report("drystone_end_allocate_to_pool", &failure);
        }
    });
}

/// Gives up a use of a pool (PyTorch's `release_pool`). After the last one its unused memory goes
/// back to the device with the next trim; its live blocks stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_release_pool(device: c_int, id0: u64, id1: u64) {
    barrier((), || match control::release_pool(device, id0, id1) {
        Ok(()) => {}
        // At exit there is nothing left to release.
        Err(failure) if failure.status == Status::Exiting => last_error::set(&failure),
        Err(failure) => report("drystone_release_pool", &failure),
    });
}
