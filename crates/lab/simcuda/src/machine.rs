//! The machine's devices, as NVML tells of them: by *place*, which `CUDA_VISIBLE_DEVICES` neither
//! hides nor renumbers.
//!
//! Invariant: to ask here starts nothing of CUDA, so a process that forks afterwards may use it in
//! its children, and settles nothing: which devices are visible is read when CUDA starts.

use crate::attribute;
use crate::config::Config;
use crate::process;
use crate::visible::unique_number;

/// What an index of a device is, if there is such a one.
fn known(place: i32) -> Option<usize> {
    usize::try_from(place).ok().filter(|&place| place < process::place_count())
}

/// The settings of the device at a place: its own once CUDA runs, if it is visible.
fn config_at<T>(place: usize, look: impl FnOnce(&Config) -> T) -> T {
    let own = process::started_at(place);
    look(own.as_ref().map_or(process::config(), |device| &device.config))
}

/// How many devices the machine has, also those that `CUDA_VISIBLE_DEVICES` hides.
#[unsafe(no_mangle)]
extern "C" fn simcuda_place_count() -> i32 {
    process::place_count() as i32
}

/// Whether NVML answers about a device.
#[unsafe(no_mangle)]
extern "C" fn simcuda_place_is_told(place: i32) -> i32 {
    known(place).is_some_and(|place| config_at(place, |config| config.nvml)).into()
}

/// An attribute as `cuDeviceGetAttribute` numbers them; 0 if there is none, or no such device.
#[unsafe(no_mangle)]
extern "C" fn simcuda_place_attribute(place: i32, number: i32) -> i32 {
    let Some(place) = known(place) else { return 0 };
    config_at(place, |config| attribute::attribute(config, place, number)).unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_place_bytes(place: i32) -> u64 {
    known(place).map_or(0, |place| config_at(place, |config| config.sim.total_bytes))
}

/// Memory that this process holds, with what its contexts take.
#[unsafe(no_mangle)]
extern "C" fn simcuda_place_used_bytes(place: i32) -> u64 {
    let device = known(place).and_then(process::started_at);
    device.map_or(0, |device| device.sim.physical_bytes() + device.sim.context_bytes())
}

/// The unique number of a device.
///
/// # Safety
/// There is room for 16 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_place_uuid(place: i32, out: *mut [u8; 16]) {
    let place = usize::try_from(place).unwrap_or(0);
    let number = unique_number(place, process::config().sim.shared.as_deref());
    // SAFETY: there is room, by the caller's word.
    unsafe { out.write(number) };
}

/// The name of a device, with a zero at its end, cut if there is no room.
///
/// # Safety
/// There is room for so many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_place_name(place: i32, out: *mut u8, room: u64) {
    let name = known(place).map(|place| config_at(place, |config| config.name.clone()));
    let bytes = name.unwrap_or_default().into_bytes();
    let length = bytes.len().min((room as usize).saturating_sub(1));
    if room > 0 {
        // SAFETY: there is room for so many, by the caller's word.
        unsafe { out.copy_from_nonoverlapping(bytes.as_ptr(), length) };
        // SAFETY: one more.
        unsafe { out.wrapping_add(length).write(0) };
    }
}
