//! Everything a real driver refuses, the device refuses, and a refused call has changed nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{
    Call, Driver, DriverError, ErrorCode, Event, Handle, MemoryPool, MemoryPoolConfig, Stream,
};
use drystone_sim::{GRANULARITY_BYTES as G, Harsh, SimConfig, SimDevice, Violation};

/// One that looks at handles before it follows them.
fn device() -> SimDevice {
    SimDevice::new(SimConfig { total_bytes: 64 * G, harsh: Harsh::NONE, ..SimConfig::default() })
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, DriverError>, call: Call, code: ErrorCode) {
    let error = result.expect_err("the call must be refused");
    assert_eq!((error.call, error.code), (call, code));
}

/// Five granules of addresses with two mapped handles of one and two granules, then a gap.
fn mapped(device: &SimDevice) -> (u64, Handle, Handle) {
    let address = device.reserve(5 * G, 0).unwrap();
    let (one, two) = (device.create(G).unwrap(), device.create(2 * G).unwrap());
    device.map(address, G, one).unwrap();
    device.map(address + G, 2 * G, two).unwrap();
    (address, one, two)
}

#[test]
fn reserve_and_unreserve() {
    let device = device();
    for (bytes, alignment) in [(0, 0), (G - 1, 0), (G + 512, 0), (G, 3)] {
        refused(device.reserve(bytes, alignment), Call::Reserve, ErrorCode::InvalidValue);
    }
    let before = device.reserve(G, 0).unwrap();
    let address = device.reserve(2 * G, 64 * G).unwrap();
    assert_ne!((before + G) % (64 * G), 0, "the alignment must be of consequence");
    assert_eq!(address % (64 * G), 0);
    for (at, bytes) in [(address + G, G), (address, G), (address, 3 * G), (0, 0)] {
        refused(device.unreserve(at, bytes), Call::Unreserve, ErrorCode::InvalidValue);
    }
    device.unreserve(address, 2 * G).unwrap();
    refused(device.unreserve(address, 2 * G), Call::Unreserve, ErrorCode::InvalidValue);
}

#[test]
fn unreserve_while_something_is_mapped() {
    let device = device();
    let (address, ..) = mapped(&device);
    refused(device.unreserve(address, 5 * G), Call::Unreserve, ErrorCode::InvalidValue);
    device.unmap(address, 3 * G).unwrap();
    device.unreserve(address, 5 * G).unwrap();
}

#[test]
fn create_and_release() {
    let device = device();
    for bytes in [0, 512, G + 1] {
        refused(device.create(bytes), Call::Create, ErrorCode::InvalidValue);
    }
    let handle = device.create(G).unwrap();
    device.release(handle).unwrap();
    refused(device.release(handle), Call::Release, ErrorCode::InvalidHandle);
    refused(device.release(Handle(0)), Call::Release, ErrorCode::InvalidHandle);
    assert!(device.live_objects().is_empty());
}

#[test]
fn map_needs_a_free_reserved_range_of_the_size_of_the_handle() {
    let device = device();
    let (address, one, two) = mapped(&device);
    let invalid = |at, bytes, handle| {
        refused(device.map(at, bytes, handle), Call::Map, ErrorCode::InvalidValue);
    };
    invalid(address, G, one); // over a mapping, even of the same handle
    invalid(address + 2 * G, G, one); // inside a mapping
    invalid(address + 2 * G, 2 * G, two); // over the end of a mapping
    invalid(address + 4 * G, 2 * G, two); // over the end of the reservation
    invalid(address + 3 * G, 2 * G, one); // not the handle's size
    invalid(address + 3 * G, 0, one);
    invalid(address + 3 * G + 512, G, one); // misaligned
    invalid(address + 5 * G, G, one); // outside
    invalid(u64::MAX - G + 1, G, one);
    refused(device.map(address + 3 * G, G, Handle(7)), Call::Map, ErrorCode::InvalidHandle);
    assert_eq!(device.live_objects().mappings, 2);
    device.map(address + 3 * G, G, one).unwrap();
}

#[test]
fn a_mapping_may_not_cross_into_a_touching_reservation() {
    let device = device();
    let (low, high) = (device.reserve(G, 0).unwrap(), device.reserve(G, 0).unwrap());
    assert_eq!(high, low + G, "the test needs two reservations that touch");
    let wide = device.create(2 * G).unwrap();
    refused(device.map(low, 2 * G, wide), Call::Map, ErrorCode::InvalidValue);
    let (one, two) = (device.create(G).unwrap(), device.create(G).unwrap());
    device.map(low, G, one).unwrap();
    device.map(high, G, two).unwrap();
    refused(device.set_access(low, 2 * G), Call::SetAccess, ErrorCode::InvalidValue);
    refused(device.unmap(low, 2 * G), Call::Unmap, ErrorCode::InvalidValue);
}

#[test]
fn set_access_and_unmap_take_whole_mappings_without_gaps() {
    let device = device();
    let (address, one, _) = mapped(&device);
    let ranges = [
        (address, 0),
        (address, 2 * G),         // cuts the second mapping
        (address + 2 * G, G),     // starts inside it
        (address, 4 * G),         // ends in a gap
        (address + 3 * G, G),     // a gap alone
        (address, 3 * G + 512),   // misaligned
        (address - G, 4 * G),     // starts outside the reservation
        (address, u64::MAX - 10), // absurd
    ];
    for (at, bytes) in ranges {
        refused(device.set_access(at, bytes), Call::SetAccess, ErrorCode::InvalidValue);
        refused(device.unmap(at, bytes), Call::Unmap, ErrorCode::InvalidValue);
    }
    assert_eq!(device.live_objects().mappings, 2);
    device.map(address + 4 * G, G, one).unwrap(); // behind the gap
    refused(device.set_access(address, 5 * G), Call::SetAccess, ErrorCode::InvalidValue);
    refused(device.unmap(address, 5 * G), Call::Unmap, ErrorCode::InvalidValue);
    device.set_access(address, 3 * G).unwrap();
    device.unmap(address + G, 2 * G).unwrap();
    refused(device.unmap(address + G, 2 * G), Call::Unmap, ErrorCode::InvalidValue);
    device.unmap(address, G).unwrap();
}

#[test]
fn plain_memory() {
    let device = device();
    refused(device.malloc(0), Call::Malloc, ErrorCode::InvalidValue);
    let address = device.malloc(3 * G).unwrap();
    for wrong in [0, address + 512, address - 512, address + G] {
        refused(device.free(wrong), Call::Free, ErrorCode::InvalidValue);
    }
    device.free(address).unwrap();
    refused(device.free(address), Call::Free, ErrorCode::InvalidValue);
}

#[test]
fn each_kind_of_memory_is_freed_by_its_own_call() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let stream = Stream::DEFAULT;
    let (plain, pooled) =
        (device.malloc(G).unwrap(), device.malloc_async(pool, G, stream).unwrap());
    let reserved = device.reserve(G, 0).unwrap();
    refused(device.free(pooled), Call::Free, ErrorCode::InvalidValue);
    refused(device.free(reserved), Call::Free, ErrorCode::InvalidValue);
    refused(device.free_async(plain, stream), Call::FreeAsync, ErrorCode::InvalidValue);
    refused(device.unreserve(plain, G), Call::Unreserve, ErrorCode::InvalidValue);
    refused(device.free_async(pooled, Stream(999)), Call::FreeAsync, ErrorCode::InvalidHandle);
    device.free_async(pooled, stream).unwrap();
    refused(device.free_async(pooled, stream), Call::FreeAsync, ErrorCode::InvalidValue);
    device.free(plain).unwrap();
    device.unreserve(reserved, G).unwrap();
}

#[test]
fn handles_of_streams_and_events_that_are_nobodys() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let (stream, event) = (device.create_stream(), device.create_event().unwrap());
    let (lost, gone) = (device.create_stream(), device.create_event().unwrap());
    device.destroy_stream(lost).unwrap();
    device.destroy_event(gone).unwrap();
    let invalid = ErrorCode::InvalidHandle;
    refused(device.destroy_event(gone), Call::DestroyEvent, invalid);
    refused(device.record(gone, stream), Call::Record, invalid);
    refused(device.record(event, lost), Call::Record, invalid);
    refused(device.query(gone), Call::Query, invalid);
    refused(device.query(Event(stream.0)), Call::Query, invalid);
    refused(device.wait(lost, event), Call::Wait, invalid);
    refused(device.wait(stream, gone), Call::Wait, invalid);
    refused(device.synchronize_event(gone), Call::SynchronizeEvent, invalid);
    refused(device.synchronize_stream(lost), Call::SynchronizeStream, invalid);
    refused(device.stream_uid(lost), Call::StreamUid, invalid);
    refused(device.capture_status(lost), Call::CaptureStatus, invalid);
    refused(device.malloc_async(pool, G, lost), Call::MallocAsync, invalid);
    assert_eq!(device.destroy_stream(lost), Err(invalid));
    assert_eq!(device.destroy_stream(Stream::DEFAULT), Err(invalid));
    assert_eq!(device.launch(lost, 1), Err(invalid));
    assert_eq!(device.query(event), Ok(true), "an event that was never recorded is ready");
}

#[test]
fn calls_the_device_does_not_offer() {
    let config =
        SimConfig { has_virtual_memory: false, has_async_malloc: false, ..Default::default() };
    let device = SimDevice::new(config);
    assert!(!device.info().has_virtual_memory && !device.info().has_async_malloc);
    refused(device.reserve(G, 0), Call::Reserve, ErrorCode::NotSupported);
    refused(device.create(G), Call::Create, ErrorCode::NotSupported);
    let pool = device.create_memory_pool(&MemoryPoolConfig::default());
    refused(pool, Call::CreateMemoryPool, ErrorCode::NotSupported);
    let pooled = device.malloc_async(MemoryPool(1), 512, Stream::DEFAULT);
    refused(pooled, Call::MallocAsync, ErrorCode::NotSupported);
    let freed = device.free_async(512, Stream::DEFAULT);
    refused(freed, Call::FreeAsync, ErrorCode::NotSupported);
    refused(device.enable_peer_access(1), Call::EnablePeerAccess, ErrorCode::NotSupported);
    let config = MemoryPoolConfig::default().with_export(true);
    let device = SimDevice::new(SimConfig { is_shareable: false, ..SimConfig::default() });
    let pool = device.create_memory_pool(&config);
    refused(pool, Call::CreateMemoryPool, ErrorCode::NotSupported);
}

#[test]
fn capacity_counts_every_kind_of_memory_and_peaks() {
    let device = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let plain = device.malloc(20 * G).unwrap();
    let handle = device.create(20 * G).unwrap();
    let pooled = device.malloc_async(pool, 16 * G, Stream::DEFAULT).unwrap();
    assert_eq!(device.memory_info().unwrap().free_bytes, 8 * G);
    refused(device.create(9 * G), Call::Create, ErrorCode::OutOfMemory);
    refused(device.malloc(8 * G + 1), Call::Malloc, ErrorCode::OutOfMemory);
    refused(device.malloc(u64::MAX), Call::Malloc, ErrorCode::OutOfMemory);
    let more = device.malloc_async(pool, 9 * G, Stream::DEFAULT);
    refused(more, Call::MallocAsync, ErrorCode::OutOfMemory);
    let last = device.create(8 * G).unwrap();
    assert_eq!((device.physical_bytes(), device.peak_physical_bytes()), (64 * G, 64 * G));
    device.release(handle).unwrap();
    device.release(last).unwrap();
    device.free(plain).unwrap();
    device.free_async(pooled, Stream::DEFAULT).unwrap();
    device.synchronize_device().unwrap();
    device.destroy_memory_pool(pool).unwrap();
    assert_eq!((device.physical_bytes(), device.peak_physical_bytes()), (0, 64 * G));
    assert!(device.live_objects().is_empty());
}

#[test]
fn small_plain_memory_is_charged_in_512_bytes_and_large_in_granules() {
    let device = device();
    let small = device.malloc(1).unwrap();
    assert_eq!(device.physical_bytes(), 512);
    let touching = device.malloc(513).unwrap();
    assert_eq!((touching, device.physical_bytes()), (small + 512, 512 + 1024));
    let large = device.malloc(1 << 20).unwrap();
    assert_eq!((large % G, device.physical_bytes()), (0, 512 + 1024 + G));
}

#[test]
fn physical_memory_lives_until_handle_and_mappings_are_gone() {
    let device = device();
    let address = device.reserve(2 * G, 0).unwrap();
    let handle = device.create(G).unwrap();
    device.map(address, G, handle).unwrap();
    device.map(address + G, G, handle).unwrap();
    assert_eq!(device.physical_bytes(), G, "an alias takes no memory");
    device.release(handle).unwrap();
    // The value is free at once, and names other memory from now on.
    let other = device.create(3 * G).unwrap();
    assert_eq!(other, handle);
    refused(device.map(address, G, other), Call::Map, ErrorCode::InvalidValue);
    device.unmap(address, G).unwrap();
    assert_eq!(device.physical_bytes(), 4 * G);
    device.unmap(address + G, G).unwrap();
    assert_eq!(device.physical_bytes(), 3 * G);
}

#[test]
fn an_unmapped_handle_keeps_its_memory_and_can_be_mapped_again() {
    let device = device();
    let address = device.reserve(G, 0).unwrap();
    let handle = device.create(G).unwrap();
    device.map(address, G, handle).unwrap();
    device.unmap(address, G).unwrap();
    assert_eq!((device.physical_bytes(), device.live_objects().handles), (G, 1));
    device.map(address, G, handle).unwrap();
    device.unmap(address, G).unwrap();
    device.release(handle).unwrap();
    assert_eq!(device.physical_bytes(), 0);
}

#[test]
fn the_mapping_limit_hits_set_access_and_unmapping_makes_room() {
    let config = SimConfig { mapping_limit: 3, ..SimConfig::default() };
    let device = SimDevice::new(config);
    let address = device.reserve(8 * G, 0).unwrap();
    let handle = device.create(2 * G).unwrap();
    device.map(address, 2 * G, handle).unwrap();
    device.map(address + 2 * G, 2 * G, handle).unwrap();
    refused(device.set_access(address, 4 * G), Call::SetAccess, ErrorCode::OutOfMemory);
    device.set_access(address, 2 * G).unwrap();
    device.set_access(address, 2 * G).unwrap(); // again: nothing new to map
    refused(device.set_access(address + 2 * G, 2 * G), Call::SetAccess, ErrorCode::OutOfMemory);
    device.unmap(address, 2 * G).unwrap();
    device.set_access(address + 2 * G, 2 * G).unwrap();
}

#[test]
fn a_process_has_its_limit_of_what_the_device_says_is_free() {
    let config = SimConfig { process_limit_bytes: 3 * G, ..SimConfig::default() };
    let total_bytes = config.total_bytes;
    let device = SimDevice::new(config);
    let address = device.malloc(G).unwrap();
    let handle = device.create(2 * G).unwrap();
    refused(device.create(G), Call::Create, ErrorCode::OutOfMemory);
    refused(device.malloc(G), Call::Malloc, ErrorCode::OutOfMemory);
    let memory = device.memory_info().unwrap();
    assert_eq!((memory.free_bytes, memory.total_bytes), (total_bytes - 3 * G, total_bytes));
    device.free(address).unwrap();
    device.release(device.create(G).unwrap()).unwrap();
    device.release(handle).unwrap();
}

#[test]
fn addresses_run_out() {
    let config = SimConfig { address_space_bytes: 4 * G, ..SimConfig::default() };
    let device = SimDevice::new(config);
    let most = device.reserve(3 * G, 0).unwrap();
    refused(device.reserve(2 * G, 0), Call::Reserve, ErrorCode::OutOfMemory);
    refused(device.malloc(2 * G), Call::Malloc, ErrorCode::OutOfMemory);
    assert_eq!(device.physical_bytes(), 0, "no memory is kept when there is no address for it");
    device.unreserve(most, 3 * G).unwrap();
    assert_eq!(device.reserve(4 * G, 0), Ok(most));
}

#[test]
fn memory_that_runs_out_keeps_no_address() {
    let all = 4 * G;
    let config = SimConfig { total_bytes: G, address_space_bytes: all, ..SimConfig::default() };
    let device = SimDevice::new(config);
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    refused(device.malloc(2 * G), Call::Malloc, ErrorCode::OutOfMemory);
    let pooled = device.malloc_async(pool, 2 * G, Stream::DEFAULT);
    refused(pooled, Call::MallocAsync, ErrorCode::OutOfMemory);
    device.reserve(all, 0).unwrap();
}

#[test]
fn handle_values_come_back_at_once_and_stream_identities_never() {
    let device = device();
    let (old, event) = (device.create_stream(), device.create_event().unwrap());
    let uid = device.stream_uid(old).unwrap();
    device.destroy_stream(old).unwrap();
    device.destroy_event(event).unwrap();
    let new = device.create_stream();
    assert_eq!((new, device.create_event()), (old, Ok(event)));
    assert_ne!(device.stream_uid(new).unwrap(), uid);
    device.record(event, new).unwrap();
    let other = SimDevice::new(SimConfig { ordinal: 1, ..SimConfig::default() });
    let same = other.create_stream();
    assert_eq!(same, new, "handle values repeat across devices on purpose");
    assert_ne!(other.stream_uid(same), device.stream_uid(new));
}

#[test]
fn no_call_is_allowed_after_the_end_and_each_is_reported() {
    for code in [ErrorCode::Deinitialized, ErrorCode::NotInitialized] {
        let device = device();
        let event = device.create_event().unwrap();
        if code == ErrorCode::Deinitialized {
            device.begin_exit();
        } else {
            device.become_forked_child();
        }
        refused(device.query(event), Call::Query, code);
        refused(device.destroy_event(event), Call::DestroyEvent, code);
        refused(device.memory_info(), Call::MemoryInfo, code);
        let calls = [Call::Query, Call::DestroyEvent, Call::MemoryInfo];
        let expected = calls.map(|call| Violation::CallAfterEnd { call, code });
        assert_eq!(device.take_violations(), expected);
        assert_eq!(device.live_objects().events, 1);
        assert_eq!(device.info().total_bytes, 64 * G, "asking what the device is stays allowed");
    }
}

#[test]
fn a_lost_context_refuses_everything_and_blames_nobody() {
    let device = device();
    device.lose_context();
    refused(device.malloc(G), Call::Malloc, ErrorCode::ContextLost);
    refused(device.synchronize_device(), Call::SynchronizeDevice, ErrorCode::ContextLost);
    assert_eq!(device.violation_count(), 0);
}

#[test]
fn a_strict_device_reports_mistakes_but_not_bad_luck() {
    let harsh = Harsh { stale_handles_end: false, ..Harsh::default() };
    let config = SimConfig { total_bytes: 2 * G, strict: true, harsh, ..SimConfig::default() };
    let device = SimDevice::new(config);
    let (stream, event) = (device.create_stream(), device.create_event().unwrap());
    device.destroy_stream(stream).unwrap();
    device.malloc(3 * G).unwrap_err();
    device.record(event, stream).unwrap_err(); // somebody else destroyed the stream
    assert_eq!(device.take_violations(), []);
    device.free(G).unwrap_err();
    let expected = Violation::IllegalCall { call: Call::Free, code: ErrorCode::InvalidValue };
    assert_eq!(expected.to_string(), "cudaFree was refused: invalid value");
    assert_eq!(device.violations(), [expected]);
    device.release(Handle(1)).unwrap_err();
    assert_eq!(device.violation_count(), 2);
}
