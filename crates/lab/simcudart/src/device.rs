//! Devices: versions, attributes, limits, flags, addresses on the bus, access to their memory.

use crate::context::{check_device, device, initialize, make_current, primary};
use crate::driver::{self, Handle};
use crate::error::{self, Outcome, done};
use crate::export::{adapt, exports, forward, tell};
use std::ffi::{c_char, c_int, c_uint, c_void};

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

forward! { without context:
    cudaDeviceGetAttribute =>
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    cudaDeviceGetPCIBusId => cuDeviceGetPCIBusId(id: *mut c_char, size: c_int, device: c_int);
    cudaDeviceGetByPCIBusId => cuDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char);
}

adapt! {
    cudaDriverGetVersion(version: *mut c_int) => driver::cuDriverGetVersion(version);
}

exports! {
    /// `cudaRuntimeGetVersion` of `libcudart.so.12`.
    fn cudaRuntimeGetVersion_v12(version: *mut c_int) {
        // SAFETY: the caller passes room for a number.
        unsafe { tell(version, RUNTIME_12) }
    }

    /// `cudaRuntimeGetVersion` of `libcudart.so.13`.
    fn cudaRuntimeGetVersion_v13(version: *mut c_int) {
        // SAFETY: the caller passes room for a number.
        unsafe { tell(version, RUNTIME_13) }
    }

    /// Tells the flags of this thread's device.
    fn cudaGetDeviceFlags(flags: *mut c_uint) {
        if flags.is_null() {
            return Err(error::INVALID_VALUE);
        }
        initialize()?;
        let mut is_active = 0;
        // SAFETY: the caller passes room for the flags; the other pointer is to a local.
        done(unsafe { driver::cuDevicePrimaryCtxGetState(device(), flags, &raw mut is_active) })
    }

    /// Sets the flags of this thread's device.
    fn cudaSetDeviceFlags(flags: c_uint) {
        initialize()?;
        done(driver::cuDevicePrimaryCtxSetFlags_v2(device(), flags))
    }

    /// Takes the first device: all are alike.
    fn cudaChooseDevice(device: *mut c_int, wanted: *const c_void) {
        if device.is_null() || wanted.is_null() {
            return Err(error::INVALID_VALUE);
        }
        check_device(0)?;
        // SAFETY: the caller passes room for an ordinal.
        unsafe { tell(device, 0) }
    }
}

forward! { without context:
    cudaDeviceCanAccessPeer => cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
    cudaDeviceGetP2PAttribute =>
        cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, from: c_int, to: c_int);
}

/// The context of a peer, with one of this thread's own device current.
fn context_of(peer: c_int) -> Outcome<Handle> {
    make_current()?;
    check_device(peer)?;
    primary(peer)
}

exports! {
    /// Lets this thread's device use the memory of another.
    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        let context = context_of(peer)?;
        // SAFETY: the context is alive: it is held until the device is reset.
        done(unsafe { driver::cuCtxEnablePeerAccess(context, flags) })
    }

    /// Takes the access back.
    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        let context = context_of(peer)?;
        // SAFETY: the context is alive: it is held until the device is reset.
        done(unsafe { driver::cuCtxDisablePeerAccess(context) })
    }
}
