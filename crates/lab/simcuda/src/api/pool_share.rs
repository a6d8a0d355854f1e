//! Memory pools given to others: the pool as a file descriptor, each allocation as a pointer.
//!
//! In the process the pool came from both give what was exported; another process cannot import
//! them, which is not modelled.

use super::pool::pool_of;
use super::virtual_share::{borrow, give};
use crate::abi::{Opaque64, Out, POSIX_FD, Raw};
use crate::handle::Kind;
use crate::process::{self, resolve};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, Outcome};
use drystone_driver::{Driver, MemoryPool};
use drystone_sim::SharedFile;
use std::collections::hash_map::Entry;
use std::os::fd::AsFd;

/// First word of exported pointers.
const POINTER: u64 = u64::from_le_bytes(*b"simcuptr");

fn export(pool: Raw, kind: i32) -> Outcome<i32> {
    let (device, value) = resolve(pool, Kind::Pool)?;
    device.sim.memory_pool_usage(MemoryPool(value))?;
    let is_exportable = device.sim.memory_pool_config(MemoryPool(value))?.is_exportable;
    INVALID_VALUE.when(kind != POSIX_FD || !is_exportable)?;
    let files = &mut device.tables.lock().pools.files;
    give(match files.entry(value) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => {
            let file = SharedFile::new(device.place as u32, 0);
            place.insert(file.map_err(|_| OPERATING_SYSTEM)?)
        }
    })
}

fn import(number: u64, kind: i32) -> Outcome<Raw> {
    NOT_SUPPORTED.when(kind != POSIX_FD)?;
    let file = borrow(number)?;
    let own = SharedFile::of(file.as_fd()).map_err(|_| INVALID_VALUE)?.identity();
    for device in process::devices() {
        let files = &device.tables.lock().pools.files;
        let found = files.iter().find(|(_, other)| other.identity() == own);
        if let Some((&value, _)) = found {
            return Ok(device.handle(Kind::Pool, value));
        }
    }
    Err(NOT_SUPPORTED)
}

api! {
    fn cuMemPoolExportToShareableHandle(
        place: Out<i32>, pool: Raw, kind: i32, flags: u64
    ) |call| {
        INVALID_VALUE.when(flags != 0)?;
        place.check()?.set(export(pool, kind)?)
    }

    fn cuMemPoolImportFromShareableHandle(
        pool: Out<Raw>, number: u64, kind: i32, flags: u64
    ) |call| { pool.check()?.set(import(number, kind)?) }

    fn cuMemPoolExportPointer(data: Out<Opaque64>, address: u64) |call| {
        let device = process::device_of_address(address).ok_or(INVALID_VALUE)?;
        let pool = pool_of(&device, address).ok_or(INVALID_VALUE)?;
        let (_, value) = resolve(pool, Kind::Pool)?;
        INVALID_VALUE.when(!device.sim.memory_pool_config(MemoryPool(value))?.is_exportable)?;
        data.set(Opaque64([POINTER, pool.0, address, 0, 0, 0, 0, 0]))
    }

    fn cuMemPoolImportPointer(address: Out<u64>, pool: Raw, data: Out<Opaque64>) |call| {
        let [POINTER, own, at, ..] = data.get()?.0 else { return Err(INVALID_VALUE) };
        resolve(pool, Kind::Pool)?;
        if own == pool.0 { address.set(at) } else { Err(INVALID_VALUE) }
    }
}
