//! Pins and mapping changes, on device 8; the device of the driver's own pools is 9.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::{DEFAULT, MIB, allocate, message, stats};
use crate::control::{drystone_check, drystone_configure, drystone_trim};
use crate::memory::drystone_deallocate;
use crate::pins::*;
use crate::status::Status;

/// What is backed less what is not any more, and how a trim from within ended.
struct Seen {
    backed: isize,
    trim: Status,
}

unsafe extern "C" fn note(
    data: *mut c_void,
    device: c_int,
    _: *mut c_void,
    bytes: usize,
    is_backed: c_int,
) {
    // SAFETY: the test's own, which outlives the test's device calls, by one thread.
    let seen = unsafe { &mut *data.cast::<Seen>() };
    seen.backed += if is_backed == 1 { bytes as isize } else { -(bytes as isize) };
    // SAFETY: null is allowed.
    seen.trim = unsafe { drystone_trim(device, ptr::null_mut()) };
}

#[test]
fn i16_pinned_memory_outlives_its_block_and_mapping_changes_are_told() {
    let _held = super::HELD.read();
    // Leaked: the device keeps it for good.
    let seen = Box::into_raw(Box::new(Seen { backed: 0, trim: Status::Ok }));
    let data = seen.cast::<c_void>();
    // SAFETY: the function is what it is said to be.
    assert_eq!(unsafe { drystone_on_remap(8, Some(note), data) }, Status::Ok);
    // SAFETY: as above.
    let refused = unsafe { drystone_on_remap(8, None, data) };
    assert_eq!(refused, Status::InvalidValue);
    let (status, block) = allocate(8 * MIB, 8, DEFAULT);
    assert_eq!(status, Status::Ok);
    // SAFETY: no call is under way.
    let backed = || unsafe { (*seen).backed };
    assert_eq!(backed(), 8 * MIB as isize);
    // SAFETY: as above.
    assert_eq!(unsafe { (*seen).trim }, Status::NotSupported);

    assert_eq!(drystone_unpin_mapping(block), Status::UnknownPointer);
    assert!(message().contains("no block is pinned at"), "{}", message());
    assert_eq!(drystone_pin_mapping(block.wrapping_byte_add(512)), Status::InteriorPointer);
    assert_eq!(drystone_pin_mapping(block), Status::Ok);
    assert_eq!(stats(8).pinned_bytes, 8 << 20);
    assert_eq!(drystone_deallocate(block), Status::Ok);
    assert_eq!(drystone_pin_mapping(block), Status::AlreadyFree);
    let trim = || {
        let mut bytes = 0;
        // SAFETY: a local.
        assert_eq!(unsafe { drystone_trim(8, &raw mut bytes) }, Status::Ok);
        bytes
    };
    assert_eq!((trim(), backed()), (0, 8 * MIB as isize));
    assert_eq!(drystone_unpin_mapping(block), Status::Ok);
    assert_eq!((trim(), backed()), (8 * MIB, 0));
    assert_eq!((drystone_check(8), stats(8).pinned_bytes), (Status::Ok, 0));
}

#[test]
fn pools_of_the_drivers_own_cannot_be_pinned() {
    // SAFETY: a C string.
    let configured = unsafe { drystone_configure(9, c"backend:async".as_ptr()) };
    assert_eq!(configured, Status::Ok);
    let (_, block) = allocate(MIB, 9, DEFAULT);
    assert_eq!(drystone_pin_mapping(block), Status::NotSupported);
    assert!(message().contains("use backend:vmm or malloc"), "{}", message());
    // SAFETY: the function is what it is said to be, and never called.
    let refused = unsafe { drystone_on_remap(9, Some(note), ptr::null_mut()) };
    assert_eq!(refused, Status::NotSupported);
    assert_eq!(drystone_deallocate(block), Status::Ok);
}
