//! Devices as they are first used: opened, or left to the driver, once for all.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use drystone::driver::Stream;
use drystone::seen;
use drystone_process::device::Device;
use drystone_process::report::report;
use drystone_process::{registering, registry};

/// Devices that cannot be served, a bit for each.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Devices whose allocators know that all streams are seen, a bit for each.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Tells of the streams that were seen, unless somebody registers memory by its address.
fn others(ordinal: u32, run: &mut dyn FnMut(Vec<Stream>)) {
    if !registering::is_loaded() {
        seen::others(ordinal, run);
    }
}

/// Every stream of the process is seen to come and go: the device's memory may move.
fn note_seen(ordinal: c_int, device: &'static Device) -> &'static Device {
    let before = SEEN.fetch_or(bit(ordinal), Ordering::Relaxed);
    if before & bit(ordinal) == 0 {
        device.allocator.know_all_streams(others);
    }
    device
}

/// Whether any device was ever served.
#[inline]
pub(crate) fn is_any() -> bool {
    SEEN.load(Ordering::Relaxed) != 0
}

fn bit(ordinal: c_int) -> u64 {
    1_u64.checked_shl(ordinal.cast_unsigned()).unwrap_or(0)
}

/// A device, opened at the first call. `None`: the driver serves it; why is said once.
pub(crate) fn open(ordinal: c_int) -> Option<&'static Device> {
    if let Some(device) = registry::find(ordinal) {
        let is_noted = SEEN.load(Ordering::Relaxed) & bit(ordinal) != 0;
        return Some(if is_noted { device } else { note_seen(ordinal, device) });
    }
    if REFUSED.load(Ordering::Relaxed) & bit(ordinal) != 0 {
        return None;
    }
    match registry::get(ordinal) {
        Ok(device) => Some(note_seen(ordinal, device)),
        Err(failure) => {
            let before = REFUSED.fetch_or(bit(ordinal), Ordering::Relaxed);
            // The driver's memory there is used on its default stream, of which nobody tells.
            seen::may_miss_some();
            if before & bit(ordinal) == 0 {
                report(&format!("device {ordinal} is left to the driver"), &failure);
            }
            None
        }
    }
}
