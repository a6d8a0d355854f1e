//! Memory: taken and given back, of the device, managed and of the host; what an address is.
//!
//! Invariant: nothing of size zero reaches the driver, which refuses it; here it is null.

use std::ffi::{c_int, c_uint};
use std::ptr;

use crate::context::in_context;
use crate::driver::{self, Address, Handle, IpcHandle, Status, Stream};
use crate::error;
use crate::forward::forward;
use crate::last_error::record;

forward! {
    cudaMallocAsync / cudaMallocAsync_ptsz =>
        cuMemAllocAsync(address: *mut Address, size: usize, stream: Stream);
    cudaMallocFromPoolAsync / cudaMallocFromPoolAsync_ptsz =>
        cuMemAllocFromPoolAsync(address: *mut Address, size: usize, pool: Handle, stream: Stream);
    cudaFreeAsync / cudaFreeAsync_ptsz => cuMemFreeAsync(address: Address, stream: Stream);
    cudaHostRegister => cuMemHostRegister_v2(address: Address, size: usize, flags: c_uint);
    cudaHostUnregister => cuMemHostUnregister(address: Address);
    cudaHostGetDevicePointer =>
        cuMemHostGetDevicePointer_v2(to: *mut Address, host: Address, flags: c_uint);
    cudaHostGetFlags => cuMemHostGetFlags(flags: *mut c_uint, host: Address);
    cudaIpcGetMemHandle => cuIpcGetMemHandle(handle: *mut IpcHandle, address: Address);
    cudaIpcOpenMemHandle =>
        cuIpcOpenMemHandle_v2(address: *mut Address, handle: IpcHandle, flags: c_uint);
    cudaIpcCloseMemHandle => cuIpcCloseMemHandle(address: Address);
}

/// Asks for memory; nothing for size zero.
unsafe fn take(to: *mut Address, size: usize, ask: impl FnOnce() -> Status) -> Status {
    if to.is_null() {
        return record(error::INVALID_VALUE);
    }
    in_context(|| {
        if size == 0 {
            // SAFETY: the caller passes room for an address.
            unsafe { to.write(ptr::null_mut()) };
            return error::SUCCESS;
        }
        ask()
    })
}

/// Takes memory of this thread's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(address: *mut Address, size: usize) -> Status {
    // SAFETY: the caller passes room for an address.
    let ask = || unsafe { driver::cuMemAlloc_v2(address, size) };
    // SAFETY: the same.
    unsafe { take(address, size, ask) }
}

/// Takes memory that the device and the host may use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocManaged(
    address: *mut Address,
    size: usize,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller passes room for an address.
    in_context(|| unsafe { driver::cuMemAllocManaged(address, size, flags) })
}

/// Takes memory for rows, each aligned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocPitch(
    address: *mut Address,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> Status {
    /// The widest element a kernel reads at once.
    const ELEMENT: c_uint = 16;
    // SAFETY: the caller passes room for an address and a pitch.
    let ask = || unsafe { driver::cuMemAllocPitch_v2(address, pitch, width, height, ELEMENT) };
    // SAFETY: the same.
    unsafe { take(address, width.saturating_mul(height), ask) }
}

/// Takes host memory that the device may read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaHostAlloc(
    address: *mut Address,
    size: usize,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller passes room for an address.
    let ask = || unsafe { driver::cuMemHostAlloc(address, size, flags) };
    // SAFETY: the same.
    unsafe { take(address, size, ask) }
}

/// The same without flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocHost(address: *mut Address, size: usize) -> Status {
    // SAFETY: the contract is the same.
    unsafe { cudaHostAlloc(address, size, 0) }
}

/// Gives device memory back; null is allowed, and makes a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFree(address: Address) -> Status {
    in_context(|| {
        if address.is_null() {
            return error::SUCCESS;
        }
        // SAFETY: the caller gives up the address.
        unsafe { driver::cuMemFree_v2(address) }
    })
}

/// Gives host memory back; null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFreeHost(address: Address) -> Status {
    in_context(|| {
        if address.is_null() {
            return error::SUCCESS;
        }
        // SAFETY: the caller gives up the address.
        unsafe { driver::cuMemFreeHost(address) }
    })
}

/// What is told of an address. CUDA 13 added reserved room behind it, which is not written.
#[repr(C)]
pub struct PointerAttributes {
    /// 0 unknown to CUDA, 1 host, 2 device, 3 managed.
    kind: c_int,
    device: c_int,
    device_address: Address,
    host_address: Address,
}

/// Numbers of the driver's pointer attributes.
mod pointer_attribute {
    use std::ffi::c_int;
    pub const MEMORY_TYPE: c_int = 2;
    pub const DEVICE_POINTER: c_int = 3;
    pub const HOST_POINTER: c_int = 4;
    pub const IS_MANAGED: c_int = 8;
    pub const DEVICE_ORDINAL: c_int = 9;
}

/// Tells where an address is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPointerGetAttributes(
    to: *mut PointerAttributes,
    address: Address,
) -> Status {
    if to.is_null() {
        return record(error::INVALID_VALUE);
    }
    in_context(|| {
        let attributes = attributes_of(address);
        // SAFETY: the caller passes room for the attributes.
        unsafe { to.write(attributes) };
        error::SUCCESS
    })
}

fn attributes_of(address: Address) -> PointerAttributes {
    /// `cudaInvalidDeviceId`
    const NO_DEVICE: c_int = -2;
    const HOST: c_int = 1;
    const MANAGED: c_int = 3;
    let ask = |attribute, default| ask(attribute, address, default);
    let Some(kind) = ask(pointer_attribute::MEMORY_TYPE, 0_i32) else {
        return PointerAttributes {
            kind: 0,
            device: NO_DEVICE,
            device_address: ptr::null_mut(),
            host_address: address,
        };
    };
    let is_managed = ask(pointer_attribute::IS_MANAGED, 0_i32).is_some_and(|is| is & 1 != 0);
    let kind = if is_managed { MANAGED } else { kind };
    let pointer = |attribute| self::ask(attribute, address, ptr::null_mut()).unwrap_or_default();
    PointerAttributes {
        kind,
        device: ask(pointer_attribute::DEVICE_ORDINAL, 0_i32).unwrap_or(0),
        device_address: pointer(pointer_attribute::DEVICE_POINTER),
        host_address: match kind {
            HOST | MANAGED => pointer(pointer_attribute::HOST_POINTER),
            _ => ptr::null_mut(),
        },
    }
}

/// One attribute of an address, of the type that the driver writes; none if it knows no such.
fn ask<T>(attribute: c_int, address: Address, mut value: T) -> Option<T> {
    let to = (&raw mut value).cast();
    // SAFETY: every attribute asked for is at most as large as the value, a local.
    let status = unsafe { driver::cuPointerGetAttribute(to, attribute, address) };
    (status == error::SUCCESS).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_layout_of_cuda_12_with_room_behind_in_13() {
        assert_eq!(size_of::<PointerAttributes>(), 24);
        assert_eq!(std::mem::offset_of!(PointerAttributes, host_address), 16);
    }
}
