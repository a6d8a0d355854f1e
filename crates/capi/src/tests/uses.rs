//! Blocks that another stream uses, freed again and again while nothing misses.

use super::*;

/// A program that is served from its cache forever, on streams of which nobody says when they end:
/// what it freed is seen to be over, though no miss ever looks, and events are used again.
#[test]
fn events_and_pending_memory_stay_few_though_nothing_misses() {
    const DEVICE: c_int = 28;
    let device = simulated(DEVICE.cast_unsigned()).unwrap();
    let [own, other] = [(); 2].map(|()| device.create_stream());
    let cache: Vec<_> = (0..200).map(|_| drystone_malloc(1 << 20, DEVICE, stream(own.0))).collect();
    for block in cache {
        drystone_free(block, 1 << 20, DEVICE, stream(own.0));
    }
    let reserved_bytes = stats(DEVICE).reserved_bytes.peak;
    for round in 0..2_000_000 {
        let block = drystone_malloc(1 << 20, DEVICE, stream(own.0));
        device.launch(other, 5000).unwrap();
        drystone_record_stream(block, stream(other.0));
        drystone_free(block, 1 << 20, DEVICE, stream(own.0));
        device.advance_by(10_000);
        let (events, now) = (device.live_objects().events, stats(DEVICE));
        let pending_bytes = now.active_bytes.current - now.allocated_bytes.current;
        assert!(events <= 1000 && pending_bytes <= 64 << 20, "round {round}: {events} events");
    }
    assert_eq!(stats(DEVICE).reserved_bytes.peak, reserved_bytes, "nothing missed");
}
