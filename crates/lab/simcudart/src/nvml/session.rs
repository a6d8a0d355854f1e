//! The beginning and end of NVML, how its calls end, and how a device is held: a handle is the
//! place and one, as a pointer. NVML sees the devices that `CUDA_VISIBLE_DEVICES` hides, too, so it
//! counts places. Invariants: a handle leads to a device only while NVML is started; NVML never
//! starts CUDA, so who forks after asking it may use CUDA in the child.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver;

/// A result of NVML.
pub(super) type Return = c_int;
pub(super) const SUCCESS: Return = 0;
const UNINITIALIZED: Return = 1;
pub(super) const INVALID_ARGUMENT: Return = 2;
pub(super) const NOT_SUPPORTED: Return = 3;
const NO_PERMISSION: Return = 4;
pub(super) const NOT_FOUND: Return = 6;
pub(super) const INSUFFICIENT_SIZE: Return = 7;
const DRIVER_NOT_LOADED: Return = 9;
pub(super) const ARGUMENT_VERSION_MISMATCH: Return = 25;
pub(super) const UNKNOWN: Return = 999;

/// A device as programs hold it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Device(*mut c_void);

impl Device {
    pub(super) fn of(place: c_int) -> Self {
        let number = usize::try_from(place).unwrap_or(0) + 1;
        Self(std::ptr::without_provenance_mut(number))
    }

    /// The number on the machine, if NVML was started and there is such a device.
    pub(super) fn place(self) -> Result<c_int, Return> {
        let count = count()?;
        let place = self.0.addr().checked_sub(1).and_then(|at| c_int::try_from(at).ok());
        let place = place.filter(|place| *place < count).ok_or(INVALID_ARGUMENT)?;
        // SAFETY: takes no pointers.
        let is_told = unsafe { driver::simcuda_place_is_told(place) } != 0;
        is_told.then_some(place).ok_or(NO_PERMISSION)
    }
}

/// How many more starts there were than ends.
static STARTS: AtomicU32 = AtomicU32::new(0);

/// Starts NVML.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    STARTS.fetch_add(1, Ordering::AcqRel);
    SUCCESS
}

/// Starts NVML.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> Return {
    nvmlInit_v2()
}

/// Starts NVML; the flags change nothing where there are devices.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Return {
    nvmlInit_v2()
}

/// Ends NVML once it was called as often as the start.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    let less = |starts: u32| starts.checked_sub(1);
    match STARTS.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
        Ok(_) => SUCCESS,
        Err(_) => UNINITIALIZED,
    }
}

/// What an error means, in words.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: Return) -> *const c_char {
    let text: &CStr = match result {
        SUCCESS => c"Success",
        UNINITIALIZED => c"Uninitialized",
        INVALID_ARGUMENT => c"Invalid Argument",
        NOT_SUPPORTED => c"Not Supported",
        NO_PERMISSION => c"Insufficient Permissions",
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        DRIVER_NOT_LOADED => c"Driver Not Loaded",
        ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

/// The number of devices, once NVML was started.
pub(super) fn count() -> Result<c_int, Return> {
    if STARTS.load(Ordering::Acquire) == 0 {
        return Err(UNINITIALIZED);
    }
    // SAFETY: takes no pointers.
    Ok(unsafe { driver::simcuda_place_count() })
}

/// Writes an answer where the caller wants it, or tells why there is none.
pub(super) unsafe fn answer<T>(to: *mut T, value: impl FnOnce() -> Result<T, Return>) -> Return {
    if to.is_null() {
        return INVALID_ARGUMENT;
    }
    match value() {
        Ok(value) => {
            // SAFETY: the caller passes room for the answer.
            unsafe { to.write(value) };
            SUCCESS
        }
        Err(result) => result,
    }
}

/// Writes a text with its final zero, if there is room.
pub(super) unsafe fn answer_text(
    to: *mut c_char,
    room: c_uint,
    text: impl FnOnce() -> Result<String, Return>,
) -> Return {
    let text = match text() {
        _ if to.is_null() => return INVALID_ARGUMENT,
        Ok(text) => text,
        Err(result) => return result,
    };
    if text.len() >= usize::try_from(room).unwrap_or(0) {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: there is room for the text and a zero, as was just checked.
    unsafe { to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
    // SAFETY: the same.
    let end = unsafe { to.add(text.len()) };
    // SAFETY: the same.
    unsafe { end.write(0) };
    SUCCESS
}
