//! What can be asked of an address: of a block of ours what the driver says of memory of its pools.
//!
//! Where the program's own allocator is Drystone, we tell of mapped memory what is one allocation
//! to other processes, where the driver tells of a mapping.

use std::ffi::{c_int, c_uint};

use drystone_process::barrier::barrier;
use drystone_process::device::Device;

use crate::driver::{self, Driver, Place, SUCCESS};
use crate::hook::hooks;
use crate::ipc;
use crate::memory::block_around;
use crate::pools;

/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR`, and so on.
const RANGE_START: c_int = 11;
const RANGE_BYTES: c_int = 12;
const ALLOWED_HANDLES: c_int = 14;
const POOL: c_int = 17;

fn differs(attribute: c_int) -> bool {
    let is_range = matches!(attribute, RANGE_START | RANGE_BYTES);
    (is_range && !driver::hands_on())
        || (matches!(attribute, ALLOWED_HANDLES | POOL) && driver::is_serving())
}

/// Where what an address lies in begins, and how large it is. The device, if it is a block.
fn range_around(address: u64) -> Option<(Option<&'static Device>, u64, u64)> {
    if let Some(opened) = ipc::opened_around(address) {
        return Some((None, opened.start, opened.end - opened.start));
    }
    if driver::is_serving() {
        return block_around(address).map(|(device, start, bytes)| (Some(device), start, bytes));
    }
    let (_, addresses) = ipc::allocation_around(address)?;
    Some((None, addresses.start, addresses.end - addresses.start))
}

/// An attribute of a block that starts there, has so many bytes, and is a device's.
fn answer(
    driver: &Driver,
    attribute: c_int,
    (device, start, bytes): (Option<&Device>, u64, u64),
) -> Option<u64> {
    match attribute {
        RANGE_START => Some(start),
        RANGE_BYTES => Some(bytes),
        ALLOWED_HANDLES => device.map(|_| 0),
        POOL => Some(pools::pool_of(driver, start, device?)?.addr() as u64),
        _ => None,
    }
}

hooks! {
    fn cuPointerGetAttribute(
        to: Place, attribute: c_int, address: u64
    ) in both |driver, drivers| {
        let status = drivers();
        let find = || answer(driver, attribute, range_around(address)?);
        if status == SUCCESS
            && differs(attribute)
            && let Some(value) = barrier(None, find)
        {
            // SAFETY: the driver writes these attributes as such numbers.
            unsafe { to.cast::<u64>().write_unaligned(value) };
        }
        status
    }

    fn cuPointerGetAttributes(
        count: c_uint, attributes: *const c_int, places: *const Place, address: u64
    ) in both |driver, drivers| {
        let status = drivers();
        if status != SUCCESS || attributes.is_null() || places.is_null() {
            return status;
        }
        // SAFETY: so many, by the caller's word; the driver has read them.
        let attributes = unsafe { std::slice::from_raw_parts(attributes, count as usize) };
        // SAFETY: as above.
        let places = unsafe { std::slice::from_raw_parts(places, count as usize) };
        if attributes.iter().copied().any(differs)
            && let Some(block) = barrier(None, || range_around(address))
        {
            for (&attribute, &to) in attributes.iter().zip(places) {
                if let Some(value) = barrier(None, || answer(driver, attribute, block)) {
                    // SAFETY: the driver writes these attributes as such numbers.
                    unsafe { to.cast::<u64>().write_unaligned(value) };
                }
            }
        }
        status
    }
}
