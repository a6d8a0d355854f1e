//! Stream-ordered memory in a capture: whose it is, what serves again, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{Call, CaptureMode, Driver, ErrorCode, MemoryPool, MemoryPoolConfig, Stream};
use drystone_sim::{SimConfig, SimDevice, Violation};

const MIB: u64 = 1 << 20;

fn device() -> (SimDevice, MemoryPool) {
    let config =
        SimConfig { total_bytes: 128 * MIB, oracle: true, strict: true, ..Default::default() };
    let device = SimDevice::new(config);
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    (device, pool)
}

fn capturing(device: &SimDevice) -> (Stream, u64) {
    let stream = device.create_stream();
    device.begin_capture(stream, CaptureMode::Global).unwrap();
    (stream, device.capture_of(stream).unwrap().unwrap())
}

#[test]
fn what_a_capture_allocates_is_the_graphs_until_its_life_ends() {
    let (device, pool) = device();
    let (stream, capture) = capturing(&device);
    let address = device.malloc_async(pool, 8 * MIB, stream).unwrap();
    device.check_alloc(address, 8 * MIB, stream);
    assert_eq!((device.graph_bytes(), device.physical_bytes()), (32 * MIB, 32 * MIB));
    device.end_graphs();
    assert_eq!(device.graph_bytes(), 32 * MIB, "its capture has not ended");
    device.end_capture(stream).unwrap();
    assert_eq!(device.memory_pool_usage(pool).unwrap().used_bytes, 0, "no pool of the program's");
    device.synchronize_device().unwrap();
    device.trim_memory_pool(pool, 0).unwrap();
    assert_eq!(device.graph_bytes(), 32 * MIB);
    device.check_free(address);
    assert_eq!(device.violations(), []);
    device.end_graph(capture);
    assert_eq!((device.graph_bytes(), device.physical_bytes()), (0, 0));
    assert_eq!(device.violations(), []);
}

#[test]
fn memory_serves_again_in_its_capture_on_its_stream_only() {
    let (device, pool) = device();
    let (stream, _) = capturing(&device);
    let address = device.malloc_async(pool, 32 * MIB, stream).unwrap();
    device.free_async(address, stream).unwrap();
    assert_eq!(device.malloc_async(pool, 32 * MIB, stream), Ok(address));
    device.free_async(address, stream).unwrap();
    // A stream drawn in is ordered after the fork alone.
    let (event, side) = (device.create_event().unwrap(), device.create_stream());
    device.record(event, stream).unwrap();
    device.wait(side, event).unwrap();
    assert_ne!(device.malloc_async(pool, 32 * MIB, side), Ok(address));
    // Neither another capture nor the pool gets it.
    let (other, _) = capturing(&device);
    assert_ne!(device.malloc_async(pool, 32 * MIB, other), Ok(address));
    assert_ne!(device.malloc_async(pool, 32 * MIB, Stream::DEFAULT), Ok(address));
    let full = device.malloc_async(pool, 32 * MIB, Stream::DEFAULT).unwrap_err();
    assert_eq!(full.code, ErrorCode::OutOfMemory);
}

#[test]
fn a_graph_frees_only_what_graphs_own_and_nobody_else_frees_that() {
    let refused = ErrorCode::InvalidValue;
    let (device, pool) = device();
    let pooled = device.malloc_async(pool, MIB, Stream::DEFAULT).unwrap();
    let (stream, capture) = capturing(&device);
    let (first, kept) = (
        device.malloc_async(pool, MIB, stream).unwrap(),
        device.malloc_async(pool, MIB, stream).unwrap(),
    );
    assert_eq!(device.free_async(pooled, stream).unwrap_err().code, refused);
    assert_eq!(device.free_async(first, Stream::DEFAULT).unwrap_err().code, refused);
    device.end_capture(stream).unwrap();
    assert_eq!(device.free_async(first, stream).unwrap_err().code, refused, "it has not run");
    assert_eq!(device.violation_count(), 3);
    device.note_graph_run(capture);
    device.free_async(first, Stream::DEFAULT).unwrap();
    // Another graph may free it as well.
    let (other, _) = capturing(&device);
    device.free_async(kept, other).unwrap();
    assert_eq!(device.violation_count(), 3);
    device.malloc(MIB).unwrap_err();
    let broken = device.malloc_async(pool, MIB, other).unwrap_err();
    assert_eq!(broken.code, ErrorCode::Other(901));
}

#[test]
fn a_graph_that_ends_under_a_live_block_takes_it_away() {
    let (device, pool) = device();
    let (stream, capture) = capturing(&device);
    let address = device.malloc_async(pool, MIB, stream).unwrap();
    device.check_alloc(address, MIB, stream);
    device.end_capture(stream).unwrap();
    device.end_graph(capture);
    let violations = device.take_violations();
    let gone = |one: &Violation| {
        matches!(one, Violation::LiveMemoryGone { call: Call::FreeAsync, block_address, .. }
            if *block_address == address)
    };
    assert!(violations.len() == 1 && gone(&violations[0]), "{violations:?}");
}
