//! Memory of another process, by handles that can be sent to it.
//!
//! A handle names the process, the device and the address. Opened in the process it came from it
//! gives the same address; elsewhere a range of addresses of the same size, with nothing real
//! behind it. Invariant: an opened handle is closed as often as it was opened.

use crate::abi::Opaque64;
use crate::context::current;
use crate::process;
use crate::status::{INVALID_HANDLE, INVALID_VALUE, Outcome};
use drystone_driver::Driver;
use drystone_sim::GRANULARITY_BYTES;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// First word of every handle.
const MEMORY: u64 = u64::from_le_bytes(*b"simcumem");

#[derive(Debug)]
struct Opened {
    bytes: u64,
    references: u64,
    /// The handle it was opened by.
    from: [u64; 8],
    /// Whether its addresses were reserved for it.
    is_foreign: bool,
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

/// The handle of an allocation of this process.
pub(crate) fn handle(ordinal: usize, address: u64, bytes: u64) -> Opaque64 {
    let process = u64::from(std::process::id());
    Opaque64([MEMORY, process, ordinal as u64, address, bytes, 0, 0, 0])
}

/// Opens memory by its handle, and returns its address in this process.
pub(crate) fn open(handle: Opaque64) -> Outcome<u64> {
    let [MEMORY, process, _, address, bytes, ..] = handle.0 else { return Err(INVALID_HANDLE) };
    let device = current()?;
    let mut opened = OPENED.lock();
    if let Some((&start, one)) = opened.iter_mut().find(|(_, one)| one.from == handle.0) {
        one.references += 1;
        return Ok(start);
    }
    let is_foreign = process != u64::from(std::process::id());
    let start = if is_foreign {
        let whole = bytes.checked_next_multiple_of(GRANULARITY_BYTES).ok_or(INVALID_HANDLE)?;
        device.sim.reserve(whole, 0)?
    } else {
        address
    };
    opened.insert(start, Opened { bytes, references: 1, from: handle.0, is_foreign });
    Ok(start)
}

/// Closes memory that was opened at this address.
pub(crate) fn close(address: u64) -> Outcome {
    let mut opened = OPENED.lock();
    let one = opened.get_mut(&address).ok_or(INVALID_VALUE)?;
    one.references -= 1;
    if one.references > 0 {
        return Ok(());
    }
    let Some(gone) = opened.remove(&address) else { return Err(INVALID_VALUE) };
    if gone.is_foreign {
        let device = process::device_of_address(address).ok_or(INVALID_VALUE)?;
        let whole = gone.bytes.next_multiple_of(GRANULARITY_BYTES);
        device.sim.unreserve(address, whole)?;
    }
    Ok(())
}
