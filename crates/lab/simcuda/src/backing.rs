//! Real memory behind device memory, where the settings ask for it.
//!
//! The process reserves the device's addresses and nothing else can come to lie there. Plain and
//! stream-ordered memory is made of private pages, opened at each allocation; what is given to
//! another process becomes a file then. Virtual memory is a
//! file in memory for each handle, mapped wherever the handle is: what is written through one
//! mapping is read through every other. The system commits a page when it is first touched.

use crate::status::{OPERATING_SYSTEM, OUT_OF_MEMORY, Outcome};
use drystone_sim::{SharedFile, SimConfig};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const NOTHING: i32 = libc::PROT_NONE;
const ANYTHING: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Stands for the reserved addresses of a device; they stay reserved for the process's life.
#[derive(Debug)]
pub(crate) struct Backing(());

impl Backing {
    /// Reserves the device's addresses, or ends the process: nothing can run without them.
    pub(crate) fn new(config: &SimConfig) -> Self {
        static OWN: AtomicU64 = AtomicU64::new(0);
        let (first, bytes) = (config.first_address, config.address_space_bytes);
        let bit = 1 << config.ordinal;
        // A device that takes another's place has its addresses, too.
        let is_own = OWN.fetch_or(bit, Ordering::Relaxed) & bit != 0;
        let only = libc::MAP_FIXED_NOREPLACE;
        let reserved = if is_own { reserve(first, bytes) } else { take(first, bytes, only) };
        if reserved.is_err() {
            eprintln!(
                "simcuda: cannot reserve {:#x} (+{:#x}) for device {}: something lies there, or \
                 addresses are limited (ulimit -v); set address_space lower, or backing:false",
                config.first_address, config.address_space_bytes, config.ordinal
            );
            std::process::abort();
        }
        Self(())
    }
}

/// Maps fresh pages without access over a range of device addresses.
fn reserve(address: u64, bytes: u64) -> Outcome {
    take(address, bytes, libc::MAP_FIXED)
}

fn take(address: u64, bytes: u64, how: i32) -> Outcome {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | how;
    place(address, bytes, NOTHING, flags, -1)
}

fn place(address: u64, bytes: u64, access: i32, flags: i32, file: i32) -> Outcome {
    let at = address as *mut libc::c_void;
    // SAFETY: the range is one of device addresses, which belong to the simulated device alone.
    let placed = unsafe { libc::mmap(at, bytes as usize, access, flags, file, 0) };
    if placed == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(()) }
}

/// Makes an allocation's pages real.
pub(crate) fn open(backing: Option<&Backing>, address: u64, bytes: u64) {
    if backing.is_none() {
        return;
    }
    let start = address - address % PAGE;
    let end = (address + bytes).next_multiple_of(PAGE);
    // SAFETY: the pages lie in device addresses that hold an allocation; a page shared with a
    // neighbour is real already and stays as it is.
    unsafe { libc::mprotect(start as *mut libc::c_void, (end - start) as usize, ANYTHING) };
}

/// Takes back the pages that lie wholly in a range.
pub(crate) fn close(backing: Option<&Backing>, address: u64, bytes: u64) {
    if backing.is_none() {
        return;
    }
    let start = address.next_multiple_of(PAGE);
    let end = address + bytes - (address + bytes) % PAGE;
    if start < end {
        // A failure leaves old pages that the next allocation finds.
        let _ = reserve(start, end - start);
    }
}

/// How far into its first page an address lies.
pub(crate) const fn ahead_of(address: u64) -> u64 {
    address % PAGE
}

/// Puts a file in the place of an allocation's private pages, with what is there, so that other
/// processes can map it.
pub(crate) fn share(ordinal: u32, address: u64, bytes: u64) -> Outcome<SharedFile> {
    let start = address - ahead_of(address);
    let whole = (address + bytes).next_multiple_of(PAGE) - start;
    let file = SharedFile::new(ordinal, whole).map_err(|_| OPERATING_SYSTEM)?;
    let number = file.as_fd().as_raw_fd();
    let mut written = 0;
    while written < whole {
        let from = (start + written) as *const libc::c_void;
        // SAFETY: the pages of an allocation, which are real.
        let more =
            unsafe { libc::pwrite(number, from, (whole - written) as usize, written as i64) };
        OPERATING_SYSTEM.when(more <= 0)?;
        written += more as u64;
    }
    place(start, whole, ANYTHING, libc::MAP_SHARED | libc::MAP_FIXED, number)?;
    Ok(file)
}

/// Shows a handle's memory at an address, or hides it.
pub(crate) fn show(
    backing: Option<&Backing>,
    address: u64,
    bytes: u64,
    file: Option<&Arc<SharedFile>>,
    access: i32,
) -> Outcome {
    let (Some(_), Some(file)) = (backing, file) else { return Ok(()) };
    match access {
        0 => reserve(address, bytes),
        _ => {
            let access = if access == 1 { libc::PROT_READ } else { ANYTHING };
            place(
                address,
                bytes,
                access,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_fd().as_raw_fd(),
            )
        }
    }
}
