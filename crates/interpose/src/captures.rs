//! Captures under way. Memory that is asked for in one belongs to the graph, so it is the driver's.
//!
//! While none is under way nobody is asked. Others than the stream that was named may have joined
//! one, so while there is any the driver is asked about each stream.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicUsize, Ordering};

use drystone::driver::{CaptureMode, CaptureModes};
use parking_lot::Mutex;

use crate::driver::{Driver, Handle, SUCCESS, Status};

/// A stream whose capture was seen to begin, and its device, if that is known.
struct Captured {
    handle: usize,
    ordinal: Option<c_int>,
}

/// Each as often as it began: threads' own streams share a handle.
static STREAMS: Mutex<Vec<Captured>> = Mutex::new(Vec::new());
/// How many they are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any stream is captured.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Whether this stream is.
#[inline]
pub(crate) fn is_captured(driver: &Driver, stream: Handle) -> bool {
    any() && asks(driver, stream)
}

/// Whether the driver says so. A default stream that others' captures keep it from telling of is
/// not.
pub(crate) fn asks(driver: &Driver, stream: Handle) -> bool {
    let mut status = 0;
    // SAFETY: writes a number; the program passed the stream.
    let asked = unsafe { (driver.cuStreamIsCapturing)(stream, &raw mut status) };
    asked == SUCCESS && status != 0
}

impl CaptureModes for Driver {
    type Error = Status;

    fn exchange(&self, mode: CaptureMode) -> Result<CaptureMode, Status> {
        let mut mode = mode as c_uint;
        // SAFETY: reads a mode and writes one.
        match unsafe { (self.cuThreadExchangeStreamCaptureMode)(&raw mut mode) } {
            SUCCESS => Ok(CaptureMode::numbered(mode)),
            status => Err(status),
        }
    }
}

/// A capture of a stream is about to begin: from now on whoever allocates asks.
pub(crate) fn begins(stream: Handle, ordinal: Option<c_int>) {
    change(|streams| streams.push(Captured { handle: stream.addr(), ordinal }));
}

/// A capture of a stream is over, or did not begin.
pub(crate) fn ended(stream: Handle) {
    change(|streams| {
        if let Some(at) = streams.iter().position(|one| one.handle == stream.addr()) {
            streams.swap_remove(at);
        }
    });
}

/// A device was reset, and its captures are gone.
pub(crate) fn forget_device(ordinal: c_int) {
    change(|streams| streams.retain(|one| one.ordinal != Some(ordinal)));
}

fn change(how: impl FnOnce(&mut Vec<Captured>)) {
    let mut streams = STREAMS.lock();
    how(&mut streams);
    COUNT.store(streams.len(), Ordering::Release);
}
