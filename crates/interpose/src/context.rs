//! Contexts: which is current in a thread, and whose primary context it is.
//!
//! Only primary contexts are served. With one device each thread remembers the context that was
//! current when it last asked, until it calls a function that changes it. With several the driver
//! is asked each time: whether the runtime changes contexts by functions that can be seen is not
//! documented, and another device's memory would be the price.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::driver::{Driver, Handle, answer};

thread_local! {
    /// What was current when the thread last asked; 0 if that may be so no more.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// How many devices there are, 0 until asked.
static DEVICES: AtomicI32 = AtomicI32::new(0);

/// How many devices there are.
pub(crate) fn devices(driver: &Driver) -> c_int {
    let known = DEVICES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: writes a number.
    let count = answer(0, |count| unsafe { (driver.cuDeviceGetCount)(count) }).unwrap_or(0);
    DEVICES.store(count, Ordering::Relaxed);
    count
}

/// The context of the calling thread.
#[inline]
pub(crate) fn current(driver: &Driver) -> Option<Handle> {
    let known = CURRENT.get();
    if known != 0 {
        return Some(ptr::with_exposed_provenance_mut(known));
    }
    // SAFETY: writes a handle.
    let found = answer(ptr::null_mut(), |to| unsafe { (driver.cuCtxGetCurrent)(to) })?;
    if devices(driver) == 1 {
        CURRENT.set(found.expose_provenance());
    }
    (!found.is_null()).then_some(found)
}

/// The thread's context may be another from now on.
pub(crate) fn forget() {
    CURRENT.set(0);
}

/// The device whose primary context this is. CUDA numbers devices (`CUdevice`) by their ordinals.
pub(crate) fn ordinal_of(driver: &Driver, context: Handle) -> Option<c_int> {
    (0..devices(driver)).find(|&ordinal| primary(driver, ordinal) == Some(context))
}

/// The primary context of a device, if anybody uses it.
fn primary(driver: &Driver, ordinal: c_int) -> Option<Handle> {
    let (mut flags, mut is_active) = (0, 0);
    let state = driver.cuDevicePrimaryCtxGetState;
    // SAFETY: writes two numbers.
    if unsafe { state(ordinal, &raw mut flags, &raw mut is_active) } != 0 || is_active == 0 {
        return None;
    }
    // SAFETY: writes a handle.
    let retain = |to| unsafe { (driver.cuDevicePrimaryCtxRetain)(to, ordinal) };
    let context = answer(ptr::null_mut(), retain)?;
    // SAFETY: retained above; others hold it, too.
    unsafe { (driver.cuDevicePrimaryCtxRelease_v2)(ordinal) };
    Some(context)
}

/// The device of the calling thread's context, whichever context that is.
pub(crate) fn current_ordinal(driver: &Driver) -> Option<c_int> {
    // SAFETY: writes a number.
    answer(0, |device| unsafe { (driver.cuCtxGetDevice)(device) })
}
