//! NVML: what monitoring programs, and PyTorch when memory is short, ask of devices.
//!
//! Lives here: start and end, how a device is found, errors. Numbers are those of the simulated
//! driver; asking never makes a context. A device's handle is its ordinal and one, as a pointer.

mod answers;
mod records;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver;
use crate::error;

/// A result of NVML.
type Return = c_int;
const SUCCESS: Return = 0;
const UNINITIALIZED: Return = 1;
const INVALID_ARGUMENT: Return = 2;
const NOT_SUPPORTED: Return = 3;
const NOT_FOUND: Return = 6;
const INSUFFICIENT_SIZE: Return = 7;
const DRIVER_NOT_LOADED: Return = 9;
const ARGUMENT_VERSION_MISMATCH: Return = 25;
const UNKNOWN: Return = 999;

/// A device as programs hold it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Device(*mut std::ffi::c_void);

impl Device {
    fn of(ordinal: c_int) -> Self {
        let number = usize::try_from(ordinal).unwrap_or(0) + 1;
        Self(std::ptr::without_provenance_mut(number))
    }

    /// The ordinal, if NVML was started and there is such a device.
    fn ordinal(self) -> Result<c_int, Return> {
        let count = count()?;
        let ordinal = self.0.addr().checked_sub(1).and_then(|at| c_int::try_from(at).ok());
        ordinal.filter(|ordinal| *ordinal < count).ok_or(INVALID_ARGUMENT)
    }
}

/// How many more starts there were than ends.
static STARTS: AtomicU32 = AtomicU32::new(0);

/// Starts NVML.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    // SAFETY: takes no pointers; any number of calls is allowed.
    if unsafe { driver::cuInit(0) } != error::SUCCESS {
        return DRIVER_NOT_LOADED;
    }
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
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        DRIVER_NOT_LOADED => c"Driver Not Loaded",
        ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

/// The number of devices, once NVML was started.
fn count() -> Result<c_int, Return> {
    if STARTS.load(Ordering::Acquire) == 0 {
        return Err(UNINITIALIZED);
    }
    let mut count = 0;
    // SAFETY: the pointer is to a local.
    match unsafe { driver::cuDeviceGetCount(&raw mut count) } {
        error::SUCCESS => Ok(count),
        _ => Err(UNKNOWN),
    }
}

/// Writes an answer where the caller wants it, or tells why there is none.
unsafe fn answer<T>(to: *mut T, value: impl FnOnce() -> Result<T, Return>) -> Return {
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
unsafe fn answer_text(
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

/// Tells how many devices there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> Return {
    // SAFETY: the caller passes room for a number.
    unsafe { answer(to, || Ok(count()?.unsigned_abs())) }
}

/// Finds a device by its ordinal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) -> Return {
    let find = || {
        let count = count()?;
        let ordinal = c_int::try_from(index).ok().filter(|ordinal| *ordinal < count);
        ordinal.map(Device::of).ok_or(INVALID_ARGUMENT)
    };
    // SAFETY: the caller passes room for a handle.
    unsafe { answer(to, find) }
}

/// Finds a device by its address on the bus, with or without leading zeros of the domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    id: *const c_char,
    to: *mut Device,
) -> Return {
    // SAFETY: the caller passes a string.
    let find = || unsafe { find(id, answers::place, parse_place) };
    // SAFETY: the caller passes room for a handle.
    unsafe { answer(to, find) }
}

/// Finds a device by its unique name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(id: *const c_char, to: *mut Device) -> Return {
    let same = |text: &str| Some(text.to_owned());
    // SAFETY: the caller passes a string.
    let find = || unsafe { find(id, answers::uuid, same) };
    // SAFETY: the caller passes room for a handle.
    unsafe { answer(to, find) }
}

/// The device of which something is what a text says.
unsafe fn find<T: PartialEq>(
    text: *const c_char,
    of: impl Fn(c_int) -> T,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Device, Return> {
    let count = count()?;
    if text.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller passes a string.
    let text = unsafe { CStr::from_ptr(text) };
    let wanted = text.to_str().ok().and_then(parse).ok_or(INVALID_ARGUMENT)?;
    (0..count).find(|ordinal| of(*ordinal) == wanted).map(Device::of).ok_or(NOT_FOUND)
}

/// Domain, bus and device of `00000000:01:00.0`, in hexadecimal; a missing domain is the first.
fn parse_place(text: &str) -> Option<[c_int; 3]> {
    let text = text.split('.').next()?;
    let parts: Option<Vec<c_int>> =
        text.split(':').map(|part| c_int::from_str_radix(part, 16).ok()).collect();
    match *parts?.as_slice() {
        [domain, bus, device] => Some([domain, bus, device]),
        [bus, device] => Some([0, bus, device]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_the_bus_is_read_as_drivers_and_programs_write_it() {
        assert_eq!(parse_place("00000000:1A:00.0"), Some([0, 26, 0]));
        assert_eq!(parse_place("0000:01:02.0"), Some([0, 1, 2]));
        assert_eq!(parse_place("01:00"), Some([0, 1, 0]));
        assert_eq!(parse_place("GPU-1"), None);
        assert_eq!(parse_place(""), None);
    }
}
