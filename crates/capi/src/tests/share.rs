//! Memory that goes from process to process, on device 8; device 9 has the driver's own pools.

use std::ffi::c_void;
use std::ptr;

use super::{DEFAULT, MIB, allocate, message, stats};
use crate::memory::drystone_deallocate;
use crate::share::*;
use crate::status::Status;

const NOTHING: CSharedHandle = CSharedHandle { bytes: 0, descriptor: -1 };

/// The handles of a block, where there is room for so many, and its offset.
fn export(block: *mut c_void, room: usize) -> (Status, Vec<CSharedHandle>, usize) {
    let (mut handles, mut count, mut offset) = (vec![NOTHING; room], room, usize::MAX);
    // SAFETY: locals, and as much room as is said.
    let status =
        unsafe { drystone_export(block, handles.as_mut_ptr(), &raw mut count, &raw mut offset) };
    handles.resize(count, NOTHING);
    (status, handles, offset)
}

fn import(handles: &[CSharedHandle]) -> (Status, *mut c_void) {
    let mut at = ptr::dangling_mut();
    // SAFETY: as many as there are.
    let status = unsafe { drystone_import(8, handles.as_ptr(), handles.len(), &raw mut at) };
    (status, at)
}

#[test]
fn a_block_comes_back_by_its_descriptors() {
    let _held = super::HELD.read();
    let (status, block) = allocate(10 * MIB, 8, DEFAULT);
    assert_eq!(status, Status::Ok);
    assert_eq!(export(block.wrapping_byte_add(512), 0).0, Status::InteriorPointer);
    let (status, needed, _) = export(block, 0);
    assert_eq!(status, Status::BufferTooSmall);
    let (status, handles, offset) = export(block, needed.len());
    assert_eq!((status, handles.len()), (Status::Ok, needed.len()));
    let bytes: u64 = handles.iter().map(|handle| handle.bytes).sum();
    assert!(bytes >= offset as u64 + 10 * MIB as u64);
    let again = export(block, needed.len()).1;
    let numbers = |handles: &[CSharedHandle]| -> Vec<i32> {
        handles.iter().map(|handle| handle.descriptor).collect()
    };
    assert_eq!(numbers(&again), numbers(&handles));

    let reserved = stats(8).reserved_bytes.current;
    let (status, imported) = import(&handles);
    assert_eq!(status, Status::Ok);
    assert!(!imported.is_null() && imported != block);
    assert_eq!(stats(8).reserved_bytes.current, reserved);
    assert_eq!(drystone_deallocate(imported), Status::UnknownPointer);
    assert_eq!(drystone_close_import(block), Status::UnknownPointer);
    assert_eq!(drystone_close_import(imported), Status::Ok);
    assert_eq!(drystone_close_import(imported), Status::UnknownPointer);
    assert!(message().contains("no memory of another process is open"), "{}", message());
    assert_eq!(drystone_deallocate(block), Status::Ok);
    assert_eq!(export(block, 0).0, Status::AlreadyFree);
}

#[test]
fn what_leads_to_no_memory_is_refused() {
    let _held = super::HELD.read();
    assert_eq!(import(&[]), (Status::InvalidValue, ptr::null_mut()));
    assert_eq!(import(&[NOTHING]), (Status::InvalidValue, ptr::null_mut()));
    let granule = 2 * MIB as u64;
    let closed = CSharedHandle { bytes: granule, descriptor: 100_000 };
    assert_eq!(import(&[closed]).0, Status::InvalidValue);
    let other = CSharedHandle { bytes: granule, descriptor: 0 };
    assert_eq!(import(&[other]).0, Status::InvalidValue);
    // SAFETY: nulls are refused.
    let refused = unsafe { drystone_import(8, ptr::null(), 1, ptr::null_mut()) };
    assert_eq!(refused, Status::InvalidValue);
    // SAFETY: as above.
    let refused = unsafe {
        drystone_export(ptr::dangling_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
    };
    assert_eq!(refused, Status::InvalidValue);
    let (status, block) = allocate(10 * MIB, 9, DEFAULT);
    assert_eq!((status, export(block, 0).0), (Status::Ok, Status::NotSupported));
    assert!(message().contains("use backend:vmm"), "{}", message());
    assert_eq!(drystone_deallocate(block), Status::Ok);
}
