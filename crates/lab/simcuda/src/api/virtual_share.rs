//! Physical memory given to others as a file descriptor, and multicast, which there is none of.
//!
//! The descriptor is that of a file in memory as large as the memory it stands for. Where it comes
//! back to the process it gives the same memory, by a handle of its own; from another process it
//! gives memory of its size, which is charged to the importing device, too.

use crate::abi::{DEVICE, In, Location, MemoryProperties, Out, POSIX_FD, Raw};
use crate::handle::Kind;
use crate::process::{self, resolve};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, Outcome};
use crate::tables::Physical;
use drystone_driver::{Driver, Handle as SimHandle};
use drystone_sim::SharedFile;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;

/// A descriptor of the program's; null and negative ones are refused.
pub(crate) fn borrow(number: u64) -> Outcome<OwnedFd> {
    let number = i32::try_from(number).map_err(|_| INVALID_VALUE)?;
    // SAFETY: duplicating any number is safe: one that is no descriptor is refused.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    INVALID_VALUE.when(copy < 0)?;
    // SAFETY: the copy is new and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A descriptor of a file for the program to keep.
pub(crate) fn give(file: &SharedFile) -> Outcome<i32> {
    Ok(file.give().map_err(|_| OPERATING_SYSTEM)?.into_raw_fd())
}

fn export(handle: Raw, kind: i32) -> Outcome<i32> {
    let (device, value) = resolve(handle, Kind::Memory)?;
    let physical = device.tables.lock().physicals.find(value)?;
    INVALID_VALUE.when(kind != POSIX_FD || physical.properties.handle_types & POSIX_FD == 0)?;
    let descriptor = device.sim.export(SimHandle(value))?;
    // It is known by its file when it comes back.
    let _ = physical.file.set(device.sim.file_of(SimHandle(value))?);
    Ok(descriptor.into_raw_fd())
}

fn import(number: u64, kind: i32) -> Outcome<Raw> {
    NOT_SUPPORTED.when(kind != POSIX_FD)?;
    let descriptor = borrow(number)?;
    let file = SharedFile::of(descriptor.as_fd()).map_err(|_| INVALID_VALUE)?;
    let ordinal = process::ordinal_at(file.ordinal() as usize).ok_or(NOT_SUPPORTED)?;
    let device = process::device(ordinal)?;
    let value = device.sim.import(&descriptor)?;
    let physicals = &mut device.tables.lock().physicals;
    let physical = match physicals.of_file(file.identity()) {
        Some(known) => known,
        None => {
            let location = Location { kind: DEVICE, id: device.ordinal as i32 };
            let properties = MemoryProperties {
                kind: 1,
                handle_types: POSIX_FD,
                location,
                ..Default::default()
            };
            Physical::new(properties, OnceLock::from(device.sim.file_of(value)?))
        }
    };
    physicals.hold(value.0, physical);
    Ok(device.handle(Kind::Memory, value.0))
}

api! {
    fn cuMemExportToShareableHandle(place: Out<i32>, handle: Raw, kind: i32, flags: u64) |call| {
        INVALID_VALUE.when(flags != 0)?;
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
