//! Memory: taken and given back, of the device, managed and of the host; pools of it; what an
//! address is.
//!
//! Invariant: nothing of size zero reaches the driver, which refuses it; here it is null.

use crate::context::{initialize, make_current};
use crate::driver::{self, Address, Handle, IpcHandle, Location, Out, Stream};
use crate::error::{self, Outcome, Status, done};
use crate::export::{adapt, exports, forward};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

forward! {
    cudaMallocAsync / cudaMallocAsync_ptsz =>
        cuMemAllocAsync(address: *mut Address, size: usize, stream: Stream);
    cudaMallocFromPoolAsync / cudaMallocFromPoolAsync_ptsz =>
        cuMemAllocFromPoolAsync(address: *mut Address, size: usize, pool: Handle, stream: Stream);
    cudaFreeAsync / cudaFreeAsync_ptsz => cuMemFreeAsync(address: Address, stream: Stream);
    cudaMallocManaged => cuMemAllocManaged(address: *mut Address, size: usize, flags: c_uint);
    cudaHostRegister => cuMemHostRegister_v2(address: Address, size: usize, flags: c_uint);
    cudaHostUnregister => cuMemHostUnregister(address: Address);
    cudaHostGetDevicePointer =>
        cuMemHostGetDevicePointer_v2(to: *mut Address, host: Address, flags: c_uint);
    cudaHostGetFlags => cuMemHostGetFlags(flags: *mut c_uint, host: Address);
    cudaMemAdvise_v2 =>
        cuMemAdvise_v2(address: Address, size: usize, advice: c_int, at: Location);
    cudaMemPrefetchAsync_v2 / cudaMemPrefetchAsync_v2_ptsz => cuMemPrefetchAsync_v2(
        address: Address, size: usize, to: Location, flags: c_uint, stream: Stream);
    cudaMemRangeGetAttribute => cuMemRangeGetAttribute(
        value: *mut c_void, size: usize, attribute: c_int, address: Address, count: usize);
    cudaStreamAttachMemAsync / cudaStreamAttachMemAsync_ptsz => cuStreamAttachMemAsync(
        stream: Stream, address: Address, size: usize, flags: c_uint);
    cudaIpcGetMemHandle => cuIpcGetMemHandle(handle: *mut IpcHandle, address: Address);
    cudaIpcOpenMemHandle =>
        cuIpcOpenMemHandle_v2(address: *mut Address, handle: IpcHandle, flags: c_uint);
    cudaIpcCloseMemHandle => cuIpcCloseMemHandle(address: Address);
}

/// Asks for memory; nothing for size zero.
fn take(to: Out<Address>, size: usize, ask: impl FnOnce() -> Status) -> Outcome {
    if to.is_null() {
        return Err(error::INVALID_VALUE);
    }
    make_current()?;
    if size == 0 { to.tell(ptr::null_mut()) } else { done(ask()) }
}

/// Gives memory back; null is allowed, and makes a context.
fn give_back(address: Address, free: unsafe extern "C" fn(Address) -> Status) -> Outcome {
    make_current()?;
    // SAFETY: the caller gives up the address.
    if address.is_null() { Ok(()) } else { done(unsafe { free(address) }) }
}

/// Where CUDA 12 means by a number: a device, or the host for less than zero.
fn location(device: c_int) -> Location {
    const DEVICE: c_int = 1;
    const HOST: c_int = 2;
    if device < 0 {
        Location { kind: HOST, ordinal: 0 }
    } else {
        Location { kind: DEVICE, ordinal: device }
    }
}

exports! {
    /// Takes memory of this thread's device.
    fn cudaMalloc(address: Out<Address>, size: usize) {
        take(address, size, || driver::cuMemAlloc_v2(address, size))
    }

    /// Takes memory for rows, each aligned.
    fn cudaMallocPitch(address: Out<Address>, pitch: Out<usize>, width: usize, height: usize) {
        /// The widest element a kernel reads at once.
        const ELEMENT: c_uint = 16;
        let ask = || driver::cuMemAllocPitch_v2(address, pitch, width, height, ELEMENT);
        take(address, width.saturating_mul(height), ask)
    }

    /// Takes host memory that the device may read.
    fn cudaHostAlloc(address: Out<Address>, size: usize, flags: c_uint) {
        take(address, size, || driver::cuMemHostAlloc(address, size, flags))
    }

    fn cudaFree(address: Address) { give_back(address, driver::cuMemFree_v2) }

    fn cudaFreeHost(address: Address) { give_back(address, driver::cuMemFreeHost) }
}

adapt! {
    cudaMallocHost(address: Out<Address>, size: usize) => cudaHostAlloc(address, size, 0);
    // As CUDA 12 has them.
    cudaMemAdvise_v1(address: Address, size: usize, advice: c_int, device: c_int) =>
        cudaMemAdvise_v2(address, size, advice, location(device));
    cudaMemPrefetchAsync_v1 / cudaMemPrefetchAsync_v1_ptsz (
        address: Address, size: usize, device: c_int, stream: Stream
    ) => cudaMemPrefetchAsync_v2(address, size, location(device), 0, stream);
}

forward! {
    cudaMemPoolCreate => cuMemPoolCreate(pool: *mut Handle, properties: *const c_void);
    cudaMemPoolDestroy => cuMemPoolDestroy(pool: Handle);
    cudaMemPoolTrimTo => cuMemPoolTrimTo(pool: Handle, keep: usize);
    cudaMemPoolGetAttribute =>
        cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cudaMemPoolSetAttribute =>
        cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cudaMemPoolSetAccess =>
        cuMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize);
    cudaMemPoolGetAccess =>
        cuMemPoolGetAccess(flags: *mut c_int, pool: Handle, at: *mut Location);
    cudaMemGetDefaultMemPool =>
        cuMemGetDefaultMemPool(pool: *mut Handle, at: *mut Location, kind: c_int);
    cudaMemGetMemPool => cuMemGetMemPool(pool: *mut Handle, at: *mut Location, kind: c_int);
    cudaMemSetMemPool => cuMemSetMemPool(at: *mut Location, kind: c_int, pool: Handle);
    cudaMemPoolExportPointer => cuMemPoolExportPointer(data: *mut c_void, address: Address);
    cudaMemPoolImportPointer =>
        cuMemPoolImportPointer(address: *mut Address, pool: Handle, data: *mut c_void);
}

forward! { without context:
    cudaDeviceGetDefaultMemPool => cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    cudaDeviceGetMemPool => cuDeviceGetMemPool(pool: *mut Handle, device: c_int);
    cudaDeviceSetMemPool => cuDeviceSetMemPool(device: c_int, pool: Handle);
}

// The driver's flags are wider.
adapt! { with make_current:
    cudaMemPoolExportToShareableHandle(to: *mut c_void, pool: Handle, kind: c_int, flags: c_uint) =>
        driver::cuMemPoolExportToShareableHandle(to, pool, kind, flags.into());
    cudaMemPoolImportFromShareableHandle (
        to: *mut Handle, from: *mut c_void, kind: c_int, flags: c_uint
    ) => driver::cuMemPoolImportFromShareableHandle(to, from, kind, flags.into());
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

exports! {
    fn cudaPointerGetAttributes(to: Out<PointerAttributes>, address: Address) {
        make_current()?;
        to.tell(attributes_of(address))
    }
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
