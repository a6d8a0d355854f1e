//! Which device a thread uses, and the primary contexts that are made on first use.
//!
//! Invariant: the runtime holds each device's primary context once, whoever asked first.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::described;
use crate::driver::{self, Handle, Out};
use crate::error::{self, Outcome, done};
use crate::export::exports;

const DEVICES_MAX: usize = 64;

thread_local! {
    /// What `cudaSetDevice` chose.
    static CHOSEN: Cell<c_int> = const { Cell::new(0) };
}

/// The primary contexts held, as addresses; zero where there is none.
static HELD: Mutex<[usize; DEVICES_MAX]> = Mutex::new([0; DEVICES_MAX]);

/// Makes the driver ready, for a call that needs no context.
pub fn initialize() -> Outcome {
    done(driver::cuInit(0))?;
    described::ask();
    Ok(())
}

/// Makes a context current, if none is.
pub fn make_current() -> Outcome {
    let mut current: Handle = ptr::null_mut();
    let status = driver::cuCtxGetCurrent(&mut current);
    if status == error::SUCCESS && !current.is_null() { Ok(()) } else { enter(CHOSEN.get()) }
}

fn enter(device: c_int) -> Outcome {
    initialize()?;
    // SAFETY: the context is alive: it is held until the device is reset.
    done(unsafe { driver::cuCtxSetCurrent(primary(device)?) })
}

/// The device of this thread: of the context that is current, or the one chosen.
pub fn device() -> c_int {
    device_of_current().unwrap_or_else(|| CHOSEN.get())
}

fn device_of_current() -> Option<c_int> {
    let mut device = 0;
    let status = driver::cuCtxGetDevice(&mut device);
    (status == error::SUCCESS).then_some(device)
}

/// Does something with the place of a device's primary context.
fn with_held<T>(device: c_int, body: impl FnOnce(&mut usize) -> Outcome<T>) -> Outcome<T> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let place = usize::try_from(device).ok().and_then(|at| held.get_mut(at));
    body(place.ok_or(error::INVALID_DEVICE)?)
}

/// The primary context of a device, made if there is none.
pub fn primary(device: c_int) -> Outcome<Handle> {
    with_held(device, |place| {
        if *place == 0 {
            let mut context: Handle = ptr::null_mut();
            done(driver::cuDevicePrimaryCtxRetain(&mut context, device))?;
            *place = context.expose_provenance();
        }
        Ok(ptr::with_exposed_provenance_mut(*place))
    })
}

/// The number of devices, or the error that there is no way to know it.
fn count() -> Outcome<c_int> {
    initialize()?;
    let mut count = 0;
    done(driver::cuDeviceGetCount(&mut count))?;
    Ok(count)
}

pub fn check_device(device: c_int) -> Outcome {
    if (0..count()?).contains(&device) { Ok(()) } else { Err(error::INVALID_DEVICE) }
}

exports! {
    /// Chooses this thread's device and makes its primary context current.
    fn cudaSetDevice(device: c_int) {
        check_device(device)?;
        CHOSEN.set(device);
        enter(device)
    }

    /// Makes the primary context of a device without making it current.
    fn cudaInitDevice(device: c_int, device_flags: c_uint, flags: c_uint) {
        /// `cudaInitDeviceFlagsAreValid`
        const WITH_FLAGS: c_uint = 1;
        check_device(device)?;
        if flags == WITH_FLAGS {
            done(driver::cuDevicePrimaryCtxSetFlags_v2(device, device_flags))?;
        }
        primary(device).map(drop)
    }

    /// Tells this thread's device; makes no context.
    fn cudaGetDevice(ordinal: Out<c_int>) {
        // Programs ask often: a context that is current is answer enough.
        let told = device_of_current().map_or_else(|| count().map(|_| CHOSEN.get()), Ok)?;
        ordinal.tell(told)
    }

    fn cudaGetDeviceCount(ordinals: Out<c_int>) {
        let known = count();
        ordinals.tell(known.unwrap_or(0))?;
        if known? == 0 { Err(error::NO_DEVICE) } else { Ok(()) }
    }

    /// Destroys everything on this thread's device; the next call makes a new context.
    fn cudaDeviceReset() {
        let device = device();
        check_device(device)?;
        with_held(device, |place| {
            *place = 0;
            Ok(())
        })?;
        // SAFETY: the caller asked for the end of everything on this device.
        done(unsafe { driver::cuDevicePrimaryCtxReset_v2(device) })?;
        // SAFETY: no context is always allowed.
        unsafe { driver::cuCtxSetCurrent(ptr::null_mut()) };
        Ok(())
    }
}
