//! Memory pools and stream-ordered memory.

use crate::abi::{Access, DEVICE, In, Location, Out, POSIX_FD, PoolProperties, Raw};
use crate::device::Device;
use crate::entry::Call;
use crate::handle::Kind;
use crate::process::{device_at, resolve};
use crate::queue::{Queue, queue};
use crate::status::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::tables::Node;
use crate::{backing, capture, process};
use drystone_driver::{Driver, MemoryPool, MemoryPoolConfig};

fn default_pool(device: &Device) -> Outcome<u64> {
    device.tables.lock().pools.default.ok_or(NOT_SUPPORTED)
}

fn current_pool(device: &Device) -> Outcome<u64> {
    let chosen = device.tables.lock().pools.current;
    chosen.map_or_else(|| default_pool(device), Ok)
}

fn create(properties: &PoolProperties) -> Outcome<Raw> {
    let Location { kind, id } = properties.location;
    if properties.kind != 1 || kind != DEVICE {
        return Err(if properties.kind == 1 { NOT_SUPPORTED } else { INVALID_VALUE });
    }
    let is_exportable = match properties.handle_types {
        0 => false,
        POSIX_FD => true,
        _ => return Err(NOT_SUPPORTED),
    };
    let device = device_at(id)?;
    let config = MemoryPoolConfig::default().with_export(is_exportable);
    let pool = device.sim.create_memory_pool(&config)?;
    Ok(device.handle(Kind::Pool, pool.0))
}

fn destroy(pool: Raw) -> Outcome {
    let (device, value) = resolve(pool, Kind::Pool)?;
    INVALID_VALUE.when(device.tables.lock().pools.default == Some(value))?;
    device.sim.destroy_memory_pool(MemoryPool(value))?;
    let pools = &mut device.tables.lock().pools;
    pools.opened_to.remove(&value);
    pools.files.remove(&value);
    if pools.current == Some(value) {
        pools.current = None;
    }
    Ok(())
}

fn get_attribute(pool: Raw, attribute: i32, value: Out<u64>) -> Outcome {
    let (device, handle) = resolve(pool, Kind::Pool)?;
    let pool = MemoryPool(handle);
    let usage = device.sim.memory_pool_usage(pool)?;
    let config = device.sim.memory_pool_config(pool)?;
    let flag = |is_set: bool| value.cast::<i32>().set(is_set.into());
    match attribute {
        1 => flag(config.reuse_follows_events),
        2 => flag(config.reuse_is_opportunistic),
        3 => flag(config.reuse_adds_dependencies),
        4 => value.set(config.release_threshold_bytes),
        5 => value.set(usage.reserved_bytes),
        6 => value.set(usage.reserved_peak_bytes),
        7 => value.set(usage.used_bytes),
        8 => value.set(usage.used_peak_bytes),
        _ => Err(INVALID_VALUE),
    }
}

fn set_attribute(pool: Raw, attribute: i32, value: In<u64>) -> Outcome {
    let (device, handle) = resolve(pool, Kind::Pool)?;
    let pool = MemoryPool(handle);
    let mut config = device.sim.memory_pool_config(pool)?;
    let flag = || -> Outcome<bool> { Ok(value.cast::<i32>().get()? != 0) };
    match attribute {
        1 => config.reuse_follows_events = flag()?,
        2 => config.reuse_is_opportunistic = flag()?,
        3 => config.reuse_adds_dependencies = flag()?,
        4 => config.release_threshold_bytes = value.get()?,
        // A peak can be set back, to nothing else but the present.
        6 | 8 if value.get()? == 0 => {
            return Ok(device.sim.reset_memory_pool_peaks(pool, attribute == 6, attribute == 8)?);
        }
        _ => return Err(INVALID_VALUE),
    }
    Ok(device.sim.configure_memory_pool(pool, config)?)
}

fn set_access(pool: Raw, access: Access) -> Outcome {
    let (device, value) = resolve(pool, Kind::Pool)?;
    let ordinal = usize::try_from(access.location.id).map_err(|_| INVALID_DEVICE)?;
    let opened_to = process::device(ordinal)?;
    let is_own = ordinal == device.ordinal;
    INVALID_VALUE.when(access.location.kind != DEVICE || ![0, 1, 3].contains(&access.flags))?;
    if is_own {
        // A device's access to its own memory cannot be taken away.
        return if access.flags == 3 { Ok(()) } else { Err(INVALID_VALUE) };
    }
    // Or with the next allocation (CUDA's programming guide, stream-ordered allocator).
    INVALID_DEVICE.when(access.flags != 0 && !opened_to.reaches(&device))?;
    let mut tables = device.tables.lock();
    let bits = tables.pools.opened_to.entry(value).or_default();
    *bits = if access.flags == 0 { *bits & !(1 << ordinal) } else { *bits | 1 << ordinal };
    Ok(())
}

/// Allocates in stream order, from the device's current pool if none is given.
fn allocate(call: &Call, bytes: usize, pool: Option<Raw>, stream: Raw) -> Outcome<u64> {
    call.count_bytes(bytes as u64);
    let Queue { device, stream } = queue(call, stream)?;
    let value = match pool {
        Some(pool) => device.value(pool, Kind::Pool)?,
        None => current_pool(&device)?,
    };
    let address = device.sim.malloc_async(MemoryPool(value), bytes as u64, stream)?;
    device.tables.lock().numbers.remove(&address);
    backing::open(device.backing.as_ref(), address, bytes as u64);
    if capture::any(&device) {
        capture::add(&device, stream, || Node::Allocate)?;
    }
    Ok(address)
}

fn free(call: &Call, address: u64, stream: Raw) -> Outcome {
    let Queue { device, stream } = queue(call, stream)?;
    device.sim.free_async(address, stream)?;
    if capture::any(&device) {
        capture::add(&device, stream, || Node::Free)?;
    }
    Ok(())
}

/// The device of a location, which must be one.
fn of_location(location: Out<Location>) -> Outcome<i32> {
    let Location { kind, id } = location.get()?;
    if kind == DEVICE { Ok(id) } else { Err(NOT_SUPPORTED) }
}

fn get_default(pool: Out<Raw>, device: i32) -> Outcome {
    let device = device_at(device)?;
    pool.check()?;
    pool.set(device.handle(Kind::Pool, default_pool(&device)?))
}

fn get_current(pool: Out<Raw>, device: i32) -> Outcome {
    let device = device_at(device)?;
    pool.check()?;
    pool.set(device.handle(Kind::Pool, current_pool(&device)?))
}

fn set_current(device: i32, pool: Raw) -> Outcome {
    let device = device_at(device)?;
    let value = device.value(pool, Kind::Pool)?;
    device.sim.memory_pool_config(MemoryPool(value))?;
    device.tables.lock().pools.current = Some(value);
    Ok(())
}

api! {
    fn cuDeviceGetDefaultMemPool(pool: Out<Raw>, device: i32) |call| { get_default(pool, device) }

    fn cuDeviceGetMemPool(pool: Out<Raw>, device: i32) |call| { get_current(pool, device) }

    fn cuDeviceSetMemPool(device: i32, pool: Raw) |call| { set_current(device, pool) }

    fn cuMemGetDefaultMemPool(pool: Out<Raw>, location: Out<Location>, kind: i32) |call| {
        get_default(pool, of_location(location)?)
    }

    fn cuMemGetMemPool(pool: Out<Raw>, location: Out<Location>, kind: i32) |call| {
        get_current(pool, of_location(location)?)
    }

    fn cuMemSetMemPool(location: Out<Location>, kind: i32, pool: Raw) |call| {
        set_current(of_location(location)?, pool)
    }

    fn cuMemPoolCreate(pool: Out<Raw>, properties: In<PoolProperties>) |call| {
        pool.check()?.set(create(&properties.get()?)?)
    }

    fn cuMemPoolDestroy(pool: Raw) |call| { destroy(pool) }

    fn cuMemPoolTrimTo(pool: Raw, keep: usize) |call| {
        let (device, value) = resolve(pool, Kind::Pool)?;
        Ok(device.sim.trim_memory_pool(MemoryPool(value), keep as u64)?)
    }

    fn cuMemPoolGetAttribute(pool: Raw, attribute: i32, value: Out<u64>) |call| {
        get_attribute(pool, attribute, value)
    }

    fn cuMemPoolSetAttribute(pool: Raw, attribute: i32, value: In<u64>) |call| {
        set_attribute(pool, attribute, value)
    }

    fn cuMemPoolSetAccess(pool: Raw, accesses: In<Access>, count: usize) |call| {
        (0..count).try_for_each(|index| set_access(pool, accesses.at(index).get()?))
    }

    fn cuMemPoolGetAccess(flags: Out<i32>, pool: Raw, location: In<Location>) |call| {
        let (device, value) = resolve(pool, Kind::Pool)?;
        let ordinal = usize::try_from(location.get()?.id).map_err(|_| INVALID_DEVICE)?;
        process::device(ordinal)?;
        let bits = device.tables.lock().pools.reachable_by(value);
        flags.set(if ordinal == device.ordinal || bits & 1 << ordinal != 0 { 3 } else { 0 })
    }

    fn cuMemAllocAsync | cuMemAllocAsync_ptsz (
        address: Out<u64>, bytes: usize, stream: Raw
    ) |call| { address.check()?.set(allocate(call, bytes, None, stream)?) }

    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz (
        address: Out<u64>, bytes: usize, pool: Raw, stream: Raw
    ) |call| { address.check()?.set(allocate(call, bytes, Some(pool), stream)?) }

    fn cuMemFreeAsync | cuMemFreeAsync_ptsz (address: u64, stream: Raw) |call| {
        free(call, address, stream)
    }
}

/// The handle of the pool that live memory came from.
pub(crate) fn pool_of(device: &Device, address: u64) -> Option<Raw> {
    let values = device.sim.memory_pools();
    let found = values.into_iter().find(|&pool| device.sim.is_from_pool(pool, address))?;
    Some(device.handle(Kind::Pool, found.0))
}
