//! Devices: versions, attributes, limits, flags, addresses on the bus.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::context::{self, check_device, in_driver};
use crate::driver::{self, Status};
use crate::error;
use crate::forward::forward;
use crate::last_error::record;

/// The version of `libcudart.so.12` and of `libcudart.so.13`.
pub const RUNTIME_12: c_int = 12_080;
pub const RUNTIME_13: c_int = 13_000;

forward! {
    cudaDeviceSynchronize => cuCtxSynchronize();
    cudaDeviceGetStreamPriorityRange => cuCtxGetStreamPriorityRange(
        least: *mut c_int, greatest: *mut c_int);
    cudaDeviceGetLimit => cuCtxGetLimit(value: *mut usize, limit: c_int);
    cudaDeviceSetLimit => cuCtxSetLimit(limit: c_int, value: usize);
    cudaDeviceGetCacheConfig => cuCtxGetCacheConfig(preference: *mut c_int);
    cudaDeviceSetCacheConfig => cuCtxSetCacheConfig(preference: c_int);
    cudaCtxResetPersistingL2Cache => cuCtxResetPersistingL2Cache();
    cudaDeviceFlushGPUDirectRDMAWrites =>
        cuFlushGPUDirectRDMAWrites(target: c_int, scope: c_int);
    cudaProfilerStart => cuProfilerStart();
    cudaProfilerStop => cuProfilerStop();
    cudaMemGetInfo => cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
}

/// Tells the newest CUDA that the driver serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller passes room for a number.
    record(unsafe { driver::cuDriverGetVersion(version) })
}

/// `cudaRuntimeGetVersion` of `libcudart.so.12`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion_v12(version: *mut c_int) -> Status {
    // SAFETY: the caller passes room for a number.
    unsafe { tell_version(version, RUNTIME_12) }
}

/// `cudaRuntimeGetVersion` of `libcudart.so.13`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion_v13(version: *mut c_int) -> Status {
    // SAFETY: the caller passes room for a number.
    unsafe { tell_version(version, RUNTIME_13) }
}

unsafe fn tell_version(to: *mut c_int, version: c_int) -> Status {
    if to.is_null() {
        return record(error::INVALID_VALUE);
    }
    // SAFETY: the caller passes room for a number.
    unsafe { to.write(version) };
    error::SUCCESS
}

/// Tells one number about a device; both APIs number them alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> Status {
    // SAFETY: the caller keeps the contract of the CUDA function, which is the driver's.
    in_driver(|| unsafe { driver::cuDeviceGetAttribute(value, attribute, device) })
}

/// Tells a device's address on the bus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetPCIBusId(
    id: *mut c_char,
    size: c_int,
    device: c_int,
) -> Status {
    // SAFETY: the caller keeps the contract of the CUDA function, which is the driver's.
    in_driver(|| unsafe { driver::cuDeviceGetPCIBusId(id, size, device) })
}

/// Finds a device by its address on the bus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) -> Status {
    // SAFETY: the caller keeps the contract of the CUDA function, which is the driver's.
    in_driver(|| unsafe { driver::cuDeviceGetByPCIBusId(device, id) })
}

/// Tells the flags of this thread's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceFlags(flags: *mut c_uint) -> Status {
    if flags.is_null() {
        return record(error::INVALID_VALUE);
    }
    in_driver(|| {
        let mut is_active = 0;
        let device = context::device();
        // SAFETY: the caller passes room for the flags; the other pointer is to a local.
        unsafe { driver::cuDevicePrimaryCtxGetState(device, flags, &raw mut is_active) }
    })
}

/// Sets the flags of this thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDeviceFlags(flags: c_uint) -> Status {
    // SAFETY: takes no pointers.
    in_driver(|| unsafe { driver::cuDevicePrimaryCtxSetFlags_v2(context::device(), flags) })
}

/// Takes the first device: all are alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaChooseDevice(device: *mut c_int, wanted: *const c_void) -> Status {
    let status = check_device(0);
    if device.is_null() || wanted.is_null() {
        return record(error::INVALID_VALUE);
    }
    if status == error::SUCCESS {
        // SAFETY: the caller passes room for an ordinal.
        unsafe { device.write(0) };
    }
    record(status)
}
