//! Physical memory given to others as a file descriptor, and multicast, which there is none of.
//!
//! The descriptor is that of a file in memory as large as the memory it stands for. Where it comes
//! back to the process it is known by its inode and gives the same memory; from another process it
//! gives memory of its size, which is charged to the importing device, too.

use super::virtual_memory::{create, handle_of_file};
use crate::abi::{In, Location, MemoryProperties, Out, POSIX_FD, Raw};
use crate::context::current;
use crate::handle::Kind;
use crate::process::resolve;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, Outcome};
use crate::tables::Physical;
use crate::{backing, process};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// What tells two files apart, and the size.
pub(crate) fn identity(file: BorrowedFd<'_>) -> Option<((u64, u64), u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the descriptor is borrowed and the place is large enough.
    let result = unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) };
    // SAFETY: `fstat` has filled it in, and zeroes are a valid value anyway.
    let stat = unsafe { stat.assume_init() };
    (result == 0).then_some(((stat.st_dev, stat.st_ino), stat.st_size as u64))
}

/// A descriptor of the program's; null and negative ones are refused.
pub(crate) fn borrow(number: u64) -> Outcome<OwnedFd> {
    let number = i32::try_from(number).map_err(|_| INVALID_VALUE)?;
    // SAFETY: duplicating any number is safe: one that is no descriptor is refused.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the copy is new and belongs to nobody else.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(copy) })
}

/// A descriptor for the program to keep.
pub(crate) fn give(file: &OwnedFd) -> Outcome<i32> {
    Ok(file.try_clone().map_err(|_| OPERATING_SYSTEM)?.into_raw_fd())
}

/// The file that stands for the memory, made when it is first asked for.
fn file_of(physical: &Physical) -> Outcome<&OwnedFd> {
    if physical.file.get().is_none() {
        let _ = physical.file.set(backing::file(physical.bytes)?);
    }
    physical.file.get().ok_or(OPERATING_SYSTEM)
}

fn export(handle: Raw, kind: i32) -> Outcome<i32> {
    let (device, value) = resolve(handle, Kind::Memory)?;
    let physical = device.tables.lock().physicals.find(value)?;
    if kind != POSIX_FD || physical.properties.handle_types & POSIX_FD == 0 {
        return Err(INVALID_VALUE);
    }
    give(file_of(&physical)?)
}

fn import(number: u64, kind: i32) -> Outcome<Raw> {
    if kind != POSIX_FD {
        return Err(NOT_SUPPORTED);
    }
    let file = borrow(number)?;
    let (own, bytes) = identity(file.as_fd()).ok_or(INVALID_VALUE)?;
    let is_it = |other: &OwnedFd| identity(other.as_fd()).is_some_and(|(id, _)| id == own);
    for device in process::devices() {
        if let Some(handle) = handle_of_file(&device, is_it) {
            return handle;
        }
    }
    let device = current()?;
    let location = Location { kind: 1, id: device.ordinal as i32 };
    let properties =
        MemoryProperties { kind: 1, handle_types: POSIX_FD, location, ..Default::default() };
    let handle = create(&device, bytes, properties)?;
    let value = device.value(handle, Kind::Memory)?;
    let physical = Physical { properties, bytes, file: OnceLock::from(file) };
    device.tables.lock().physicals.hold(value, Arc::new(physical));
    Ok(handle)
}

api! {
    fn cuMemExportToShareableHandle(place: Out<i32>, handle: Raw, kind: i32, flags: u64) |call| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        place.check()?.set(export(handle, kind)?)
    }

    fn cuMemImportFromShareableHandle(handle: Out<Raw>, number: u64, kind: i32) |call| {
        handle.check()?.set(import(number, kind)?)
    }

    fn cuMulticastCreate(handle: Out<Raw>, properties: In<u64>) |call| { Err(NOT_SUPPORTED) }

    fn cuMulticastAddDevice(handle: Raw, device: i32) |call| { Err(NOT_SUPPORTED) }

    fn cuMulticastBindMem(
        handle: Raw, offset: usize, memory: Raw, memory_offset: usize, bytes: usize, flags: u64
    ) |call| { Err(NOT_SUPPORTED) }

    fn cuMulticastBindAddr(
        handle: Raw, offset: usize, address: u64, bytes: usize, flags: u64
    ) |call| { Err(NOT_SUPPORTED) }

    fn cuMulticastUnbind(handle: Raw, device: i32, offset: usize, bytes: usize) |call| {
        Err(NOT_SUPPORTED)
    }

    fn cuMulticastGetGranularity(bytes: Out<usize>, properties: In<u64>, option: i32) |call| {
        Err(NOT_SUPPORTED)
    }
}
