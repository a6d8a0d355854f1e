//! Devices: versions, attributes, limits, flags, addresses on the bus, access to their memory.

use crate::context::{check_device, device, initialize, make_current, primary};
use crate::driver::{self, Handle, Out};
use crate::error::{self, Outcome, done};
use crate::export::{exports, forward};
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

exports! {
    fn cudaDriverGetVersion(version: Out<c_int>) { done(driver::cuDriverGetVersion(version)) }

    /// `cudaRuntimeGetVersion` of `libcudart.so.12`.
    fn cudaRuntimeGetVersion_v12(version: Out<c_int>) {
        version.tell(RUNTIME_12)
    }

    /// `cudaRuntimeGetVersion` of `libcudart.so.13`.
    fn cudaRuntimeGetVersion_v13(version: Out<c_int>) {
        version.tell(RUNTIME_13)
    }

    fn cudaGetDeviceFlags(flags: Out<c_uint>) {
        if flags.is_null() {
            return Err(error::INVALID_VALUE);
        }
        initialize()?;
        let mut is_active = 0;
        done(driver::cuDevicePrimaryCtxGetState(device(), flags, &mut is_active))
    }

    fn cudaSetDeviceFlags(flags: c_uint) {
        initialize()?;
        done(driver::cuDevicePrimaryCtxSetFlags_v2(device(), flags))
    }

    /// Takes the first device: all are alike.
    fn cudaChooseDevice(device: Out<c_int>, wanted: *const c_void) {
        if wanted.is_null() {
            return Err(error::INVALID_VALUE);
        }
        check_device(0)?;
        device.tell(0)
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

    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        let context = context_of(peer)?;
        // SAFETY: the context is alive: it is held until the device is reset.
        done(unsafe { driver::cuCtxDisablePeerAccess(context) })
    }
}
