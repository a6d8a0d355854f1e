//! Memory: taken and given back, of the device, managed and of the host; what an address is.
//!
//! Invariant: nothing of size zero reaches the driver, which refuses it; here it is null.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::context::make_current;
use crate::driver::{self, Address, Handle, IpcHandle, Location, Stream};
use crate::error::{self, Outcome, Status, done};
use crate::export::{exports, forward, tell};

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
unsafe fn take(to: *mut Address, size: usize, ask: impl FnOnce() -> Status) -> Outcome {
    if to.is_null() {
        return Err(error::INVALID_VALUE);
    }
    make_current()?;
    // SAFETY: the caller passes room for an address.
    if size == 0 { unsafe { tell(to, ptr::null_mut()) } } else { done(ask()) }
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
    fn cudaMalloc(address: *mut Address, size: usize) {
        // SAFETY: the caller passes room for an address.
        let ask = || unsafe { driver::cuMemAlloc_v2(address, size) };
        // SAFETY: the same.
        unsafe { take(address, size, ask) }
    }

    /// Takes memory for rows, each aligned.
    fn cudaMallocPitch(address: *mut Address, pitch: *mut usize, width: usize, height: usize) {
        /// The widest element a kernel reads at once.
        const ELEMENT: c_uint = 16;
        // SAFETY: the caller passes room for an address and a pitch.
        let ask = || unsafe { driver::cuMemAllocPitch_v2(address, pitch, width, height, ELEMENT) };
        // SAFETY: the same.
        unsafe { take(address, width.saturating_mul(height), ask) }
    }

    /// Takes host memory that the device may read.
    fn cudaHostAlloc(address: *mut Address, size: usize, flags: c_uint) {
        // SAFETY: the caller passes room for an address.
        let ask = || unsafe { driver::cuMemHostAlloc(address, size, flags) };
        // SAFETY: the same.
        unsafe { take(address, size, ask) }
    }

    /// The same without flags.
    fn cudaMallocHost(address: *mut Address, size: usize) {
        // SAFETY: the contract is the same.
        done(unsafe { cudaHostAlloc(address, size, 0) })
    }

    /// Gives device memory back.
    fn cudaFree(address: Address) { give_back(address, driver::cuMemFree_v2) }

    /// Gives host memory back.
    fn cudaFreeHost(address: Address) { give_back(address, driver::cuMemFreeHost) }

    /// `cudaMemAdvise` of CUDA 12.
    fn cudaMemAdvise_v1(address: Address, size: usize, advice: c_int, device: c_int) {
        // SAFETY: the contract is the same.
        done(unsafe { cudaMemAdvise_v2(address, size, advice, location(device)) })
    }

    /// `cudaMemPrefetchAsync` of CUDA 12.
    fn cudaMemPrefetchAsync_v1 / cudaMemPrefetchAsync_v1_ptsz (
        address: Address, size: usize, device: c_int, stream: Stream
    ) {
        // SAFETY: the contract is the same.
        done(unsafe { cudaMemPrefetchAsync_v2(address, size, location(device), 0, stream) })
    }
}
