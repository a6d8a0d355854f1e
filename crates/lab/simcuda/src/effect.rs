//! What can be seen of work: bytes that copies and memsets leave behind, and calls of the host.
//!
//! Work is carried out when it is queued, not in the order of its stream. Device memory without
//! backing takes what is written and reads as zero; a range of it that is not there is refused.

use crate::status::{INVALID_VALUE, Outcome};
use crate::tables::Node;
use crate::{capture, opened, process};

/// Refuses a range of device memory that is not wholly there.
pub(crate) fn check(address: u64, bytes: u64) -> Outcome {
    if address == 0 && bytes > 0 {
        return Err(INVALID_VALUE);
    }
    let Some(device) = process::device_of_address(address) else { return Ok(()) };
    let is_there = bytes == 0
        || device.sim.is_accessible(address, bytes)
        || capture::any(&device)
        || opened::is_open(address, bytes);
    if is_there { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Whether an address can be read and written by the host.
fn is_real(address: u64) -> bool {
    process::device_of_address(address).is_none_or(|device| device.backing.is_some())
}

/// Does what can be seen of a copy.
pub(crate) fn carry_out(to: u64, from: u64, bytes: u64) {
    let (to_host, from_host) = (to as *mut u8, from as *const u8);
    match (is_real(to), is_real(from)) {
        // SAFETY: the program says that both ranges are memory; those of devices were checked.
        (true, true) => unsafe { std::ptr::copy(from_host, to_host, bytes as usize) },
        // SAFETY: as above.
        (true, false) => unsafe { to_host.write_bytes(0, bytes as usize) },
        (false, _) => {}
    }
}

/// Does what can be seen of a memset of `count` values of `width` bytes.
pub(crate) fn fill(to: u64, value: u32, width: usize, count: u64) {
    if !is_real(to) {
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
