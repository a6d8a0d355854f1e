//! The program's events, as far as whoever sees them tells: which fence stands for each, until it
//! is recorded again or destroyed.

use std::collections::BTreeMap;

use drystone::Fence;
use parking_lot::Mutex;

use crate::registry;

/// What stands for events, and on which device, by their handles.
static KNOWN: Mutex<BTreeMap<usize, (u32, Fence)>> = Mutex::new(BTreeMap::new());

/// An event was recorded on a stream of a device; of none (-1) if that is captured. A device that
/// is not in use has nothing to order.
pub fn recorded(device: i32, event: usize, stream: u64) {
    let fence = registry::find(device).and_then(|device| {
        let stream = device.stream(stream).ok()?;
        Some((device.ordinal, device.allocator.note_event(stream)?))
    });
    let mut known = KNOWN.lock();
    match fence {
        Some(fence) => known.insert(event, fence),
        None => known.remove(&event),
    };
}

/// A stream of a device was made to wait for an event.
pub fn waited(device: i32, event: usize, stream: u64) {
    let known = KNOWN.lock().get(&event).copied();
    if let Some((_, fence)) = known.filter(|&(of, _)| of as i32 == device)
        && let Some(device) = registry::find(device)
        && let Ok(stream) = device.stream(stream)
    {
        device.allocator.note_wait(stream, fence);
    }
}

/// An event was destroyed: its handle may be another's from now on.
pub fn destroyed(event: usize) {
    KNOWN.lock().remove(&event);
}
