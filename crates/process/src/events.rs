//! The program's events, as far as whoever sees them tells: which fence stands for each, until it
//! is recorded again or destroyed.
//!
//! Who hears of an event after it was recorded calls [`recorded`] and [`waited`]. Who stands before
//! the driver asks for the fence first ([`fence`]), so that it is over once the event is, and keeps
//! it once the driver has recorded the event ([`keep`]).

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use drystone::{Fence, StreamId};
use parking_lot::Mutex;

use crate::device::Device;
use crate::registry;

/// What stands for an event, and on which device: by its address, which is never another's. What is
/// of a device from before a reset says nothing of the streams that came after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfEvent {
    device: usize,
    fence: Fence,
}

impl OfEvent {
    fn is_of(self, device: &Device) -> bool {
        self.device == ptr::from_ref(device).addr()
    }
}

type Known = BTreeMap<usize, OfEvent>;

/// What stands for events, by their handles.
static KNOWN: Mutex<Known> = Mutex::new(Known::new());
/// How many they are. Who may wait for an event has heard of its record, and of this.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn change(how: impl FnOnce(&mut Known)) {
    let mut known = KNOWN.lock();
    how(&mut known);
    COUNT.store(known.len(), Ordering::Relaxed);
}

/// Whether anything stands for any event.
#[inline]
fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// What stands for an event that is recorded now. `None`: nothing that was freed waits for it.
pub fn fence(device: &Device, stream: StreamId) -> Option<OfEvent> {
    let fence = device.allocator.note_event(stream)?;
    Some(OfEvent { device: ptr::from_ref(device).addr(), fence })
}

/// This stands for an event from now on, or nothing.
pub fn keep(event: usize, fence: Option<OfEvent>) {
    match fence {
        Some(fence) => change(|known| _ = known.insert(event, fence)),
        None => destroyed(event),
    }
}

/// What stands for an event.
#[inline]
pub fn of(event: usize) -> Option<OfEvent> {
    if is_any() { KNOWN.lock().get(&event).copied() } else { None }
}

/// A stream was made to wait for an event that this stands for.
pub fn wait(device: &Device, stream: StreamId, of: OfEvent) {
    if of.is_of(device) {
        device.allocator.note_wait(stream, of.fence);
    }
}

/// An event was recorded on a stream of a device; of none (-1) if that is captured. A device that
/// is not in use has nothing to order.
pub fn recorded(device: i32, event: usize, stream: u64) {
    let fence = registry::find(device).and_then(|device| {
        let stream = device.stream(stream).ok()?;
        fence(device, stream)
    });
    keep(event, fence);
}

/// A stream of a device was made to wait for an event.
pub fn waited(device: i32, event: usize, stream: u64) {
    if let Some(of) = of(event)
        && let Some(device) = registry::find(device)
        && of.is_of(device)
        && let Ok(stream) = device.stream(stream)
    {
        wait(device, stream, of);
    }
}

/// An event was destroyed: its handle may be another's from now on.
#[inline]
pub fn destroyed(event: usize) {
    if is_any() {
        change(|known| _ = known.remove(&event));
    }
}

/// A device was reset: its events are gone.
pub fn forget_device(device: &Device) {
    change(|known| known.retain(|_, of| !of.is_of(device)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drystone::Options;
    use drystone::driver::{Driver, Stream};
    use drystone_sim::{SimConfig, SimDevice};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A device on a simulated one of 80 GiB, and two streams of it.
    fn device(ordinal: u32) -> (Arc<SimDevice>, Device, [Stream; 2]) {
        let config = SimConfig { total_bytes: 80 << 30, ..SimConfig::default() };
        let sim = Arc::new(SimDevice::new(config));
        let driver = Arc::clone(&sim) as Arc<dyn Driver>;
        let device = Device::new(ordinal, driver, &Options::default()).unwrap();
        let streams = [sim.create_stream(), sim.create_stream()];
        (sim, device, streams)
    }

    /// Allocates on a stream, works there, and frees.
    fn used(sim: &SimDevice, device: &Device, stream: Stream) -> StreamId {
        let id = device.keep_stream(stream.0).unwrap();
        let block = device.allocate(stream.0, 64 * MIB).unwrap();
        sim.launch(stream, 1_000_000_000).unwrap();
        device.allocator.free(block).unwrap();
        id
    }

    fn held(device: &Device) -> u64 {
        device.allocator.allocated_and_reserved_bytes().1
    }

    #[test]
    fn what_a_stream_freed_before_an_event_serves_who_waits_for_it() {
        let (sim, device, [once, main]) = device(40);
        let id = used(&sim, &device, once);
        keep(0x4000, fence(&device, id));
        let before = held(&device);
        let main_id = device.keep_stream(main.0).unwrap();
        wait(&device, main_id, of(0x4000).unwrap());
        used(&sim, &device, main);
        assert_eq!(held(&device), before);
        destroyed(0x4000);
    }

    #[test]
    fn nothing_stands_for_an_event_that_is_gone_or_recorded_where_nothing_was_freed() {
        let (_, other, _) = device(41);
        let (sim, device, [once, main]) = device(41);
        let id = used(&sim, &device, once);
        let idle = device.keep_stream(main.0).unwrap();
        let of_once = fence(&device, id);
        assert!(of_once.is_some() && fence(&device, idle).is_none());
        for event in [0x4100, 0x4101, 0x4102, 0x4103] {
            keep(event, of_once);
            assert_eq!(of(event), of_once);
        }
        destroyed(0x4100);
        keep(0x4101, fence(&device, idle));
        recorded(-1, 0x4102, once.0);
        for event in [0x4100, 0x4101, 0x4102] {
            assert_eq!(of(event), None);
        }
        forget_device(&other);
        assert_eq!(of(0x4103), of_once);
        forget_device(&device);
        assert_eq!(of(0x4103), None);
    }

    #[test]
    fn b03_an_event_of_one_device_orders_nothing_on_another_or_after_a_reset() {
        let (sim, one, [once, _]) = device(42);
        let (other_sim, other, [main, _]) = device(42);
        let id = used(&sim, &one, once);
        keep(0x4200, fence(&one, id));
        let main = other.keep_stream(main.0).unwrap();
        let before = other_sim.calls();
        wait(&other, main, of(0x4200).unwrap());
        assert_eq!(other_sim.calls(), before);
        destroyed(0x4200);
    }
}
