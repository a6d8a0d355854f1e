//! Devices as they are first used: opened, or left to the driver, once for all.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use drystone_process::device::Device;
use drystone_process::registry;
use drystone_process::report::report;

/// Devices that cannot be served, a bit for each.
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn bit(ordinal: c_int) -> u64 {
    1_u64.checked_shl(ordinal.cast_unsigned()).unwrap_or(0)
}

/// A device, opened at the first call. `None`: the driver serves it; why is said once.
pub(crate) fn open(ordinal: c_int) -> Option<&'static Device> {
    if let Some(device) = registry::find(ordinal) {
        return Some(device);
    }
    if REFUSED.load(Ordering::Relaxed) & bit(ordinal) != 0 {
        return None;
    }
    match registry::get(ordinal) {
        Ok(device) => Some(device),
        Err(failure) => {
            let before = REFUSED.fetch_or(bit(ordinal), Ordering::Relaxed);
            if before & bit(ordinal) == 0 {
                report(&format!("device {ordinal} is left to the driver"), &failure);
            }
            None
        }
    }
}
