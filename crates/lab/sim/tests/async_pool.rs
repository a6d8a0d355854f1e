//! Stream-ordered memory: who gets freed memory next, and what orders that.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{Driver, MemoryPoolConfig, Stream};
use drystone_sim::{Rng, SimConfig, SimDevice};

const A: Stream = Stream::DEFAULT;
const MIB: u64 = 1 << 20;

fn device() -> SimDevice {
    SimDevice::new(SimConfig { total_bytes: 64 * MIB, oracle: true, ..SimConfig::default() })
}

#[test]
fn memory_goes_back_to_its_own_stream_at_once() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    device.launch(A, 1000).unwrap();
    let address = device.malloc_async(pool, 8 * MIB, A).unwrap();
    device.free_async(address, A).unwrap();
    // It fits better than the untouched rest of the segment, and there is nothing to wait for.
    assert_eq!(device.malloc_async(pool, 8 * MIB, A), Ok(address));
    assert_eq!(device.physical_bytes(), 32 * MIB);
}

#[test]
fn another_stream_gets_untouched_memory_first_and_else_is_made_to_wait() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let b = device.create_stream();
    let address = device.malloc_async(pool, 16 * MIB, A).unwrap();
    device.check_alloc(address, 16 * MIB, A);
    device.check_free(address);
    device.launch(A, 1000).unwrap();
    device.free_async(address, A).unwrap();
    let other = device.malloc_async(pool, 16 * MIB, b).unwrap();
    assert_ne!(other, address);
    // New memory comes before memory to wait for, as long as the device has any.
    device.malloc_async(pool, 32 * MIB, b).unwrap();
    assert_eq!((device.busy_until_ns(b), device.added_waits()), (Ok(0), 0));
    assert_eq!(device.malloc_async(pool, 16 * MIB, b), Ok(address));
    assert_eq!(device.busy_until_ns(b), Ok(1000), "the stream waits for the free");
    assert_eq!(device.added_waits(), 1);
    device.check_alloc(address, 16 * MIB, b);
    assert_eq!(device.violations(), []);
}

#[test]
fn memory_of_two_streams_joins_into_one_block_that_waits_for_both() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let (b, c) = (device.create_stream(), device.create_stream());
    let low = device.malloc_async(pool, 16 * MIB, A).unwrap();
    let high = device.malloc_async(pool, 16 * MIB, b).unwrap();
    device.launch(A, 300).unwrap();
    device.launch(b, 700).unwrap();
    device.free_async(low, A).unwrap();
    device.free_async(high, b).unwrap();
    device.malloc_async(pool, 32 * MIB, c).unwrap();
    // More than both together is refused, and nothing is joined for it.
    assert!(device.malloc_async(pool, 33 * MIB, c).is_err());
    assert_eq!(device.malloc_async(pool, 32 * MIB, c), Ok(low));
    assert_eq!((device.busy_until_ns(c), device.physical_bytes()), (Ok(700), 64 * MIB));
}

/// Where memory is short, idle segments serve a request that none of them could, once the host has
/// seen that they are idle.
#[test]
fn idle_segments_that_the_host_has_seen_go_back_for_a_request_that_fits_none() {
    let device = device();
    let keep = MemoryPoolConfig::default().with_release_threshold_bytes(u64::MAX);
    let pool = device.create_memory_pool(&keep).unwrap();
    let blocks = [32 * MIB; 2].map(|bytes| device.malloc_async(pool, bytes, A).unwrap());
    blocks.into_iter().for_each(|address| device.free_async(address, A).unwrap());
    assert!(device.malloc_async(pool, 64 * MIB, A).is_err());
    device.trim_memory_pool(pool, 0).unwrap();
    assert_eq!(device.physical_bytes(), 64 * MIB);
    device.synchronize_stream(A).unwrap();
    assert_eq!(device.physical_bytes(), 64 * MIB);
    device.malloc_async(pool, 64 * MIB, A).unwrap();
    assert_eq!(device.physical_bytes(), 64 * MIB);
}

#[test]
fn synchronising_gives_idle_segments_back_and_no_others() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let (kept, gone) = (
        device.malloc_async(pool, 32 * MIB, A).unwrap(),
        device.malloc_async(pool, 32 * MIB, A).unwrap(),
    );
    device.free_async(gone, A).unwrap();
    assert_eq!(device.physical_bytes(), 64 * MIB);
    device.synchronize_stream(A).unwrap();
    assert_eq!(device.physical_bytes(), 32 * MIB);
    device.free_async(kept, A).unwrap();
    device.launch(A, 50).unwrap();
    device.synchronize_device().unwrap();
    assert_eq!(device.physical_bytes(), 0);
}

#[test]
fn a_segment_still_in_use_on_the_device_is_not_given_back() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let event = device.create_event().unwrap();
    device.record(event, A).unwrap();
    let address = device.malloc_async(pool, 32 * MIB, A).unwrap();
    device.launch(A, 1000).unwrap();
    device.free_async(address, A).unwrap();
    device.synchronize_event(event).unwrap();
    assert_eq!((device.now_ns(), device.physical_bytes()), (0, 32 * MIB));
    device.advance_to(1000);
    device.synchronize_event(event).unwrap();
    assert_eq!(device.physical_bytes(), 0);
}

/// Memory freed on one stream, of all that a device has, asked for by another.
fn asked_by_another(config: MemoryPoolConfig, waits: bool, passes: bool) -> (bool, u64) {
    let device = device();
    let pool = device.create_memory_pool(&config).unwrap();
    let (b, event) = (device.create_stream(), device.create_event().unwrap());
    let address = device.malloc_async(pool, 64 * MIB, A).unwrap();
    device.check_alloc(address, 64 * MIB, A);
    device.launch(A, 1000).unwrap();
    device.check_free(address);
    device.free_async(address, A).unwrap();
    if waits {
        device.record(event, A).unwrap();
        device.wait(b, event).unwrap();
    }
    if passes {
        device.advance_by(2000);
    }
    let given = device.malloc_async(pool, 64 * MIB, b);
    let _ = given.as_ref().map(|&address| device.check_alloc(address, 64 * MIB, b));
    assert_eq!(device.violations(), []);
    (given.is_ok(), device.busy_until_ns(b).unwrap())
}

#[test]
fn the_attributes_say_who_gets_freed_memory() {
    let none = MemoryPoolConfig::default()
        .with_reuse_after_events(false)
        .with_opportunistic_reuse(false)
        .with_added_dependencies(false);
    let follows = none.with_reuse_after_events(true);
    let opportunistic = none.with_opportunistic_reuse(true);
    let depends = none.with_added_dependencies(true);
    for (config, plain, waiting, passed) in [
        (none, false, false, false),
        (follows, false, true, false),
        (opportunistic, false, false, true),
        (depends, true, true, true),
    ] {
        assert_eq!(asked_by_another(config, false, false).0, plain, "{config:?}");
        assert_eq!(asked_by_another(config, true, false).0, waiting, "{config:?}");
        assert_eq!(asked_by_another(config, false, true).0, passed, "{config:?}");
    }
    assert_eq!(asked_by_another(depends, false, false).1, 1000, "it is made to wait");
    assert_eq!(asked_by_another(opportunistic, false, true).1, 2000, "it is free at once");
}

#[test]
fn idle_memory_up_to_the_threshold_outlives_a_synchronisation_and_no_trim() {
    let device = device();
    let config = MemoryPoolConfig::default().with_release_threshold_bytes(40 * MIB);
    let pool = device.create_memory_pool(&config).unwrap();
    let blocks = [32 * MIB; 2].map(|bytes| device.malloc_async(pool, bytes, A).unwrap());
    blocks.into_iter().for_each(|address| device.free_async(address, A).unwrap());
    device.synchronize_stream(A).unwrap();
    let usage = device.memory_pool_usage(pool).unwrap();
    assert_eq!((usage.reserved_bytes, usage.reserved_peak_bytes), (32 * MIB, 64 * MIB));
    assert_eq!((usage.used_bytes, usage.used_peak_bytes), (0, 64 * MIB));
    device.trim_memory_pool(pool, 32 * MIB).unwrap();
    assert_eq!(device.physical_bytes(), 32 * MIB);
    device.trim_memory_pool(pool, 32 * MIB - 1).unwrap();
    assert_eq!(device.physical_bytes(), 0);
}

#[test]
fn random_traffic_on_three_streams_breaks_no_rule() {
    for seed in 0..200 {
        let config = SimConfig {
            total_bytes: 256 * MIB,
            oracle: true,
            strict: true,
            check_kernel_ns: 500,
            clock_jitter_ns: 300,
            seed,
            ..SimConfig::default()
        };
        let device = SimDevice::new(config);
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        let mut rng = Rng::new(seed);
        let streams = [A, device.create_stream(), device.create_stream()];
        let mut live: Vec<(u64, Stream)> = Vec::new();
        for _ in 0..300 {
            let stream = streams[rng.below(3) as usize];
            match rng.below(20) {
                0..10 => {
                    let largest = 1 << rng.up_to(24);
                    let bytes = 1 + rng.below(largest);
                    if let Ok(address) = device.malloc_async(pool, bytes, stream) {
                        device.check_alloc(address, bytes, stream);
                        live.push((address, stream));
                    }
                }
                10..19 if !live.is_empty() => {
                    let (address, stream) = live.swap_remove(rng.below(live.len() as u64) as usize);
                    device.check_free(address);
                    device.free_async(address, stream).unwrap();
                }
                _ => device.synchronize_stream(stream).unwrap(),
            }
        }
        for (address, stream) in live {
            device.check_free(address);
            device.free_async(address, stream).unwrap();
        }
        device.synchronize_device().unwrap();
        device.destroy_memory_pool(pool).unwrap();
        assert_eq!(device.violations(), [], "seed {seed}");
        assert_eq!(device.physical_bytes(), 0, "seed {seed}");
        assert!(device.live_objects().is_empty(), "seed {seed}");
    }
}
