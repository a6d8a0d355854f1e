//! What can be asked of an address.

use super::host::HostKind;
use super::{host, pool};
use crate::abi::{In, Out, Raw};
use crate::queue::queue;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::tables::{Node, next_number};
use crate::{context, opened, process};
use drystone_driver::MemoryPool;
use drystone_sim::ExtentKind;

/// An allocation, mapping or registered range that holds an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    ordinal: usize,
    kind: RangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeKind {
    Device(ExtentKind),
    /// Memory that another process shares.
    Opened,
    Host(HostKind),
}

pub(crate) fn find(address: u64) -> Option<Range> {
    let Some(device) = process::device_of_address(address) else {
        let found = host::find(address)?;
        let (address, bytes, ordinal) = (found.address, found.bytes, found.ordinal);
        return Some(Range { address, bytes, ordinal, kind: RangeKind::Host(found.kind) });
    };
    let ordinal = device.ordinal;
    if let Some(extent) = device.sim.extent_at(address) {
        let kind = RangeKind::Device(extent.kind);
        return Some(Range { address: extent.address, bytes: extent.bytes, ordinal, kind });
    }
    let (address, bytes) = opened::find(address)?;
    Some(Range { address, bytes, ordinal, kind: RangeKind::Opened })
}

pub(crate) fn is_managed(address: u64) -> bool {
    host::find(address).is_some_and(|range| range.kind == HostKind::Managed)
}

pub(crate) fn free_managed(address: u64) -> Outcome {
    context::current_ordinal()?;
    host::free(address, HostKind::Managed)
}

/// What no other allocation of the process has, nor had, nor will have (CUDA driver API,
/// `cuPointerGetAttribute`).
fn number_of(range: &Range, address: u64) -> Outcome<u64> {
    if matches!(range.kind, RangeKind::Host(_)) {
        return Ok(range.address);
    }
    let device = process::device(range.ordinal)?;
    let tables = &mut *device.tables.lock();
    if let Some(mapping) = tables.physicals.mapping_at(address) {
        return Ok(mapping.physical.number);
    }
    Ok(*tables.numbers.entry(range.address).or_insert_with(next_number))
}

/// As what the memory may be exported: what its handle or its pool was created for.
fn handle_types(range: &Range, address: u64) -> Outcome<u64> {
    let device = process::device(range.ordinal)?;
    Ok(match range.kind {
        RangeKind::Device(ExtentKind::Mapped) => {
            let tables = device.tables.lock();
            let mapping = tables.physicals.mapping_at(address).ok_or(INVALID_VALUE)?;
            mapping.physical.properties.handle_types as u64
        }
        RangeKind::Device(ExtentKind::Pooled) => {
            let own = |pool: &MemoryPool| device.sim.is_from_pool(*pool, address);
            let pool = device.sim.memory_pools().into_iter().find(own).ok_or(INVALID_VALUE)?;
            u64::from(device.sim.memory_pool_config(pool)?.is_exportable)
        }
        _ => 0,
    })
}

/// Writes one attribute of the address; `range` is what holds it.
fn attribute(data: Out<u64>, attribute: i32, address: u64, range: &Range) -> Outcome {
    let is_device =
        !matches!(range.kind, RangeKind::Host(HostKind::Allocated | HostKind::Registered));
    let is_plain = range.kind == RangeKind::Device(ExtentKind::Plain);
    let is_mapped = range.kind == RangeKind::Device(ExtentKind::Mapped);
    let is_pooled = range.kind == RangeKind::Device(ExtentKind::Pooled);
    let is_managed = range.kind == RangeKind::Host(HostKind::Managed);
    let (word, flag) = (data.cast::<u32>(), data.cast::<u8>());
    match attribute {
        // Mapped and stream-ordered memory was allocated in none (openucx/ucx, cuda_copy_md.c).
        1 if is_mapped || is_pooled => data.set(0),
        1 => data.set(context::primary(range.ordinal).0),
        2 => word.set(if is_device { 2 } else { 1 }),
        3 => data.set(address),
        4 if is_device && !is_managed => Err(INVALID_VALUE),
        4 => data.set(address),
        5 => Err(NOT_SUPPORTED),
        // A flag of one byte here, and of four in old headers: four are what callers have room for.
        6 => word.set(0),
        7 => data.set(number_of(range, address)?),
        20 => data.set(range.address),
        8 => word.set(is_managed.into()),
        9 => word.set(range.ordinal as u32),
        10 => word.set(is_plain.into()),
        11 | 19 => data.set(range.address),
        12 | 18 => data.set(range.bytes),
        13 => word.set(1),
        14 => data.set(handle_types(range, address)?),
        15 => word.set(0),
        16 => word.set(3),
        17 => {
            let device = process::device(range.ordinal)?;
            let found = is_device.then(|| pool::pool_of(&device, address)).flatten();
            data.set(found.map_or(0, |pool| pool.0))
        }
        21 => flag.set(0),
        _ => Err(INVALID_VALUE),
    }
}

/// What several attributes of an address that is nobody's are, as CUDA has it: zeroes.
fn nothing(data: Out<u64>, attribute: i32) -> Outcome {
    match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => data.set(0),
        9 => data.cast::<i32>().set(-2),
        21 => data.cast::<u8>().set(0),
        _ => data.cast::<u32>().set(0),
    }
}

api! {
    fn cuPointerGetAttribute(data: Out<u64>, number: i32, address: u64) |call| {
        let range = find(address).ok_or(INVALID_VALUE)?;
        attribute(data, number, address, &range)
    }

    fn cuPointerGetAttributes(
        count: u32, numbers: In<i32>, places: In<Out<u64>>, address: u64
    ) |call| {
        let range = find(address);
        for index in 0..count as usize {
            let (number, place) = (numbers.at(index).get()?, places.at(index).get()?);
            let known = range.as_ref().map(|range| attribute(place, number, address, range));
            if known.is_none_or(|outcome| outcome.is_err()) {
                nothing(place, number)?;
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: Raw, number: i32, address: u64) |call| {
        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is the only one that can be set.
        INVALID_VALUE.when(number != 6)?;
        find(address).map(drop).ok_or(INVALID_VALUE)
    }

    fn cuMemGetHandleForAddressRange(
        handle: Raw, address: u64, bytes: usize, kind: i32, flags: u64
    ) |call| { Err(NOT_SUPPORTED) }

    fn cuMemAdvise_v2 = cuMemAdvise (
        address: u64, bytes: usize, advice: i32, location: u64
    ) |call| { find(address).map(drop).ok_or(INVALID_VALUE) }

    fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz (
        address: u64, bytes: usize, location: u64, flags: u32, stream: Raw
    ) |call| {
        find(address).ok_or(INVALID_VALUE)?;
        queue(call, stream)?.push(0, || Node::Empty).map(drop)
    }

    fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz (
        address: u64, bytes: usize, device: i32, stream: Raw
    ) |call| {
        find(address).ok_or(INVALID_VALUE)?;
        queue(call, stream)?.push(0, || Node::Empty).map(drop)
    }

    fn cuMemRangeGetAttribute(
        data: Raw, size: usize, attribute: i32, address: u64, bytes: usize
    ) |call| { Err(NOT_SUPPORTED) }
}
