//! What can be asked of an address: of a block of ours what the driver says of memory of its pools.
//!
//! Where the program's own allocator is Drystone, we tell of mapped memory what is one allocation
//! to other processes, where the driver tells of a mapping. Memory that we can give them by the
//! driver's old calls is told to be of such a kind.

use std::ffi::{c_int, c_uint};

use drystone::address_calls;
use drystone_process::barrier::barrier;
use drystone_process::device::Device;

use crate::driver::{self, Driver, Place, SUCCESS};
use crate::hook::hooks;
use crate::ipc;
use crate::memory::block_around;
use crate::pools;

/// `CU_POINTER_ATTRIBUTE_BUFFER_ID`, and so on.
const BUFFER: c_int = 7;
const OLD_CALLS: c_int = 10;
const RANGE_START: c_int = 11;
const RANGE_BYTES: c_int = 12;
const ALLOWED_HANDLES: c_int = 14;
const POOL: c_int = 17;

fn differs(attribute: c_int) -> bool {
    let is_shared = matches!(attribute, BUFFER | OLD_CALLS | RANGE_START | RANGE_BYTES);
    (is_shared && !driver::hands_on())
        || (matches!(attribute, ALLOWED_HANDLES | POOL) && driver::is_serving())
}

/// Where what an address lies in begins, and how large it is. The device, if it is a block.
type Around = (Option<&'static Device>, u64, u64);

fn range_around(address: u64) -> Option<Around> {
    if let Some(opened) = ipc::opened_around(address) {
        return Some((None, opened.start, opened.end - opened.start));
    }
    if driver::is_serving() {
        return block_around(address).map(|(device, start, bytes)| (Some(device), start, bytes));
    }
    let (_, addresses) = ipc::allocation_around(address)?;
    Some((None, addresses.start, addresses.end - addresses.start))
}

/// Answers an attribute of an address, in what lies around it, instead of the driver.
///
/// # Safety
/// The driver has written this attribute there.
unsafe fn answer(driver: &Driver, attribute: c_int, to: Place, address: u64, around: &Around) {
    let &(device, start, bytes) = around;
    let found = || match attribute {
        BUFFER => ipc::buffer_number(driver, address),
        OLD_CALLS => ipc::give(driver, address).map(|_| 1),
        RANGE_START => {
            ipc::tell(address, start, false);
            Some(start)
        }
        RANGE_BYTES => Some(bytes),
        ALLOWED_HANDLES => device.map(|_| 0),
        POOL => Some(pools::pool_of(driver, start, device?)?.addr() as u64),
        _ => None,
    };
    match barrier(None, found) {
        // A truth value of one byte or four, of which the driver wrote that there is none.
        // SAFETY: either way the first byte is the caller's.
        Some(value) if attribute == OLD_CALLS => unsafe { to.cast::<u8>().write(value as u8) },
        // SAFETY: the driver writes the other attributes as such numbers.
        Some(value) => unsafe { to.cast::<u64>().write_unaligned(value) },
        None => {}
    }
}

hooks! {
    fn cuPointerGetAttribute(
        to: Place, attribute: c_int, address: u64
    ) in both |driver, drivers| {
        let status = address_calls::run(drivers);
        if status == SUCCESS
            && differs(attribute)
            && let Some(around) = barrier(None, || range_around(address))
        {
            // SAFETY: as it has answered.
            unsafe { answer(driver, attribute, to, address, &around) };
        }
        status
    }

    fn cuPointerGetAttributes(
        count: c_uint, attributes: *const c_int, places: *const Place, address: u64
    ) in both |driver, drivers| {
        let status = address_calls::run(drivers);
        if status != SUCCESS || attributes.is_null() || places.is_null() {
            return status;
        }
        // SAFETY: so many, by the caller's word; the driver has read them.
        let attributes = unsafe { std::slice::from_raw_parts(attributes, count as usize) };
        // SAFETY: as above.
        let places = unsafe { std::slice::from_raw_parts(places, count as usize) };
        if attributes.iter().copied().any(differs)
            && let Some(around) = barrier(None, || range_around(address))
        {
            for (&attribute, &to) in attributes.iter().zip(places) {
                // SAFETY: as it has answered.
                unsafe { answer(driver, attribute, to, address, &around) };
            }
        }
        status
    }
}
