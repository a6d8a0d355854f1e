//! Access from one device to another's memory.

use std::ffi::{c_int, c_uint};

use crate::context::{check_device, make_current, primary};
use crate::driver::{self, Handle};
use crate::error::{Outcome, done};
use crate::export::{exports, forward};

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
