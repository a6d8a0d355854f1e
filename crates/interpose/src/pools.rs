//! Which of the driver's pools are stood in for: the default pool of each device, and pools of
//! plain device memory that the program makes.
//!
//! All of a device's are served from one: they share what is unused, and each shows the figures of
//! all. The driver's own pools stay empty behind them. Handles of pools are always the driver's,
//! so that whatever is not stood in for can be passed on.

use std::ffi::{c_int, c_uint, c_ushort, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use drystone_process::device::Device;
use drystone_process::registry;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::driver::{Driver, Handle, answer};

/// Pools that the program made, by handle, and their devices.
static CREATED: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// As many as Drystone serves.
const DEVICES_MAX: usize = 64;
/// The pool that a device's requests go to; 0 while it is the default one.
static CURRENT: [AtomicUsize; DEVICES_MAX] = [const { AtomicUsize::new(0) }; DEVICES_MAX];
/// The pool that a device had from the beginning; 0 until asked.
static DEFAULT: [AtomicUsize; DEVICES_MAX] = [const { AtomicUsize::new(0) }; DEVICES_MAX];

/// Blocks that were asked for of other pools than the default one, and those pools.
static ELSEWHERE: Mutex<FxHashMap<u64, usize>> =
    Mutex::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher));
/// How many there are.
static ELSEWHERE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A place of memory that is a device's.
const DEVICE: c_int = 1;

/// What `cuMemPoolCreate` is told, as far as it is of interest.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    kind: c_int,
    handle_kinds: c_int,
    location: Location,
    security: *const c_void,
    max_bytes: usize,
    usage: c_ushort,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    kind: c_int,
    ordinal: c_int,
}

impl Location {
    /// The device, if it is one.
    pub(crate) fn device(self) -> Option<c_int> {
        (self.kind == DEVICE).then_some(self.ordinal)
    }
}

impl Properties {
    /// The device, if memory is only to be had from it and needs nothing beyond.
    fn device(&self) -> Option<c_int> {
        /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
        const PINNED: c_int = 1;
        let is_shared = self.handle_kinds != 0 || !self.security.is_null();
        let is_special = is_shared || self.max_bytes != 0 || self.usage != 0;
        self.location.device().filter(|_| self.kind == PINNED && !is_special)
    }
}

/// What `cuMemPoolSetAccess` is told of one place.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Access {
    location: Location,
    flags: c_uint,
}

impl Access {
    /// The device that may read and write, if that is what it says.
    pub(crate) fn grants_to(self) -> Option<c_int> {
        const READ_WRITE: c_uint = 3;
        self.location.device().filter(|_| self.flags == READ_WRITE)
    }
}

/// Notes a pool that the program made.
pub(crate) fn created(pool: Handle, properties: &Properties) {
    // The driver hands values out again.
    forget(pool);
    if let Some(device) = properties.device() {
        CREATED.lock().push((pool.addr(), device));
    }
}

/// Forgets a pool that is no more. A device whose requests went there is back at its default one.
pub(crate) fn forget(pool: Handle) {
    CREATED.lock().retain(|&(handle, _)| handle != pool.addr());
    for current in &CURRENT {
        let _ = current.compare_exchange(pool.addr(), 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A device was reset: of its pools the default one is left, perhaps under another handle, and none
/// of its blocks.
pub(crate) fn forget_device(ordinal: c_int, is_its_block: impl Fn(u64) -> bool) {
    let mut elsewhere = ELSEWHERE.lock();
    elsewhere.retain(|&address, _| !is_its_block(address));
    ELSEWHERE_COUNT.store(elsewhere.len(), Ordering::Release);
    drop(elsewhere);
    CREATED.lock().retain(|&(_, device)| device != ordinal);
    for table in [&CURRENT, &DEFAULT] {
        if let Some(entry) = table.get(ordinal as usize) {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// A device's requests go to this pool from now on.
pub(crate) fn chosen(driver: &Driver, ordinal: c_int, pool: Handle) {
    let is_default = default_pool(driver, ordinal) == Some(pool);
    if let Some(current) = CURRENT.get(ordinal as usize) {
        current.store(if is_default { 0 } else { pool.addr() }, Ordering::Relaxed);
    }
}

fn device_of_created(pool: usize) -> Option<c_int> {
    let created = CREATED.lock();
    created.iter().find(|&&(handle, _)| handle == pool).map(|&(_, device)| device)
}

/// The pool that a device had from the beginning.
fn default_pool(driver: &Driver, ordinal: c_int) -> Option<Handle> {
    let known = DEFAULT.get(ordinal as usize)?;
    let pool = known.load(Ordering::Relaxed);
    if pool != 0 {
        return Some(ptr::with_exposed_provenance_mut(pool));
    }
    // SAFETY: writes a handle.
    let ask = |to| unsafe { (driver.cuDeviceGetDefaultMemPool)(to, ordinal) };
    let pool = answer(ptr::null_mut(), ask)?;
    known.store(pool.expose_provenance(), Ordering::Relaxed);
    Some(pool)
}

/// The pool of a request, by what it is asked of: `None` is the device's current one. 0 stands for
/// the default pool. `None`: it is not stood in for.
#[inline]
pub(crate) fn stood_in(driver: &Driver, pool: Option<Handle>, ordinal: c_int) -> Option<usize> {
    let pool = match pool {
        Some(pool) if pool.is_null() => return None,
        None => CURRENT.get(ordinal as usize)?.load(Ordering::Relaxed),
        Some(pool) if default_pool(driver, ordinal) == Some(pool) => 0,
        Some(pool) => pool.addr(),
    };
    (pool == 0 || device_of_created(pool) == Some(ordinal)).then_some(pool)
}

/// A block was given out for a pool.
#[inline]
pub(crate) fn gave(pool: usize, address: u64) {
    if pool != 0 {
        let mut elsewhere = ELSEWHERE.lock();
        elsewhere.insert(address, pool);
        ELSEWHERE_COUNT.store(elsewhere.len(), Ordering::Release);
    }
}

/// A block is about to be taken back. Returns the pool that it was asked for of, except the
/// default one.
#[inline]
pub(crate) fn takes(address: u64) -> Option<usize> {
    if ELSEWHERE_COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut elsewhere = ELSEWHERE.lock();
    let pool = elsewhere.remove(&address);
    ELSEWHERE_COUNT.store(elsewhere.len(), Ordering::Release);
    pool
}

/// The pool that a live block was asked for of.
pub(crate) fn pool_of(driver: &Driver, address: u64, device: &Device) -> Option<Handle> {
    let elsewhere = ELSEWHERE.lock().get(&address).copied();
    match elsewhere {
        Some(pool) => Some(ptr::with_exposed_provenance_mut(pool)),
        None => default_pool(driver, device.ordinal.cast_signed()),
    }
}

/// The device of a pool that is stood in for, if it is in use.
pub(crate) fn device_behind(driver: &Driver, pool: Handle) -> Option<&'static Device> {
    match device_of_created(pool.addr()) {
        Some(ordinal) => registry::find(ordinal),
        None => registry::in_use()
            .find(|device| default_pool(driver, device.ordinal.cast_signed()) == Some(pool)),
    }
}

/// The device of a pool that is stood in for, in use or not, where there are so many devices.
pub(crate) fn device_of(driver: &Driver, pool: Handle, count: c_int) -> Option<c_int> {
    let of_own = || (0..count).find(|&ordinal| default_pool(driver, ordinal) == Some(pool));
    device_of_created(pool.addr()).or_else(of_own)
}
