//! Virtual memory: reserved addresses, physical memory by handle, mappings and access.
//!
//! The simulated device decides what is legal; here is what it does not know: how often a handle
//! is retained, what it was created with, which devices besides its own may reach a mapping.
//! Memory of one device mapped at addresses of another stays the first one's.

use crate::abi::{Access, DEVICE, HOST, In, Location, MemoryProperties, Out, POSIX_FD, Raw};
use crate::context::current;
use crate::device::Device;
use crate::handle::Kind;
use crate::process::resolve;
use crate::status::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Outcome, UNKNOWN};
use crate::tables::{Abroad, Mapped, Physical};
use crate::{backing, process};
use arc_swap::Guard;
use drystone_driver::{Driver, Handle as SimHandle};
use drystone_sim::{GRANULARITY_BYTES, NetworkMemory};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const PINNED: i32 = 1;

/// Refuses what cannot be allocated, and returns the device it would be on.
fn device_for(properties: &MemoryProperties) -> Outcome<Guard<Arc<Device>>> {
    let Location { kind, id } = properties.location;
    INVALID_VALUE.when(properties.kind != PINNED)?;
    if kind == HOST {
        // Of no device: that of the calling thread maps it.
        return if properties.handle_types == 0 { current() } else { Err(INVALID_VALUE) };
    }
    NOT_SUPPORTED.when(kind != DEVICE)?;
    let device = process::device(usize::try_from(id).map_err(|_| INVALID_DEVICE)?)?;
    let can_share = properties.handle_types == POSIX_FD && device.config.sim.is_shareable;
    let is_refused_to_cards = properties.is_rdma_capable != 0
        && device.config.sim.network_memory == NetworkMemory::Absent;
    NOT_SUPPORTED.when(is_refused_to_cards || (properties.handle_types != 0 && !can_share))?;
    Ok(device)
}

/// Creates physical memory and returns its handle's value.
pub(crate) fn create(device: &Device, bytes: u64, properties: MemoryProperties) -> Outcome<Raw> {
    let tables = &mut *device.tables.lock();
    let handle = match properties.location.kind {
        HOST => device.sim.create_on_host(bytes)?,
        _ => device.sim.create(bytes)?,
    };
    let file = OnceLock::new();
    if device.backing.is_some() {
        let _ = file.set(device.sim.file_of(handle).inspect_err(|_| {
            // Nothing stands behind it: the memory goes back as if never created.
            let _ = device.sim.release(handle);
        })?);
    }
    tables.physicals.hold(handle.0, Physical::new(properties, file));
    Ok(device.handle(Kind::Memory, handle.0))
}

fn release(handle: Raw) -> Outcome {
    let (device, value) = resolve(handle, Kind::Memory)?;
    let tables = &mut *device.tables.lock();
    match tables.physicals.held.get_mut(&value) {
        Some(held) if held.references > 1 => held.references -= 1,
        _ => {
            device.sim.release(SimHandle(value))?;
            tables.physicals.held.remove(&value);
        }
    }
    Ok(())
}

/// The device whose addresses these are; the current one refuses those that are nobody's.
fn device_of(address: u64) -> Outcome<Guard<Arc<Device>>> {
    process::device_of_address(address).map_or_else(current, Ok)
}

/// Whether calls that map memory wait for streams which wait for a value, nobody has told of real
/// drivers: `maps_under_hold` says.
fn wait_for_held(device: &Device) {
    while device.sim.is_mapping_held() {
        thread::sleep(Duration::from_micros(50));
    }
}

fn map(address: u64, bytes: u64, handle: Raw) -> Outcome {
    let (owner, value) = resolve(handle, Kind::Memory)?;
    let device = device_of(address)?;
    wait_for_held(&device);
    let physical = owner.tables.lock().physicals.find(value)?;
    let tables = &mut *device.tables.lock();
    let abroad = if owner.ordinal == device.ordinal {
        device.sim.map(address, bytes, SimHandle(value))?;
        None
    } else {
        Some(map_foreign(&device, address, bytes, &owner, SimHandle(value))?)
    };
    tables.physicals.mapped.insert(address, Mapped { bytes, physical, reachable_by: 0, abroad });
    Ok(())
}

/// Maps memory of another device.
fn map_foreign(
    device: &Device,
    address: u64,
    bytes: u64,
    owner: &Device,
    handle: SimHandle,
) -> Outcome<Abroad> {
    let (handle, whole_bytes) = owner.sim.one_more_handle(handle)?;
    let abroad = Abroad { ordinal: owner.ordinal, owner: owner.sim.clone(), handle };
    let foreign = device.sim.foreign_handle(whole_bytes)?;
    let mapped = device.sim.map(address, bytes, foreign);
    // The mapping keeps it, if there is one.
    device.sim.give_up_handle(foreign)?;
    mapped?;
    Ok(abroad)
}

fn unmap(address: u64, bytes: u64) -> Outcome {
    let device = device_of(address)?;
    let tables = &mut *device.tables.lock();
    device.sim.unmap(address, bytes)?;
    let end = address + bytes;
    while let Some((&start, _)) = tables.physicals.mapped.range(address..end).next() {
        tables.physicals.mapped.remove(&start);
    }
    backing::close(device.backing.as_ref(), address, bytes);
    Ok(())
}

/// Gives or takes one device's access to whole mappings.
fn set_access(device: &Device, address: u64, bytes: u64, access: Access) -> Outcome {
    let Location { kind, id } = access.location;
    let ordinal = usize::try_from(id).map_err(|_| INVALID_DEVICE)?;
    INVALID_VALUE.when(kind != DEVICE || ![0, 1, 3].contains(&access.flags))?;
    let opened_to = process::device(ordinal)?;
    let tables = &mut *device.tables.lock();
    // "subject to the constraints of cuDeviceCanAccessPeer" (NVIDIA's sample vectorAddMMAP).
    for (_, mapping) in tables.physicals.mapped.range(address..address.saturating_add(bytes)) {
        let owner = mapping.abroad.as_ref().map_or(device.ordinal, |abroad| abroad.ordinal);
        INVALID_DEVICE.when(!opened_to.reaches(&*process::device(owner)?))?;
    }
    if device.config.sim.network_memory == NetworkMemory::Broken {
        let mut range = tables.physicals.mapped.range(address..address.saturating_add(bytes));
        UNKNOWN.when(range.any(|(_, mapping)| mapping.physical.properties.is_rdma_capable != 0))?;
    }
    let is_own = ordinal == device.ordinal;
    match access.flags {
        0 if is_own => device.sim.remove_access(address, bytes)?,
        _ if is_own => device.sim.set_access(address, bytes)?,
        _ => {}
    }
    let bit = 1 << ordinal;
    for (&start, mapping) in tables.physicals.mapped.range_mut(address..address + bytes) {
        let before = mapping.reachable_by;
        mapping.reachable_by = if access.flags == 0 { before & !bit } else { before | bit };
        if is_own && mapping.reachable_by != before {
            backing::show(
                device.backing.as_ref(),
                start,
                mapping.bytes,
                mapping.physical.file.get(),
                access.flags,
            )?;
        }
    }
    Ok(())
}

fn retain(address: u64) -> Outcome<Raw> {
    let device = device_of(address)?;
    let (physical, again) = {
        let tables = device.tables.lock();
        let mapping = tables.physicals.mapping_at(address).ok_or(INVALID_VALUE)?;
        (Arc::clone(&mapping.physical), mapping.abroad.as_ref().map(Abroad::again).transpose()?)
    };
    let owner = process::device(again.as_ref().map_or(device.ordinal, |abroad| abroad.ordinal))?;
    let physicals = &mut owner.tables.lock().physicals;
    if let Some(value) = physicals.retain(&physical) {
        return Ok(owner.handle(Kind::Memory, value));
    }
    // It is only mapped any more.
    let value = match &again {
        Some(abroad) => owner.sim.one_more_handle(abroad.handle)?.0.0,
        None => device.sim.handle_again(address)?.0,
    };
    physicals.hold(value, physical);
    Ok(owner.handle(Kind::Memory, value))
}

api! {
    fn cuMemGetAllocationGranularity(
        bytes: Out<usize>, properties: In<MemoryProperties>, option: i32
    ) |call| {
        device_for(&properties.get()?)?;
        bytes.set(GRANULARITY_BYTES as usize)
    }

    fn cuMemAddressReserve(
        address: Out<u64>, bytes: usize, alignment: usize, wish: Raw, flags: u64
    ) |call| {
        INVALID_VALUE.when(flags != 0)?;
        call.count_bytes(bytes as u64);
        let device = current().or_else(|_| process::device(0))?;
        address.check()?.set(device.sim.reserve(bytes as u64, alignment as u64)?)
    }

    fn cuMemAddressFree(address: u64, bytes: usize) |call| {
        Ok(device_of(address)?.sim.unreserve(address, bytes as u64)?)
    }

    fn cuMemCreate(
        handle: Out<Raw>, bytes: usize, properties: In<MemoryProperties>, flags: u64
    ) |call| {
        let properties = properties.get()?;
        INVALID_VALUE.when(flags != 0)?;
        call.count_bytes(bytes as u64);
        let device = device_for(&properties)?;
        handle.check()?.set(create(&device, bytes as u64, properties)?)
    }

    fn cuMemRelease(handle: Raw) |call| { release(handle) }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: Raw, flags: u64) |call| {
        INVALID_VALUE.when(offset != 0 || flags != 0)?;
        call.count_bytes(bytes as u64);
        map(address, bytes as u64, handle)
    }

    fn cuMemUnmap(address: u64, bytes: usize) |call| {
        call.count_bytes(bytes as u64);
        wait_for_held(&*device_of(address)?);
        unmap(address, bytes as u64)
    }

    fn cuMemSetAccess(address: u64, bytes: usize, accesses: In<Access>, count: usize) |call| {
        call.count_bytes(bytes as u64);
        let device = device_of(address)?;
        wait_for_held(&device);
        INVALID_VALUE.when(count == 0)?;
        for index in 0..count {
            set_access(&device, address, bytes as u64, accesses.at(index).get()?)?;
        }
        Ok(())
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) |call| {
        let location = location.get()?;
        let ordinal = usize::try_from(location.id).map_err(|_| INVALID_DEVICE)?;
        process::device(ordinal)?;
        let device = device_of(address)?;
        let tables = device.tables.lock();
        let mapping = tables.physicals.mapping_at(address).ok_or(INVALID_VALUE)?;
        flags.set(if mapping.reachable_by & 1 << ordinal == 0 { 0 } else { 3 })
    }

    fn cuMemGetAllocationPropertiesFromHandle(
        properties: Out<MemoryProperties>, handle: Raw
    ) |call| {
        let (device, value) = resolve(handle, Kind::Memory)?;
        let found = device.tables.lock().physicals.find(value)?;
        properties.set(found.properties)
    }

    fn cuMemRetainAllocationHandle(handle: Out<Raw>, address: u64) |call| {
        handle.check()?.set(retain(address)?)
    }
}
