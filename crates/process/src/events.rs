//! The program's events, as far as whoever sees them tells: what each stands for, until it is
//! recorded again or destroyed.
//!
//! Invariant: an event is known only if it was recorded right after it was created, by the same
//! thread. That is how PyTorch makes the events that its streams wait for, and it tells of both. Of
//! an event that is recorded anew nobody says when that begins.

use std::cell::Cell;
use std::collections::BTreeMap;

use drystone::{Fence, OrderEpoch};
use parking_lot::Mutex;

use crate::registry;

thread_local! {
    /// The event that the thread created last, of which device, and what was freed by then.
    static CREATED: Cell<Option<(usize, u32, OrderEpoch)>> = const { Cell::new(None) };
}

/// What events stand for, and on which device, by their handles.
static KNOWN: Mutex<BTreeMap<usize, (u32, Fence)>> = Mutex::new(BTreeMap::new());

/// An event was created, to be recorded on a device. One that is not in use has nothing to order.
pub fn created(device: i32, event: usize) {
    let epoch = registry::find(device).and_then(|device| {
        let epoch = device.allocator.order_epoch()?;
        Some((event, device.ordinal, epoch))
    });
    CREATED.with(|created| created.set(epoch));
}

/// An event was recorded on a stream of a device; of none (-1) if that is captured.
pub fn recorded(device: i32, event: usize, stream: u64) {
    let created = CREATED.take().filter(|&(same, of, _)| (same, of as i32) == (event, device));
    let fence = created.and_then(|(_, _, epoch)| {
        let device = registry::find(device)?;
        let stream = device.stream(stream).ok()?;
        Some((device.ordinal, device.allocator.note_event(stream, epoch)?))
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
    if let Some((of, fence)) = known.filter(|&(of, _)| of as i32 == device)
        && let Some(device) = registry::find(of as i32)
        && let Ok(stream) = device.stream(stream)
    {
        device.allocator.note_wait(stream, fence);
    }
}

/// An event was destroyed: its handle may be another's from now on.
pub fn destroyed(event: usize) {
    KNOWN.lock().remove(&event);
}
