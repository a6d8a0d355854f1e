//! Functions of the driver in whose place ours stand. Until [`install`](super::install) they hand
//! on to the driver, and after it whatever is not ours to serve.
//!
//! They carry the driver's names: a program that is linked with the driver takes these, which come
//! first. One that looks them up when it runs finds them by [`super::shim`].

use std::cell::Cell;
use std::sync::OnceLock;

use drystone::driver::ErrorCode;
use drystone::{AllocateError, PoolId};

use super::real::{Handle, NO_DRIVER, Real, SUCCESS, Status};
use super::served::Served;

pub(super) static SERVED: OnceLock<Served> = OnceLock::new();

thread_local! {
    /// Whether this thread asks by a free of nothing if these functions are reached.
    pub(super) static PROBE: Cell<Probe> = const { Cell::new(Probe::Idle) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    Idle,
    Asked,
    Reached,
}

/// The functions, as [`super::shim`] is to name them.
pub(super) fn table() -> [(&'static str, usize); 8] {
    [
        ("cuMemAllocAsync", cuMemAllocAsync as *const () as usize),
        ("cuMemFreeAsync", cuMemFreeAsync as *const () as usize),
        ("cuMemFree_v2", cuMemFree_v2 as *const () as usize),
        ("cuStreamCreate", cuStreamCreate as *const () as usize),
        ("cuStreamCreateWithPriority", cuStreamCreateWithPriority as *const () as usize),
        ("cuStreamDestroy_v2", cuStreamDestroy_v2 as *const () as usize),
        ("cuStreamBeginCapture_v2", cuStreamBeginCapture_v2 as *const () as usize),
        ("cuStreamEndCapture", cuStreamEndCapture as *const () as usize),
    ]
}

/// Calls a function of the driver.
macro_rules! go_on {
    ($name:ident($($argument:expr),*)) => {
        match Real::load() {
            // SAFETY: the caller's own arguments, as it promised the driver.
            Ok(real) => unsafe { (real.$name)($($argument),*) },
            Err(_) => NO_DRIVER,
        }
    };
}

/// CUDA's number for why there is no memory.
fn number(error: &AllocateError) -> Status {
    match error {
        AllocateError::Driver { error, .. } => match error.code {
            ErrorCode::OutOfMemory => 2,
            ErrorCode::InvalidValue => 1,
            ErrorCode::NotInitialized => 3,
            ErrorCode::Deinitialized => 4,
            ErrorCode::InvalidHandle => 400,
            ErrorCode::ContextLost => 700,
            ErrorCode::CaptureUnsupported => 900,
            ErrorCode::Other(number) => number.cast_unsigned(),
            _ => 999,
        },
        AllocateError::OutOfMemory(_) => 2,
        _ => 1,
    }
}

/// Memory of Drystone's. `None`: the driver's is wanted.
fn allocate(bytes: usize, stream: Handle) -> Option<Result<u64, AllocateError>> {
    let served = SERVED.get().filter(|_| bytes > 0)?;
    // In a capture the driver makes it the graph's.
    if served.is_captured(stream) {
        return None;
    }
    let place = served.place(stream)?;
    let heap = served.heap(place.ordinal)?;
    let granted = heap.allocate_raw(PoolId::DEFAULT, place.stream, bytes as u64);
    Some(granted.map(|granted| granted.address))
}

/// Frees memory of Drystone's. False: it is not.
fn free(address: u64, stream: Handle) -> bool {
    let Some(served) = SERVED.get() else { return false };
    if served.is_captured(stream) {
        // A graph may use it from now on, and nobody knows how long: it stays in use.
        return served.owner(address).is_some();
    }
    if let Some(place) = served.place(stream)
        && let Some(heap) = served.heap(place.ordinal)
        && heap.record_stream(address, place.stream).is_ok()
    {
        return heap.free(address).is_ok();
    }
    let Some(heap) = served.owner(address) else { return false };
    // A stream of another device, say: what it has queued is waited for.
    // SAFETY: the caller's stream is alive, as it promised the driver.
    unsafe { (served.real.synchronize_stream)(stream) };
    heap.free(address).is_ok()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(out: *mut u64, bytes: usize, stream: Handle) -> Status {
    let served = if out.is_null() { None } else { allocate(bytes, stream) };
    match served {
        Some(Ok(address)) => {
            // SAFETY: the caller's place for an address.
            unsafe { out.write(address) };
            SUCCESS
        }
        Some(Err(error)) => number(&error),
        None => go_on!(alloc_async(out, bytes, stream)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> Status {
    if address == 0 && PROBE.get() == Probe::Asked {
        PROBE.set(Probe::Reached);
        return SUCCESS;
    }
    match free(address, stream) {
        true => SUCCESS,
        false => go_on!(free_async(address, stream)),
    }
}

/// Waits, as the driver does, until nobody uses the memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: u64) -> Status {
    if let Some(served) = SERVED.get()
        && let Some(heap) = served.owner(address)
    {
        // SAFETY: takes nothing.
        let status = unsafe { (served.real.synchronize_context)() };
        if status == SUCCESS {
            // A block that was there, freed by nobody else: that would be the program's error.
            let _ = heap.free(address);
        }
        return status;
    }
    go_on!(free(address))
}

/// Notes a stream that was created.
fn created(status: Status, out: *mut Handle) -> Status {
    if let Some(served) = SERVED.get().filter(|_| status == SUCCESS) {
        // SAFETY: the driver has written it.
        served.note_created(unsafe { out.read() });
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(out: *mut Handle, flags: u32) -> Status {
    created(go_on!(create_stream(out, flags)), out)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    out: *mut Handle,
    flags: u32,
    priority: i32,
) -> Status {
    created(go_on!(create_stream_with_priority(out, flags, priority)), out)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Status {
    if let Some(served) = SERVED.get() {
        served.note_destroyed(stream);
    }
    go_on!(destroy_stream(stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> Status {
    // Noted before: from then on whoever allocates asks.
    let served = SERVED.get();
    if let Some(served) = served {
        served.note_begun(stream);
    }
    let begin = || go_on!(begin_capture(stream, mode));
    let heap = served.and_then(|served| served.heap(served.place(stream)?.ordinal));
    // Nobody trims or grows half way; who does so afterwards sees the capture.
    let status = heap.map_or_else(begin, |heap| heap.while_memory_stays(begin));
    if let Some(served) = served.filter(|_| status != SUCCESS) {
        served.note_ended(stream);
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: Handle, out: *mut Handle) -> Status {
    // Of a stream that is not captured no capture ends, though another thread's has its handle.
    let served = SERVED.get().filter(|served| served.is_captured(stream));
    let status = go_on!(end_capture(stream, out));
    if let Some(served) = served.filter(|served| !served.asks_captured(stream)) {
        served.note_ended(stream);
    }
    status
}
