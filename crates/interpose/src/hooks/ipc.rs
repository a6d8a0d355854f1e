//! Memory for other processes, and theirs: of ours, which the driver refuses to share by the old
//! calls, we answer for ourselves. And calls that say that memory gets known elsewhere.

use std::ffi::{c_int, c_uint};
use std::ops::Range;

use drystone::SharedBy;
use drystone_process::barrier::barrier;
use drystone_process::{self as process, registry};

use crate::driver::{self, Place, SUCCESS};
use crate::hook::hooks;
use crate::ipc::{self, token::Token};
use crate::memory::block_around;

/// `CUDA_ERROR_INVALID_VALUE`: what the driver says of memory that it gave in stream order.
const INVALID_VALUE: driver::Status = 1;
/// `CUDA_ERROR_UNKNOWN`.
const UNKNOWN: driver::Status = 999;

/// Somebody asks which memory is behind addresses, to register it: it does not move from then on.
fn note_registered(addresses: Range<u64>, by: SharedBy) {
    let note = || {
        if !driver::hands_on() && process::check().is_ok() {
            registry::in_use().any(|device| device.allocator.keep_in_place(addresses.clone(), by));
        }
    };
    barrier((), note);
}

hooks! {
    fn cuMemRetainAllocationHandle(to: *mut u64, address: Place) in both |_, drivers| {
        let start = address.addr() as u64;
        // Who was told how large a block is would map as much of its first handle.
        if ipc::is_part(start)
            || (driver::is_serving() && barrier(None, || block_around(start)).is_some())
        {
            return INVALID_VALUE;
        }
        note_registered(start..start.saturating_add(1), SharedBy::Retain);
        drivers()
    }

    fn cuMemGetHandleForAddressRange(
        to: Place, address: u64, bytes: usize, kind: c_int, flags: u64
    ) in both |_, drivers| {
        let addresses = address..address.saturating_add(bytes as u64);
        note_registered(addresses, SharedBy::AddressRange);
        drivers()
    }

    // `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, which is set before a network card gets the addresses.
    fn cuPointerSetAttribute(value: Place, what: c_int, address: u64) in both |_, drivers| {
        let found = barrier(None, || ipc::allocation_around(address));
        if let Some((_, addresses)) = found {
            note_registered(addresses, SharedBy::Attribute);
        }
        drivers()
    }

    fn cuIpcGetMemHandle(to: *mut Token, address: u64) in both |driver, drivers| {
        let give = || if to.is_null() { None } else { ipc::give(driver, address) };
        let Some(token) = barrier(None, give) else { return drivers() };
        // SAFETY: by the caller's word.
        unsafe { to.write_unaligned(token) };
        SUCCESS
    }

    fn cuIpcOpenMemHandle_v2(
        to: *mut u64, handle: Token, flags: c_uint
    ) in both |driver, drivers| {
        /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which the driver insists on.
        const LAZY: c_uint = 1;
        let is_ours = !to.is_null() && flags == LAZY && !driver::hands_on();
        let Some(named) = handle.named().filter(|_| is_ours) else { return drivers() };
        match barrier(Err(UNKNOWN), || ipc::open(driver, named)) {
            Ok(address) => {
                // SAFETY: by the caller's word.
                unsafe { to.write_unaligned(address) };
                SUCCESS
            }
            Err(status) => status,
        }
    }

    fn cuIpcCloseMemHandle(address: u64) in both |_, drivers| {
        if barrier(false, || ipc::close(address)) { SUCCESS } else { drivers() }
    }
}
