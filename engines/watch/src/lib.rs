//! What an engine asks for, told to the simulated device's oracle.
//!
//! The engine's calls of `cuMemAllocAsync` and `cuMemFreeAsync` come here first, and go on to whom
//! they were meant for: the driver, or Drystone in its place. The oracle then pretends a kernel on
//! the stream after each allocation and before each free. Nothing of the engine is changed for it:
//! the linker puts `__wrap_NAME` where `NAME` was called (`build.rs` of each engine). An engine
//! that is linked with the driver calls the two functions by name (`linked`); one that looks them
//! up calls `dlsym` (`found`).

mod device;
#[cfg(not(feature = "linked"))]
mod found;
#[cfg(feature = "linked")]
mod linked;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

type Stream = *mut c_void;
type Alloc = unsafe extern "C" fn(*mut u64, usize, Stream) -> u32;
type Free = unsafe extern "C" fn(u64, Stream) -> u32;

/// What is in use.
#[derive(Default)]
struct Blocks {
    /// What each block was asked for with, by address.
    bytes: HashMap<u64, u64>,
    asked_bytes: u64,
    peak_asked_bytes: u64,
}

static BLOCKS: Mutex<Option<Blocks>> = Mutex::new(None);

fn with_blocks<T>(body: impl FnOnce(&mut Blocks) -> T) -> T {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    body(blocks.get_or_insert_default())
}

/// Whether Drystone is part of the program, and calls the driver itself.
static HAS_DRYSTONE: AtomicBool = AtomicBool::new(false);

/// To be called first by a program that Drystone is part of: what Drystone itself asks of the
/// driver is not the engine's.
pub fn drystone_is_here() {
    HAS_DRYSTONE.store(true, Ordering::Relaxed);
}

/// Prints, last of all, how many bytes were asked for at most at one time.
pub fn report() {
    println!("asked {}", with_blocks(|blocks| blocks.peak_asked_bytes));
}

/// # Safety
/// As `next`.
unsafe fn alloc(next: Alloc, out: *mut u64, bytes: usize, stream: Stream) -> u32 {
    // SAFETY: the caller's own arguments.
    let status = unsafe { next(out, bytes, stream) };
    if status == 0 {
        // SAFETY: just written.
        let address = unsafe { *out };
        with_blocks(|blocks| {
            blocks.bytes.insert(address, bytes as u64);
            blocks.asked_bytes += bytes as u64;
            blocks.peak_asked_bytes = blocks.peak_asked_bytes.max(blocks.asked_bytes);
        });
        device::check_alloc(address, bytes as u64, stream);
    }
    status
}

/// # Safety
/// As `next`.
unsafe fn free(next: Free, address: u64, stream: Stream) -> u32 {
    let known = with_blocks(|blocks| {
        let known = blocks.bytes.remove(&address);
        blocks.asked_bytes -= known.unwrap_or(0);
        known
    });
    if known.is_some() {
        device::check_free(address);
    }
    // SAFETY: the caller's own arguments.
    unsafe { next(address, stream) }
}
