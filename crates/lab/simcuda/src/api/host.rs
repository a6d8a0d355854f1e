//! Page-locked and managed host memory: allocated, or the program's own and registered.
//!
//! Invariant: ranges do not overlap; what was allocated here is unmapped exactly once. Managed
//! memory is host memory that also counts as a device's.

use crate::abi::{Out, Raw};
use crate::context;
use crate::status::{
    HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY,
    Outcome,
};
use drystone_sim::Gate;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a range of host memory came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    Allocated,
    Registered,
    Managed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRange {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: HostKind,
    pub(crate) flags: u32,
    pub(crate) ordinal: usize,
    /// What it ends with, if it was allocated.
    context: Raw,
}

static RANGES: Mutex<BTreeMap<u64, HostRange>> = Mutex::new(BTreeMap::new());

pub(crate) fn find(address: u64) -> Option<HostRange> {
    let ranges = RANGES.lock();
    let range = *ranges.range(..=address).next_back()?.1;
    (address - range.address < range.bytes).then_some(range)
}

/// Flags that `cuMemHostAlloc` knows: portable, device map, write combined.
const ALLOC_FLAGS: u32 = 7;
/// Flags that `cuMemHostRegister` knows: portable, device map, device memory, read only.
const REGISTER_FLAGS: u32 = 15;

/// Allocates host memory, which reads as zero.
pub(crate) fn allocate(bytes: usize, kind: HostKind, flags: u32) -> Outcome<u64> {
    let ordinal = context::current_ordinal()?;
    INVALID_VALUE.when(bytes == 0)?;
    let (access, mode) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for fresh pages anywhere; nothing that exists is touched.
    let pages = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, mode, -1, 0) };
    OUT_OF_MEMORY.when(pages == libc::MAP_FAILED)?;
    let (address, bytes) = (pages as u64, bytes as u64);
    let context = context::current_raw();
    RANGES.lock().insert(address, HostRange { address, bytes, kind, flags, ordinal, context });
    Ok(address)
}

/// Tells whether a word of pinned memory is at least a value, in a circle of all numbers; `None` if
/// it is now, or is no such word.
pub(super) fn gate(address: u64, value: u32) -> Option<Gate> {
    let ranges = RANGES.lock();
    let (_, range) = ranges.range(..=address).next_back()?;
    if address + 4 > range.address + range.bytes || !address.is_multiple_of(4) {
        return None;
    }
    let is_open = move || {
        // SAFETY: a word of pinned memory, which programs do not free while a stream waits for it.
        let word = unsafe { &*(address as *const AtomicU32) };
        (word.load(Ordering::Acquire).wrapping_sub(value) as i32) >= 0
    };
    (!is_open()).then(|| Gate(Arc::new(is_open)))
}

pub(crate) fn end_context(context: Raw) {
    let all = RANGES.lock().clone();
    let is_its =
        |range: &&HostRange| range.context == context && range.kind != HostKind::Registered;
    for range in all.values().filter(is_its) {
        let _ = free(range.address, range.kind);
    }
}

/// Frees what [`allocate`] gave for this kind.
pub(crate) fn free(address: u64, kind: HostKind) -> Outcome {
    let mut ranges = RANGES.lock();
    let range = ranges.get(&address).filter(|range| range.kind == kind);
    let bytes = range.ok_or(INVALID_VALUE)?.bytes;
    ranges.remove(&address);
    // SAFETY: `allocate` mapped exactly this range, and its record was just removed.
    unsafe { libc::munmap(address as *mut libc::c_void, bytes as usize) };
    Ok(())
}

fn register(address: u64, bytes: usize, flags: u32) -> Outcome {
    let ordinal = context::current_ordinal()?;
    let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
    INVALID_VALUE.when(address == 0 || bytes == 0 || flags & !REGISTER_FLAGS != 0)?;
    let mut ranges = RANGES.lock();
    let below = ranges.range(..end).next_back();
    HOST_MEMORY_ALREADY_REGISTERED
        .when(below.is_some_and(|(_, range)| range.address + range.bytes > address))?;
    let (bytes, kind) = (bytes as u64, HostKind::Registered);
    let context = context::current_raw();
    ranges.insert(address, HostRange { address, bytes, kind, flags, ordinal, context });
    Ok(())
}

api! {
    fn cuMemAllocHost_v2 = cuMemAllocHost (address: Out<u64>, bytes: usize) |call| {
        call.count_bytes(bytes as u64);
        address.check()?.set(allocate(bytes, HostKind::Allocated, 0)?)
    }

    fn cuMemHostAlloc(address: Out<u64>, bytes: usize, flags: u32) |call| {
        INVALID_VALUE.when(flags & !ALLOC_FLAGS != 0)?;
        call.count_bytes(bytes as u64);
        address.check()?.set(allocate(bytes, HostKind::Allocated, flags)?)
    }

    fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: u32) |call| {
        INVALID_VALUE.when(flags != 1 && flags != 2)?;
        call.count_bytes(bytes as u64);
        address.check()?.set(allocate(bytes, HostKind::Managed, flags)?)
    }

    fn cuMemFreeHost(address: Raw) |call| {
        context::current_ordinal()?;
        free(address.0, HostKind::Allocated)
    }

    fn cuMemHostRegister_v2 = cuMemHostRegister (address: Raw, bytes: usize, flags: u32) |call| {
        register(address.0, bytes, flags)
    }

    fn cuMemHostUnregister(address: Raw) |call| {
        context::current_ordinal()?;
        let mut ranges = RANGES.lock();
        let is_registered = |range: &&HostRange| range.kind == HostKind::Registered;
        ranges.get(&address.0).filter(is_registered).ok_or(HOST_MEMORY_NOT_REGISTERED)?;
        ranges.remove(&address.0);
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2 = cuMemHostGetDevicePointer (
        device: Out<u64>, host: Raw, flags: u32
    ) |call| {
        context::current_ordinal()?;
        find(host.0).filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        device.set(host.0)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, host: Raw) |call| {
        context::current_ordinal()?;
        let range = find(host.0).filter(|range| range.kind != HostKind::Managed);
        // Memory is mapped for devices whether that was asked for or not.
        flags.set(range.ok_or(INVALID_VALUE)?.flags | 2)
    }
}
