//! The beginning and end of NVML, how its calls end, and how a device is held: a handle is the
//! place and one, as a pointer. NVML sees the devices that `CUDA_VISIBLE_DEVICES` hides, too, so it
//! counts places. Invariants: a handle leads to a device only while NVML is started; NVML never
//! starts CUDA, so who forks after asking it may use CUDA in the child.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::{self, Out};

pub(super) type Return = c_int;
pub(super) type Outcome<T = ()> = Result<T, Return>;
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
    pub(super) fn place(self) -> Outcome<c_int> {
        let count = count()?;
        let place = self.0.addr().checked_sub(1).and_then(|at| c_int::try_from(at).ok());
        let place = place.filter(|place| *place < count).ok_or(INVALID_ARGUMENT)?;
        let is_told = driver::simcuda_place_is_told(place) != 0;
        is_told.then_some(place).ok_or(NO_PERMISSION)
    }
}

/// How many more starts there were than ends.
static STARTS: AtomicU32 = AtomicU32::new(0);

fn start() -> Outcome {
    STARTS.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

nvml! {
    fn nvmlInit_v2() { start() }

    fn nvmlInit() { start() }

    /// Starts NVML; the flags change nothing where there are devices.
    fn nvmlInitWithFlags(_flags: c_uint) { start() }

    /// Ends NVML once it was called as often as the start.
    fn nvmlShutdown() {
        let less = |starts: u32| starts.checked_sub(1);
        let ended = STARTS.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        ended.map(drop).map_err(|_| UNINITIALIZED)
    }
}

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
pub(super) fn count() -> Outcome<c_int> {
    if STARTS.load(Ordering::Acquire) == 0 {
        return Err(UNINITIALIZED);
    }
    Ok(driver::simcuda_place_count())
}

/// What every function ends with.
pub(super) fn finish(body: impl FnOnce() -> Outcome) -> Return {
    body().err().unwrap_or(SUCCESS)
}

impl<T> Out<T> {
    /// Writes an answer of NVML; null is refused.
    pub(super) fn answer(self, value: T) -> Outcome {
        self.write(value).ok_or(INVALID_ARGUMENT)
    }
}

/// Writes a text with its final zero, if there is room.
///
/// # Safety
///
/// The pointer is null, or there is as much room as stated.
pub(super) unsafe fn answer_text(to: *mut c_char, room: c_uint, text: &str) -> Outcome {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= usize::try_from(room).unwrap_or(0) {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for the text and a zero, as was just checked.
    unsafe { to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
    // SAFETY: the same.
    let end = unsafe { to.add(text.len()) };
    // SAFETY: the same.
    unsafe { end.write(0) };
    Ok(())
}
