//! What can be seen of work: bytes that copies and memsets leave behind, and calls of the host.
//!
//! Work is carried out when it is queued, not in the order of its stream. Device memory without
//! backing takes what is written and reads as zero; a range of it that is not there is refused.

use crate::device::Device;
use crate::status::{INVALID_VALUE, Outcome};
use crate::tables::Node;
use crate::{capture, opened, process};
use drystone_sim::ExtentKind;
use std::sync::atomic::Ordering;

/// Refuses a range of device memory that is not wholly there.
pub(crate) fn check(address: u64, bytes: u64) -> Outcome {
    INVALID_VALUE.when(address == 0 && bytes > 0)?;
    let Some(device) = process::device_of_address(address) else { return Ok(()) };
    let is_there = bytes == 0
        || device.sim.is_accessible(address, bytes)
        || capture::any(&device)
        || opened::is_open(address, bytes);
    if is_there { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Refuses a range that work on this device cannot reach. Memory of another device is open by its
/// access, its pool's, or, of plain memory, by peer access; `is_copy` says that the driver would
/// carry plain memory over by itself.
pub(crate) fn check_on(device: &Device, address: u64, bytes: u64, is_copy: bool) -> Outcome {
    check(address, bytes)?;
    let Some(owner) = process::device_of_address(address) else { return Ok(()) };
    if owner.ordinal == device.ordinal || !owner.config.sim.harsh.closed_memory_is_refused {
        return Ok(());
    }
    let is_open = match owner.sim.extent_at(address).map(|extent| extent.kind) {
        Some(ExtentKind::Mapped) => is_mapped_for(&owner, device.ordinal, address, bytes),
        Some(ExtentKind::Pooled) => {
            let pools = owner.sim.memory_pools();
            let pool = pools.into_iter().find(|&pool| owner.sim.is_from_pool(pool, address));
            let bits = pool.map(|pool| owner.tables.lock().pools.reachable_by(pool.0));
            bits.unwrap_or(0) & 1 << device.ordinal != 0
        }
        Some(ExtentKind::Plain) => {
            is_copy || device.peers.load(Ordering::Relaxed) & 1 << owner.ordinal != 0
        }
        None => true,
    };
    if is_open { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Whether every mapping of a range is open to a device.
fn is_mapped_for(owner: &Device, ordinal: usize, address: u64, bytes: u64) -> bool {
    let tables = owner.tables.lock();
    let end = address.saturating_add(bytes.max(1));
    let mut at = address;
    while at < end {
        let Some((start, mapping)) = tables.physicals.mapping_around(at) else { return false };
        if mapping.reachable_by & 1 << ordinal == 0 {
            return false;
        }
        at = start + mapping.bytes;
    }
    true
}

/// Whether a range can be read and written by the host, and is to be.
fn is_real(address: u64, bytes: u64) -> bool {
    process::device_of_address(address)
        .is_none_or(|device| device.backing.is_some() && bytes <= device.config.backing_limit_bytes)
}

/// Does what can be seen of a copy.
pub(crate) fn carry_out(to: u64, from: u64, bytes: u64) {
    let (to_host, from_host) = (to as *mut u8, from as *const u8);
    match (is_real(to, bytes), is_real(from, bytes)) {
        // SAFETY: the program says that both ranges are memory; those of devices were checked.
        (true, true) => unsafe { std::ptr::copy(from_host, to_host, bytes as usize) },
        // SAFETY: as above.
        (true, false) => unsafe { to_host.write_bytes(0, bytes as usize) },
        (false, _) => {}
    }
}

/// Does what can be seen of a memset of `count` values of `width` bytes.
pub(crate) fn fill(to: u64, value: u32, width: usize, count: u64) {
    if !is_real(to, count * width as u64) {
        return;
    }
    let value = value.to_le_bytes();
    for index in 0..count as usize * width {
        let place = (to as *mut u8).wrapping_add(index);
        // SAFETY: the range was checked to be memory.
        unsafe { place.write(value[index % width]) };
    }
}

/// Does what can be seen of a graph's node.
pub(crate) fn run(node: &Node) {
    match *node {
        Node::Copy { to, from, bytes } => carry_out(to, from, bytes),
        Node::Set { to, value, width, count } => fill(to, value, width, count),
        // SAFETY: the program asked for this function to be called with this pointer.
        Node::Host { function, data } => unsafe { function(data.0) },
        Node::Child { ref nodes } => nodes.iter().for_each(run),
        Node::Kernel | Node::Empty | Node::Allocate | Node::Free => {}
    }
}
