//! What the driver says of each device that never changes, asked once, by the first call of all.
//!
//! Invariant: nothing is asked while a stream is captured. PyTorch calls `cudaGetDeviceProperties`
//! in captures, unguarded, where an expandable segment begins; that its driver functions are legal
//! there is written nowhere, so the runtime asks them before.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::driver;
use crate::error;

/// A device of the driver. What it does not tell is zero.
pub struct Described {
    pub name: [u8; 256],
    pub uuid: [u8; 16],
    pub memory_bytes: usize,
}

static DEVICES: OnceLock<Vec<Described>> = OnceLock::new();

/// Asks of every device, if that was not done. The driver is initialized.
pub fn ask() {
    DEVICES.get_or_init(|| {
        let mut count = 0;
        let status = driver::cuDeviceGetCount(&mut count);
        let count = if status == error::SUCCESS { count } else { 0 };
        (0..count).map(Described::of).collect()
    });
}

pub fn find(device: c_int) -> Option<&'static Described> {
    DEVICES.get()?.get(usize::try_from(device).ok()?)
}

impl Described {
    fn of(device: c_int) -> Self {
        let mut told = Self { name: [0; 256], uuid: [0; 16], memory_bytes: 0 };
        let name = told.name.as_mut_ptr().cast::<c_char>();
        // SAFETY: there is room for as many bytes as stated.
        unsafe { driver::cuDeviceGetName(name, 256, device) };
        driver::cuDeviceGetUuid_v2(&mut told.uuid, device);
        driver::cuDeviceTotalMem_v2(&mut told.memory_bytes, device);
        told
    }
}
