//! Access from one device to another's memory.

use std::ffi::{c_int, c_uint};

use crate::context::{check_device, in_context, in_driver, primary};
use crate::driver::{self, Handle, Status};
use crate::error;

/// Whether a device may be given access to another's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceCanAccessPeer(
    can: *mut c_int,
    device: c_int,
    peer: c_int,
) -> Status {
    // SAFETY: the caller keeps the contract of the CUDA function, which is the driver's.
    in_driver(|| unsafe { driver::cuDeviceCanAccessPeer(can, device, peer) })
}

/// Tells one number about the way between two devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetP2PAttribute(
    value: *mut c_int,
    attribute: c_int,
    from: c_int,
    to: c_int,
) -> Status {
    // SAFETY: the caller keeps the contract of the CUDA function, which is the driver's.
    in_driver(|| unsafe { driver::cuDeviceGetP2PAttribute(value, attribute, from, to) })
}

/// Lets this thread's device use the memory of another.
#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> Status {
    with_context_of(peer, |context| {
        // SAFETY: the context is alive: it is held until the device is reset.
        unsafe { driver::cuCtxEnablePeerAccess(context, flags) }
    })
}

/// Takes the access back.
#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceDisablePeerAccess(peer: c_int) -> Status {
    with_context_of(peer, |context| {
        // SAFETY: the context is alive: it is held until the device is reset.
        unsafe { driver::cuCtxDisablePeerAccess(context) }
    })
}

fn with_context_of(peer: c_int, call: impl FnOnce(Handle) -> Status) -> Status {
    in_context(|| match check_device(peer) {
        error::SUCCESS => primary(peer).map_or_else(|status| status, call),
        status => status,
    })
}
