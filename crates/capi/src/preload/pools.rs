//! Which of the driver's pools are stood in for: the default pool of each device, and pools of
//! plain device memory that the program makes.
//!
//! All of a device's are served from one: they share what is unused, and each shows the figures of
//! all. The driver's own pools stay empty behind them.

use std::ffi::{c_int, c_uint, c_ushort, c_void};

use parking_lot::Mutex;

use super::runtime::{self, Handle, is_active};
use crate::device::Device;
use crate::{process, registry};

/// Pools that the program made, by handle, and their devices.
static CREATED: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// A place of memory that is a device's.
const DEVICE: c_int = 1;

/// What `cudaMemPoolCreate` is told.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    kind: c_int,
    handle_kinds: c_int,
    location_kind: c_int,
    location: c_int,
    security: *const c_void,
    max_bytes: usize,
    usage: c_ushort,
}

impl Properties {
    /// The device, if memory is only to be had from it and needs nothing beyond.
    fn device(&self) -> Option<c_int> {
        /// `cudaMemAllocationTypePinned`.
        const PINNED: c_int = 1;
        let is_plain = self.kind == PINNED && self.location_kind == DEVICE;
        let is_shared = self.handle_kinds != 0 || !self.security.is_null();
        let is_special = is_shared || self.max_bytes != 0 || self.usage != 0;
        (is_plain && !is_special).then_some(self.location)
    }
}

/// What `cudaMemPoolSetAccess` is told of one place.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Access {
    location_kind: c_int,
    location: c_int,
    flags: c_uint,
}

impl Access {
    /// The device that may read and write, if that is what it says.
    pub(super) fn grants_to(self) -> Option<c_int> {
        const READ_WRITE: c_uint = 3;
        let grants = self.location_kind == DEVICE && self.flags == READ_WRITE;
        grants.then_some(self.location)
    }
}

/// Notes a pool that the program made.
pub(super) fn created(pool: Handle, properties: &Properties) {
    // The driver hands values out again.
    forget(pool);
    if let Some(device) = properties.device() {
        CREATED.lock().push((pool as usize, device));
    }
}

/// Forgets a pool that is no more.
pub(super) fn forget(pool: Handle) {
    if process::check().is_ok() {
        CREATED.lock().retain(|&(handle, _)| handle != pool as usize);
    }
}

fn device_of_created(pool: Handle) -> Option<c_int> {
    let created = CREATED.lock();
    created.iter().find(|&&(handle, _)| handle == pool as usize).map(|&(_, device)| device)
}

/// Whether a pool is stood in for, and of this device.
#[inline]
pub(super) fn is_stood_in(pool: Handle, ordinal: c_int) -> bool {
    runtime::default_pool(ordinal) == Some(pool) || device_of_created(pool) == Some(ordinal)
}

/// The device of a pool that is stood in for.
pub(super) fn device_of(pool: Handle) -> Option<c_int> {
    device_of_created(pool).or_else(|| runtime::device_of_pool(pool))
}

/// The device in use that stands in for a pool.
pub(super) fn device_behind(pool: Handle) -> Option<&'static Device> {
    if !is_active() || process::check().is_err() {
        return None;
    }
    registry::find(device_of(pool)?)
}
