//! Memory of another process, by handles that can be sent to it.
//!
//! A handle names the process, the device and the address. Opened in the process it came from it
//! gives the same address; elsewhere a range of addresses of the same size, and the same memory
//! where both processes have something real behind theirs. Invariant: an opened handle is closed as
//! often as it was opened.

use crate::abi::Opaque64;
use crate::backing;
use crate::context::current;
use crate::device::Device;
use crate::process;
use crate::status::{INVALID_HANDLE, INVALID_VALUE, MAP_FAILED, NOT_SUPPORTED, Outcome};
use drystone_driver::Driver;
use drystone_sim::{Extent, GRANULARITY_BYTES, SharedFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// First word of every handle.
const MEMORY: u64 = u64::from_le_bytes(*b"simcumem");

#[derive(Debug)]
struct Opened {
    bytes: u64,
    references: u64,
    from: [u64; 8],
    /// Addresses that were reserved for it, and how many bytes.
    reserved: Option<(u64, u64)>,
}

/// By address in this process.
static OPENED: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());

/// The opened memory that holds an address: its start and size.
pub(crate) fn find(address: u64) -> Option<(u64, u64)> {
    let opened = OPENED.lock();
    let (&start, one) = opened.range(..=address).next_back()?;
    (address - start < one.bytes).then_some((start, one.bytes))
}

/// Whether a range lies in opened memory.
pub(crate) fn is_open(address: u64, bytes: u64) -> bool {
    find(address).is_some_and(|(start, size)| address - start + bytes <= size)
}

/// What lies behind allocations that were given, by address; others reach it by its descriptor.
static GIVEN: Mutex<BTreeMap<u64, Arc<SharedFile>>> = Mutex::new(BTreeMap::new());

/// The handle of an allocation of this process. Two of which each is given share no page.
pub(crate) fn handle(device: &Device, extent: Extent) -> Outcome<Opaque64> {
    let Extent { address, bytes, .. } = extent;
    let mut given = GIVEN.lock();
    if device.backing.is_some() && !given.contains_key(&address) {
        let is_near = |(&other, file): (&u64, &Arc<SharedFile>)| {
            let start = other - backing::ahead_of(other);
            start < address + bytes && address < start + file.bytes()
        };
        NOT_SUPPORTED.when(given.iter().any(is_near))?;
        given.insert(address, Arc::new(backing::share(device.place as u32, address, bytes)?));
    }
    let descriptor = given.get(&address).map_or(0, |file| file.as_fd().as_raw_fd() as u64);
    let process = u64::from(std::process::id());
    Ok(Opaque64([MEMORY, process, device.ordinal as u64, address, bytes, descriptor, 0, 0]))
}

/// An allocation is no more: who opened it keeps what was behind it.
pub(crate) fn give_no_more(address: u64) {
    GIVEN.lock().remove(&address);
}

/// Opens memory by its handle, and returns its address in this process.
pub(crate) fn open(handle: Opaque64) -> Outcome<u64> {
    let [MEMORY, process, _, address, bytes, descriptor, ..] = handle.0 else {
        return Err(INVALID_HANDLE);
    };
    let device = current()?;
    let mut opened = OPENED.lock();
    if let Some((&start, one)) = opened.iter_mut().find(|(_, one)| one.from == handle.0) {
        one.references += 1;
        return Ok(start);
    }
    let is_foreign = process != u64::from(std::process::id());
    let (start, reserved) = if is_foreign {
        let ahead = backing::ahead_of(address);
        let whole = (ahead + bytes).checked_next_multiple_of(GRANULARITY_BYTES);
        let whole = whole.ok_or(INVALID_HANDLE)?;
        let at = device.sim.reserve(whole, 0)?;
        if device.backing.is_some() && descriptor != 0 {
            let file = SharedFile::of_process(process as u32, descriptor as i32);
            let file = file.map_err(|_| MAP_FAILED).and_then(|file| {
                backing::show(device.backing.as_ref(), at, file.bytes(), Some(&Arc::new(file)), 3)
            });
            file.inspect_err(|_| drop(device.sim.unreserve(at, whole)))?;
        }
        (at + ahead, Some((at, whole)))
    } else {
        (address, None)
    };
    opened.insert(start, Opened { bytes, references: 1, from: handle.0, reserved });
    Ok(start)
}

pub(crate) fn close(address: u64) -> Outcome {
    let mut opened = OPENED.lock();
    let one = opened.get_mut(&address).ok_or(INVALID_VALUE)?;
    one.references -= 1;
    if one.references > 0 {
        return Ok(());
    }
    let Some(gone) = opened.remove(&address) else { return Err(INVALID_VALUE) };
    if let Some((at, whole)) = gone.reserved {
        let device = process::device_of_address(at).ok_or(INVALID_VALUE)?;
        backing::close(device.backing.as_ref(), at, whole);
        device.sim.unreserve(at, whole)?;
    }
    Ok(())
}
