//! Which device is meant: by its number, its place on the bus, its unique name.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::answers;
use super::session::{Device, INVALID_ARGUMENT, NOT_FOUND, Outcome, count};
use crate::driver::Out;

nvml! {
    fn nvmlDeviceGetCount_v2(to: Out<c_uint>) {
        to.answer(count()?.unsigned_abs())
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: Out<Device>) {
        let count = count()?;
        let place = c_int::try_from(index).ok().filter(|place| *place < count);
        to.answer(Device::of(place.ok_or(INVALID_ARGUMENT)?))
    }

    /// Finds a device by its address on the bus, with or without leading zeros of the domain.
    fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, to: Out<Device>) {
        // SAFETY: the caller passes a string.
        let found = unsafe { find(id, answers::address, parse_place) }?;
        to.answer(found)
    }

    /// Finds a device by its unique name.
    fn nvmlDeviceGetHandleByUUID(id: *const c_char, to: Out<Device>) {
        // SAFETY: the caller passes a string.
        let found = unsafe { find(id, answers::uuid, |text| Some(text.to_owned())) }?;
        to.answer(found)
    }
}

/// The device of which something is what a text says.
unsafe fn find<T: PartialEq>(
    text: *const c_char,
    of: impl Fn(c_int) -> T,
    parse: impl Fn(&str) -> Option<T>,
) -> Outcome<Device> {
    let count = count()?;
    if text.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller passes a string.
    let text = unsafe { CStr::from_ptr(text) };
    let wanted = text.to_str().ok().and_then(parse).ok_or(INVALID_ARGUMENT)?;
    (0..count).find(|place| of(*place) == wanted).map(Device::of).ok_or(NOT_FOUND)
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
