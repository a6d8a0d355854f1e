//! Serving requests and frees in the place of the runtime.
//!
//! Invariant: a block is ordered after the stream it is freed on, whichever that is.

use std::ffi::c_void;
use std::ptr;

use drystone::driver::{CaptureStatus, Stream};
use drystone_cuda::{ProcessState, process_state};

use super::pools;
use super::runtime::{self, Code, Handle, MEMORY_ALLOCATION, SUCCESS, StreamHandle, is_active};
use crate::barrier::barrier;
use crate::device::{Device, is_default};
use crate::out::put;
use crate::report::report;
use crate::status::Status;
use crate::{free, last_error, process, registry};

/// Who answers a request.
enum Outcome {
    Block(u64),
    OutOfMemory,
    Runtime,
}

/// Allocates where a request is one for a pool that is stood in for; `None` is the current pool of
/// the stream's device.
fn allocate(bytes: usize, pool: Option<Handle>, stream: StreamHandle) -> Outcome {
    let allocated = (|| {
        process::check().ok()?;
        let ordinal = runtime::device_of(stream)?;
        let pool = pool.or_else(|| runtime::current_pool(ordinal))?;
        if !pools::is_stood_in(pool, ordinal) {
            return None;
        }
        let device = match registry::get(ordinal) {
            Ok(device) => device,
            Err(failure) => {
                report("preload", &failure);
                return None;
            }
        };
        is_running(device, stream).then(|| device.allocate(stream as u64, bytes as u64))
    })();
    match allocated {
        Some(Ok(address)) => Outcome::Block(address),
        Some(Err(failure)) if failure.status == Status::OutOfMemory => {
            // The figures are there for who asks.
            last_error::set(&failure);
            Outcome::OutOfMemory
        }
        Some(Err(_)) | None => Outcome::Runtime,
    }
}

/// Whether work on a stream runs, and is not captured.
fn is_running(device: &Device, stream: StreamHandle) -> bool {
    let stream = stream as u64;
    is_default(stream) || device.driver.capture_status(Stream(stream)) == Ok(CaptureStatus::None)
}

/// Serves a request, or passes it on.
///
/// # Safety
/// `to` is null or writable.
#[inline]
pub(super) unsafe fn serve(
    to: *mut *mut c_void,
    bytes: usize,
    pool: Option<Handle>,
    stream: StreamHandle,
    runtimes: impl Fn() -> Code,
) -> Code {
    let is_ours = is_active() && bytes > 0 && !to.is_null();
    let ask = || allocate(bytes, pool, stream);
    match if is_ours { barrier(Outcome::Runtime, ask) } else { Outcome::Runtime } {
        Outcome::Block(address) => {
            // SAFETY: by the caller's word.
            unsafe { put(to, address as usize as *mut c_void) };
            SUCCESS
        }
        Outcome::OutOfMemory => {
            let mut none = ptr::null_mut();
            // The thread's last error is the runtime's, so it must fail, too: at what never fits.
            // SAFETY: there is room for an address.
            unsafe { runtime::cudaMallocAsync(&raw mut none, 1 << 60, stream) };
            MEMORY_ALLOCATION
        }
        Outcome::Runtime => with_room(runtimes),
    }
}

/// Asks the runtime, once more if it had no memory and we hold some unused, as it would take that
/// from its own pools.
pub(super) fn with_room(ask: impl Fn() -> Code) -> Code {
    let code = ask();
    if code != MEMORY_ALLOCATION || !is_active() || barrier(0, give_back) == 0 {
        return code;
    }
    let again = ask();
    if again == SUCCESS {
        // SAFETY: takes the first attempt's error from the thread.
        unsafe { runtime::cudaGetLastError() };
    }
    again
}

/// Gives unused memory back; how many bytes.
fn give_back() -> u64 {
    if process::check().is_err() {
        return 0;
    }
    registry::in_use().map(|device| device.allocator.trim().unwrap_or(0)).sum()
}

/// The device of a block of ours.
fn owner(address: *mut c_void) -> Option<&'static Device> {
    let may_be_ours = is_active() && !address.is_null();
    if !may_be_ours || process_state() == ProcessState::Forked {
        return None;
    }
    free::owner(address as u64).ok()
}

/// Frees a block of ours in the order of a stream; whether it did.
pub(super) fn free_in_order(address: *mut c_void, stream: StreamHandle) -> bool {
    let freed = || {
        let device = owner(address)?;
        if process_state() == ProcessState::Exiting {
            return Some(());
        }
        if runtime::device_of(stream)? != device.ordinal.cast_signed() {
            // SAFETY: the program passed the stream.
            let code = unsafe { runtime::cudaStreamSynchronize(stream) };
            return (code == SUCCESS).then(|| device.allocator.free(address as u64).ok())?;
        }
        if !is_running(device, stream) {
            return None;
        }
        let stream = device.stream(stream as u64).ok()?;
        device.allocator.record_stream(address as u64, stream).ok()?;
        device.allocator.free(address as u64).ok()
    };
    barrier(false, || freed().is_some())
}

/// Frees a block of ours once its device is idle; whether it did.
pub(super) fn free_when_idle(address: *mut c_void) -> bool {
    let freed = || {
        let device = owner(address)?;
        if process_state() == ProcessState::Exiting {
            return Some(());
        }
        device.driver.synchronize_device().ok()?;
        device.allocator.free(address as u64).ok()
    };
    barrier(false, || freed().is_some())
}
