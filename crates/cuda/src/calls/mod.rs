//! [`Cuda`]: the CUDA driver, once it was found. The only place that calls its functions.
//!
//! Whoever holds a `&Cuda` has proof that every function below exists; those of `memory_pool` and
//! `virtual_memory` want [`Cuda::has_memory_pools`] and [`Cuda::has_virtual_memory`], too. What
//! they ask of their callers is the contract of `drystone_driver::Driver`: handles are the driver's
//! own, and a stream or an event was not destroyed behind its back. A real driver does not check
//! that.

mod event;
mod export;
mod hold;
mod load;
mod memory;
mod memory_pool;
mod stream;
mod table;
mod virtual_memory;

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use libloading::Library;

pub(crate) use self::stream::TELLS_CONTEXT_IN_CAPTURE;
use self::table::{Pointer, Table};
use crate::failure::Failure;

/// The driver's library, found complete, and initialised.
pub(crate) struct Cuda {
    table: Table,
    /// Kept, so that it is not unloaded.
    _library: Library,
    /// The newest CUDA that it offers, as it writes it: 12040 is 12.4.
    pub(crate) version: u32,
    /// Whether all functions of virtual memory are there.
    pub(crate) has_virtual_memory: bool,
    /// Whether all functions of memory pools are there.
    pub(crate) has_memory_pools: bool,
}

/// A context of the driver, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(usize);

impl Context {
    /// Whether it is none at all: that of a stream of a green context.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    fn as_cuda(self) -> Pointer {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

/// A device as most calls name it (`CUdevice`). Not its ordinal, though equal to it today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceId(c_int);

/// Attributes of a device, by number: the oldest bindings lack some of the names.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Attribute {
    /// Its memory is the host's.
    Integrated = 18,
    VirtualMemory = 102,
    PosixFdHandle = 103,
    GpuDirectRdma = 110,
    MemoryPools = 115,
    /// Bits of the handles that a memory pool can be shared by.
    MemoryPoolHandles = 119,
    FabricHandle = 128,
}

/// The driver's handles are pointers to it and numbers to everybody else.
fn pointer(handle: u64) -> Pointer {
    ptr::with_exposed_provenance_mut(handle as usize)
}

fn handle(pointer: Pointer) -> u64 {
    pointer.expose_provenance() as u64
}

impl Cuda {
    /// Success, or the driver's number and name for the failure.
    fn check(&self, result: u32) -> Result<(), Failure> {
        match result {
            0 => Ok(()),
            number => Err(Failure { number, name: self.name_of(number) }),
        }
    }

    #[cold]
    fn name_of(&self, number: u32) -> &'static str {
        let mut name: *const c_char = ptr::null();
        // SAFETY: writes one pointer; an unknown number is refused.
        let result = unsafe { (self.table.cuGetErrorName)(number, &raw mut name) };
        if result != 0 || name.is_null() {
            return "";
        }
        // SAFETY: the driver's names are C strings in its library, which is never unloaded.
        let name: &'static CStr = unsafe { CStr::from_ptr(name) };
        name.to_str().unwrap_or_default()
    }

    pub(crate) fn device_count(&self) -> Result<u32, Failure> {
        let mut count = 0;
        // SAFETY: writes one number.
        self.check(unsafe { (self.table.cuDeviceGetCount)(&raw mut count) })?;
        Ok(count.cast_unsigned())
    }

    pub(crate) fn device(&self, ordinal: u32) -> Result<DeviceId, Failure> {
        let mut device = 0;
        // SAFETY: writes one number; an ordinal that does not exist is refused.
        self.check(unsafe { (self.table.cuDeviceGet)(&raw mut device, ordinal.cast_signed()) })?;
        Ok(DeviceId(device))
    }

    /// An attribute of a device, 0 where the driver does not know it.
    pub(crate) fn attribute(&self, device: DeviceId, attribute: Attribute) -> c_int {
        let mut value = 0;
        let get = self.table.cuDeviceGetAttribute;
        // SAFETY: writes one number; unknown attributes are refused.
        let result = unsafe { get(&raw mut value, attribute as c_int, device.0) };
        if result == 0 { value } else { 0 }
    }

    pub(crate) fn total_bytes(&self, device: DeviceId) -> Result<u64, Failure> {
        let mut bytes = 0;
        // SAFETY: writes one number.
        self.check(unsafe { (self.table.cuDeviceTotalMem_v2)(&raw mut bytes, device.0) })?;
        Ok(bytes as u64)
    }

    /// What other processes know the device, or its part (MIG), by; zeros before CUDA 11.4.
    pub(crate) fn uuid(&self, device: DeviceId) -> [u8; 16] {
        let mut uuid = [0; 16];
        // SAFETY: writes 16 bytes.
        let status = unsafe { (self.table.cuDeviceGetUuid_v2)(&raw mut uuid, device.0) };
        if status == 0 { uuid } else { [0; 16] }
    }

    /// Makes the device's primary context, or takes part in it.
    pub(crate) fn retain_primary_context(&self, device: DeviceId) -> Result<Context, Failure> {
        let mut context = ptr::null_mut();
        // SAFETY: writes one pointer.
        self.check(unsafe { (self.table.cuDevicePrimaryCtxRetain)(&raw mut context, device.0) })?;
        Ok(Context(context.expose_provenance()))
    }

    /// Whether a device has a primary context at the moment.
    pub(crate) fn has_primary_context(&self, device: DeviceId) -> Result<bool, Failure> {
        let (mut flags, mut is_active) = (0, 0);
        let state = self.table.cuDevicePrimaryCtxGetState;
        // SAFETY: writes two numbers.
        self.check(unsafe { state(device.0, &raw mut flags, &raw mut is_active) })?;
        Ok(is_active != 0)
    }

    /// The driver's id of a device's primary context, which no other ever has; `None` if there is
    /// none at the moment. Asks of no context from before.
    pub(crate) fn primary_context_id(&self, device: DeviceId) -> Result<Option<u64>, Failure> {
        if !self.has_primary_context(device)? {
            return Ok(None);
        }
        let context = self.retain_primary_context(device)?;
        let mut id = 0;
        // SAFETY: writes one number; the context was just retained.
        let asked = self.check(unsafe { (self.table.cuCtxGetId)(context.as_cuda(), &raw mut id) });
        // SAFETY: takes back what was retained here.
        let released = self.check(unsafe { (self.table.cuDevicePrimaryCtxRelease_v2)(device.0) });
        asked.and(released).map(|()| Some(id))
    }

    /// The calling thread's context, if it has one.
    pub(crate) fn current_context(&self) -> Result<Option<Context>, Failure> {
        let mut context = ptr::null_mut();
        // SAFETY: writes one pointer.
        self.check(unsafe { (self.table.cuCtxGetCurrent)(&raw mut context) })?;
        Ok((!context.is_null()).then(|| Context(context.expose_provenance())))
    }

    pub(crate) fn set_current_context(&self, context: Option<Context>) -> Result<(), Failure> {
        let context = context.map_or(ptr::null_mut(), Context::as_cuda);
        // SAFETY: it is null or was the driver's; one destroyed since is refused.
        self.check(unsafe { (self.table.cuCtxSetCurrent)(context) })
    }

    /// The device of the current context. CUDA numbers devices (`CUdevice`) by their ordinals.
    pub(crate) fn current_device(&self) -> Result<u32, Failure> {
        let mut device = 0;
        // SAFETY: writes one number.
        self.check(unsafe { (self.table.cuCtxGetDevice)(&raw mut device) })?;
        Ok(device.cast_unsigned())
    }

    pub(crate) fn synchronize_context(&self) -> Result<(), Failure> {
        // SAFETY: has no arguments.
        self.check(unsafe { (self.table.cuCtxSynchronize)() })
    }

    /// Whether `device` can reach the memory of `peer`.
    pub(crate) fn can_access_peer(
        &self,
        device: DeviceId,
        peer: DeviceId,
    ) -> Result<bool, Failure> {
        let mut can = 0;
        // SAFETY: writes one number.
        self.check(unsafe { (self.table.cuDeviceCanAccessPeer)(&raw mut can, device.0, peer.0) })?;
        Ok(can != 0)
    }

    /// Lets the current context reach the memory of another.
    pub(crate) fn enable_peer_access(&self, to: Context) -> Result<(), Failure> {
        // SAFETY: the context is a primary one that is never released; flags must be 0.
        match self.check(unsafe { (self.table.cuCtxEnablePeerAccess)(to.as_cuda(), 0) }) {
            Err(failure) if failure.number == Failure::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            done => done,
        }
    }
}
