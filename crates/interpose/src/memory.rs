//! Serving requests and frees instead of the driver.
//!
//! Invariants: a block is ordered after the stream that it is freed on, whichever that is. What is
//! not ours to serve or to take back is the driver's, and so is every error but a lack of memory
//! (B31).

use std::mem;

use drystone::driver::Relaxed;
use drystone::{AllocateError, PoolId, seen};
use drystone_cuda::{ProcessState, process_state};
use drystone_process::barrier::barrier;
use drystone_process::device::Device;
use drystone_process::{self as process, free, registry};
use parking_lot::Mutex;

use crate::driver::{Driver, Handle, OUT_OF_MEMORY, SUCCESS, Status};
use crate::{captures, pools, streams};

/// Who answers a request.
enum Outcome {
    Block(u64),
    OutOfMemory,
    Driver,
}

/// Serves a request in stream order, or passes it on. No pool is the current one of the device.
///
/// # Safety
/// `to` is null or writable.
#[inline]
pub(crate) unsafe fn serve(
    driver: &Driver,
    to: *mut u64,
    bytes: usize,
    pool: Option<Handle>,
    stream: Handle,
    drivers: impl Fn() -> Status,
) -> Status {
    let may = bytes > 0 && !to.is_null() && process::check().is_ok();
    let ask = || allocate(driver, bytes as u64, pool, stream);
    match if may { barrier(Outcome::Driver, ask) } else { Outcome::Driver } {
        Outcome::Block(address) => {
            // SAFETY: by the caller's word.
            unsafe { to.write_unaligned(address) };
            SUCCESS
        }
        Outcome::OutOfMemory => OUT_OF_MEMORY,
        Outcome::Driver => drivers(),
    }
}

#[inline]
fn allocate(driver: &Driver, bytes: u64, pool: Option<Handle>, stream: Handle) -> Outcome {
    let granted = (|| {
        if captures::is_captured(driver, stream) {
            return None;
        }
        let stood_in = |ordinal| pools::stood_in(driver, pool, ordinal);
        let place = || streams::place(driver, stream, |ordinal| stood_in(ordinal).is_some());
        let found = place()?;
        let pool = stood_in(found.device.ordinal.cast_signed())?;
        let ask = |place: streams::Place| {
            place.device.allocator.allocate_raw(PoolId::DEFAULT, place.stream, bytes)
        };
        let granted = match ask(found) {
            Err(AllocateError::Request(_)) => {
                seen::forget(streams::named(stream));
                ask(place()?)
            }
            granted => granted,
        };
        Some(granted.map(|granted| (granted.address, pool)))
    })();
    match granted {
        Some(Ok((address, pool))) => {
            pools::gave(pool, address);
            Outcome::Block(address)
        }
        Some(Err(AllocateError::OutOfMemory(_))) => Outcome::OutOfMemory,
        Some(Err(_)) | None => Outcome::Driver,
    }
}

/// Frees a block of ours in the order of a stream; whether it did. In a capture it does not: the
/// driver frees memory of the graph's alone there, and says so.
#[inline]
pub(crate) fn free_in_order(driver: &Driver, address: u64, stream: Handle) -> bool {
    let freed = || match process_state() {
        ProcessState::Forked => None,
        ProcessState::Exiting => free::owner(address).ok().map(drop),
        ProcessState::Running if captures::is_captured(driver, stream) || waits(address) => None,
        ProcessState::Running => {
            let place = streams::place_if_any(driver, stream);
            if let Some(streams::Place { device, stream }) = place
                && take(address, || device.allocator.free_used_on(address, stream).ok()).is_some()
            {
                return Some(());
            }
            let device = free::owner(address).ok()?;
            // A stream of another device, say: what it has queued is waited for.
            let _relaxed = Relaxed::enter(driver);
            // SAFETY: the program passed the stream.
            let waited = unsafe { (driver.cuStreamSynchronize)(stream) };
            (waited == SUCCESS).then(|| take(address, || device.allocator.free(address).ok()))?
        }
    };
    address != 0 && barrier(false, || freed().is_some())
}

/// Takes a block back. Which pool it was asked for of is forgotten before: from then on the address
/// may be another's.
#[inline]
fn take(address: u64, free: impl FnOnce() -> Option<()>) -> Option<()> {
    let pool = pools::takes(address);
    let freed = free();
    if let (None, Some(pool)) = (freed, pool) {
        pools::gave(pool, address);
    }
    freed
}

/// Blocks that were freed while a capture forbade to wait for the device. The end of the last one
/// frees them; until then they are not the program's any more.
static LATER: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Whether a block was freed already, and a capture keeps it.
#[inline]
fn waits(address: u64) -> bool {
    captures::any() && LATER.lock().contains(&address)
}

/// Frees a block of ours once its device is idle; whether it did, or will.
pub(crate) fn free_when_idle(address: u64) -> bool {
    let freed = || {
        if process_state() == ProcessState::Forked {
            return None;
        }
        let device = free::owner(address).ok().filter(|_| !waits(address))?;
        if process_state() == ProcessState::Exiting {
            return Some(());
        }
        // Others are served meanwhile: what the device is busy with may wait for them.
        let is_idle = device.allocator.before_captures(|| {
            let may_wait = !captures::any();
            may_wait.then(|| device.driver.synchronize_device().is_ok())
        });
        match is_idle {
            Some(true) => take(address, || device.allocator.free(address).ok()),
            Some(false) => None,
            None => {
                LATER.lock().push(address);
                // It may have been the last that ended meanwhile.
                free_what_waited();
                Some(())
            }
        }
    };
    address != 0 && barrier(false, || freed().is_some())
}

/// A capture is over: if it was the last, what waited for that goes. What a device in error keeps
/// is tried again after the next.
pub(crate) fn free_what_waited() {
    if !captures::any() {
        let mut waited = mem::take(&mut *LATER.lock());
        waited.retain(|&address| !free_when_idle(address));
        LATER.lock().extend(waited);
    }
}

/// A device was reset: what waited of its blocks is gone.
pub(crate) fn forget_gone() {
    LATER.lock().retain(|&address| free::owner(address).is_ok());
}

/// The live block of ours that an address lies in: its device, where it starts, and how many bytes
/// the program asked for. Looks through all blocks, unless it is a start.
pub(crate) fn block_around(address: u64) -> Option<(&'static Device, u64, u64)> {
    process::check().ok()?;
    for device in registry::in_use() {
        if let Ok(block) = device.allocator.block_at(address) {
            return Some((device, address, block.requested_bytes));
        }
    }
    let lies_in = |start: u64, bytes: u64| start <= address && address - start < bytes;
    registry::in_use().find_map(|device| {
        let segments = device.allocator.snapshot();
        let segment = segments.iter().find(|one| lies_in(one.address, one.bytes))?;
        let block = segment.blocks.iter().find(|one| lies_in(one.address, one.bytes))?;
        let is_live = device.allocator.block_at(block.address).is_ok();
        is_live.then_some((device, block.address, block.requested_bytes))
    })
}
