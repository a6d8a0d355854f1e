//! The two functions, and what is in use by them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::device::{self, Stream};

pub(crate) type Alloc = unsafe extern "C" fn(*mut u64, usize, Stream) -> u32;
pub(crate) type Free = unsafe extern "C" fn(u64, Stream) -> u32;

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

/// Prints, last of all, how many bytes were asked for at most at one time.
pub fn report() {
    println!("asked {}", with_blocks(|blocks| blocks.peak_asked_bytes));
}

/// # Safety
/// As `next`.
pub(crate) unsafe fn alloc(next: Alloc, out: *mut u64, bytes: usize, stream: Stream) -> u32 {
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
pub(crate) unsafe fn free(next: Free, address: u64, stream: Stream) -> u32 {
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
