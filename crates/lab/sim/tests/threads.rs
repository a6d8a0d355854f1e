//! Several host threads on one device: no call is lost and no rule is broken.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{Call, Driver};
use drystone_sim::{GRANULARITY_BYTES as G, Rng, SimConfig, SimDevice};
use std::thread;

const THREADS: u64 = 4;
const ROUNDS: u64 = 300;

/// Takes, maps, uses and gives back memory on a stream of its own.
fn work(device: &SimDevice, seed: u64) {
    let (mut rng, stream) = (Rng::new(seed), device.create_stream());
    let event = device.create_event().unwrap();
    for _ in 0..ROUNDS {
        let bytes = G * (1 + rng.below(4));
        let address = device.reserve(bytes, 0).unwrap();
        let handle = device.create(bytes).unwrap();
        device.map(address, bytes, handle).unwrap();
        device.release(handle).unwrap();
        device.set_access(address, bytes).unwrap();
        device.check_alloc(address, bytes, stream);
        device.check_free(address);
        device.record(event, stream).unwrap();
        device.synchronize_event(event).unwrap();
        device.unmap(address, bytes).unwrap();
        device.unreserve(address, bytes).unwrap();
    }
    device.destroy_event(event).unwrap();
    device.destroy_stream(stream).unwrap();
}

#[test]
fn threads_share_one_device() {
    let config = SimConfig {
        total_bytes: THREADS * 4 * G,
        oracle: true,
        strict: true,
        check_kernel_ns: 1000,
        event_jitter_ns: 500,
        ..SimConfig::default()
    };
    let device = SimDevice::new(config);
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let device = device.clone();
            scope.spawn(move || work(&device, seed));
        }
    });
    assert_eq!(device.violations(), []);
    assert!(device.live_objects().is_empty());
    assert_eq!(device.physical_bytes(), 0);
    assert_eq!(device.calls_of(Call::Map), THREADS * ROUNDS);
    assert_eq!(device.calls(), THREADS * (9 * ROUNDS + 2));
}
