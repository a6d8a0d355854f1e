//! Which device a thread uses, and the primary contexts that are made on first use.
//!
//! Invariant: the runtime holds each device's primary context once, whoever asked first.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::Mutex;

use crate::described;
use crate::driver::{self, Handle, Status};
use crate::error;
use crate::last_error::record;

/// Devices that a process may have.
const DEVICES_MAX: usize = 64;

thread_local! {
    /// What `cudaSetDevice` chose.
    static CHOSEN: Cell<c_int> = const { Cell::new(0) };
}

/// The primary contexts held, as addresses; zero where there is none.
static HELD: Mutex<[usize; DEVICES_MAX]> = Mutex::new([0; DEVICES_MAX]);

/// Does a call that needs a context, and remembers its error.
pub fn in_context(call: impl FnOnce() -> Status) -> Status {
    let ready = make_current();
    record(if ready == error::SUCCESS { call() } else { ready })
}

/// Does a call that needs the driver and no context, and remembers its error.
pub fn in_driver(call: impl FnOnce() -> Status) -> Status {
    let ready = initialize();
    record(if ready == error::SUCCESS { call() } else { ready })
}

/// The device of this thread: of the context that is current, or the one chosen.
pub fn device() -> c_int {
    device_of_current().unwrap_or_else(|| CHOSEN.get())
}

fn device_of_current() -> Option<c_int> {
    let mut device = 0;
    // SAFETY: the pointer is to a local.
    let status = unsafe { driver::cuCtxGetDevice(&raw mut device) };
    (status == error::SUCCESS).then_some(device)
}

/// The primary context of a device, made if there is none.
pub fn primary(device: c_int) -> Result<Handle, Status> {
    let mut held = HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = usize::try_from(device).ok().and_then(|at| held.get_mut(at));
    let place = place.ok_or(error::INVALID_DEVICE)?;
    if *place == 0 {
        let mut context: Handle = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let status = unsafe { driver::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        if status != error::SUCCESS {
            return Err(status);
        }
        *place = context.expose_provenance();
    }
    Ok(ptr::with_exposed_provenance_mut(*place))
}

fn initialize() -> Status {
    // SAFETY: takes no pointers; any number of calls is allowed.
    let status = unsafe { driver::cuInit(0) };
    if status == error::SUCCESS {
        described::ask();
    }
    status
}

fn has_current() -> bool {
    let mut current: Handle = ptr::null_mut();
    // SAFETY: the pointer is to a local.
    let status = unsafe { driver::cuCtxGetCurrent(&raw mut current) };
    status == error::SUCCESS && !current.is_null()
}

fn make_current() -> Status {
    if has_current() { error::SUCCESS } else { enter(CHOSEN.get()) }
}

fn enter(device: c_int) -> Status {
    let ready = initialize();
    if ready != error::SUCCESS {
        return ready;
    }
    match primary(device) {
        // SAFETY: the context is alive: it is held until the device is reset.
        Ok(context) => unsafe { driver::cuCtxSetCurrent(context) },
        Err(status) => status,
    }
}

/// The number of devices, or the error that there is no way to know it.
fn count() -> Result<c_int, Status> {
    let ready = initialize();
    if ready != error::SUCCESS {
        return Err(ready);
    }
    let mut count = 0;
    // SAFETY: the pointer is to a local.
    match unsafe { driver::cuDeviceGetCount(&raw mut count) } {
        error::SUCCESS => Ok(count),
        status => Err(status),
    }
}

/// Refuses an ordinal that no device has.
pub fn check_device(device: c_int) -> Status {
    match count() {
        Ok(count) if (0..count).contains(&device) => error::SUCCESS,
        Ok(_) => error::INVALID_DEVICE,
        Err(status) => status,
    }
}

/// Chooses this thread's device and makes its primary context current.
#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDevice(device: c_int) -> Status {
    record(match check_device(device) {
        error::SUCCESS => {
            CHOSEN.set(device);
            enter(device)
        }
        status => status,
    })
}

/// Makes the primary context of a device without making it current.
#[unsafe(no_mangle)]
pub extern "C" fn cudaInitDevice(device: c_int, device_flags: c_uint, flags: c_uint) -> Status {
    /// `cudaInitDeviceFlagsAreValid`
    const WITH_FLAGS: c_uint = 1;
    let status = check_device(device);
    if status != error::SUCCESS {
        return record(status);
    }
    if flags == WITH_FLAGS {
        // SAFETY: takes no pointers.
        let status = unsafe { driver::cuDevicePrimaryCtxSetFlags_v2(device, device_flags) };
        if status != error::SUCCESS {
            return record(status);
        }
    }
    record(primary(device).err().unwrap_or(error::SUCCESS))
}

/// Tells this thread's device; makes no context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDevice(ordinal: *mut c_int) -> Status {
    if ordinal.is_null() {
        return record(error::INVALID_VALUE);
    }
    // Programs ask often: a context that is current is answer enough.
    let told = device_of_current().map_or_else(|| count().map(|_| CHOSEN.get()), Ok);
    match told {
        Ok(device) => {
            // SAFETY: the caller passes room for an ordinal.
            unsafe { ordinal.write(device) };
            error::SUCCESS
        }
        Err(status) => record(status),
    }
}

/// Tells how many devices there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceCount(ordinals: *mut c_int) -> Status {
    if ordinals.is_null() {
        return record(error::INVALID_VALUE);
    }
    let known = count();
    // SAFETY: the caller passes room for a number.
    unsafe { ordinals.write(known.unwrap_or(0)) };
    record(match known {
        Ok(0) => error::NO_DEVICE,
        Ok(_) => error::SUCCESS,
        Err(status) => status,
    })
}

/// Destroys everything on this thread's device; the next call makes a new context.
#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceReset() -> Status {
    let device = device();
    let ready = check_device(device);
    if ready != error::SUCCESS {
        return record(ready);
    }
    {
        let mut held = HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(place) = usize::try_from(device).ok().and_then(|at| held.get_mut(at)) {
            *place = 0;
        }
    }
    // SAFETY: the caller asked for the end of everything on this device.
    let status = unsafe { driver::cuDevicePrimaryCtxReset_v2(device) };
    if status == error::SUCCESS {
        // SAFETY: no context is always allowed.
        unsafe { driver::cuCtxSetCurrent(ptr::null_mut()) };
    }
    record(status)
}
