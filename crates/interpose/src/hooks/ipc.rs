//! Memory for other processes, and theirs: of ours, which the driver refuses to share by these, we
//! answer for ourselves.

use std::ffi::c_uint;

use drystone_process::barrier::barrier;

use crate::driver::{self, SUCCESS};
use crate::hook::hooks;
use crate::ipc::{self, token::Token};

/// `CUDA_ERROR_UNKNOWN`.
const UNKNOWN: driver::Status = 999;

hooks! {
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
