//! What a kind device would let pass: stale handles, many aliases, early kernels, peers that were
//! not let in; and the devices that are chosen by name.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use drystone_driver::{
    Call, Driver, ErrorCode, Event, MemoryPool, MemoryPoolConfig, Stream, StreamUid,
};
use drystone_sim::{
    GRANULARITY_BYTES as G, Harsh, NetworkMemory, Profile, SimConfig, SimDevice, Violation,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn device(harsh: Harsh) -> SimDevice {
    SimDevice::new(SimConfig { oracle: true, harsh, ..SimConfig::default() })
}

struct Gone {
    stream: Stream,
    event: Event,
    pool: MemoryPool,
}

type Body = fn(&SimDevice, &Gone);

#[test]
fn a_stale_handle_ends_the_thread_with_the_name_of_the_call() {
    let calls: [(Call, Body); 11] = [
        (Call::CaptureStatus, |device, gone| drop(device.capture_status(gone.stream))),
        (Call::StreamUid, |device, gone| drop(device.stream_uid(gone.stream))),
        (Call::SynchronizeStream, |device, gone| drop(device.synchronize_stream(gone.stream))),
        (Call::Record, |device, gone| {
            drop(device.record(device.create_event().unwrap(), gone.stream));
        }),
        (Call::Wait, |device, gone| drop(device.wait(Stream::DEFAULT, gone.event))),
        (Call::Query, |device, gone| drop(device.query(gone.event))),
        (Call::SynchronizeEvent, |device, gone| drop(device.synchronize_event(gone.event))),
        (Call::DestroyEvent, |device, gone| drop(device.destroy_event(gone.event))),
        (Call::MallocAsync, |device, gone| {
            drop(device.malloc_async(gone.pool, 512, Stream::DEFAULT));
        }),
        (Call::TrimMemoryPool, |device, gone| drop(device.trim_memory_pool(gone.pool, 0))),
        (Call::MemoryPoolUsage, |device, gone| drop(device.memory_pool_usage(gone.pool))),
    ];
    for (call, body) in calls {
        let device = device(Harsh::ALL);
        let (stream, event) = (device.create_stream(), device.create_event().unwrap());
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        device.destroy_stream(stream).unwrap();
        device.destroy_event(event).unwrap();
        device.destroy_memory_pool(pool).unwrap();
        let ended = catch_unwind(AssertUnwindSafe(|| body(&device, &Gone { stream, event, pool })));
        let text = ended.unwrap_err().downcast::<String>().unwrap();
        assert!(text.starts_with(call.cuda_name()), "{text}");
        assert_eq!(device.violations(), [Violation::StaleHandle { call }]);
    }
}

#[test]
fn one_handle_is_mapped_so_often_and_no_more() {
    let config = SimConfig { alias_limit: 3, ..SimConfig::default() };
    assert_eq!(SimConfig::default().alias_limit, 5_637);
    let device = SimDevice::new(config);
    let (address, handle) = (device.reserve(4 * G, 0).unwrap(), device.create(G).unwrap());
    (0..3).for_each(|at| device.map(address + at * G, G, handle).unwrap());
    let refused = device.map(address + 3 * G, G, handle).unwrap_err();
    assert_eq!((refused.call, refused.code), (Call::Map, ErrorCode::OutOfMemory));
    let other = device.create(G).unwrap();
    device.map(address + 3 * G, G, other).unwrap();
    device.unmap(address + 3 * G, G).unwrap();
    device.unmap(address, G).unwrap();
    device.map(address + 3 * G, G, handle).unwrap();
}

/// A block at one address is freed, and its memory serves the stream's next kernel at another.
fn alias_at_once(harsh: Harsh, between: fn(&SimDevice)) -> Vec<Violation> {
    let device = device(harsh);
    let (address, handle) = (device.reserve(2 * G, 0).unwrap(), device.create(G).unwrap());
    device.map(address, G, handle).unwrap();
    device.map(address + G, G, handle).unwrap();
    device.set_access(address, 2 * G).unwrap();
    device.check_alloc(address, G, Stream::DEFAULT);
    device.check_free(address);
    between(&device);
    device.check_alloc(address + G, G, Stream::DEFAULT);
    device.take_violations()
}

#[test]
fn an_early_kernel_must_not_read_at_another_address_what_the_one_before_it_wrote() {
    let early = Violation::EarlyGrid { address: 2 * (1 << 40) + G, bytes: G, stream: StreamUid(1) };
    assert_eq!(alias_at_once(Harsh::ALL, |_| {}), [early]);
    assert_eq!(alias_at_once(Harsh { launches_are_early: false, ..Harsh::ALL }, |_| {}), []);
    let waited = |device: &SimDevice| device.synchronize_device().unwrap();
    assert_eq!(alias_at_once(Harsh::ALL, waited), []);
    // A kernel in between was on the device after the first had ended.
    let another = |device: &SimDevice| {
        let block = device.malloc(G).unwrap();
        device.check_alloc(block, G, Stream::DEFAULT);
    };
    assert_eq!(alias_at_once(Harsh::ALL, another), []);
}

#[test]
fn a_kernel_of_another_device_needs_access() {
    let config = SimConfig { oracle: true, peers: vec![1], ..SimConfig::default() };
    let device = SimDevice::new(config);
    let (address, handle) = (device.reserve(G, 0).unwrap(), device.create(G).unwrap());
    device.map(address, G, handle).unwrap();
    device.set_access(address, G).unwrap();
    device.check_peer_use(1, address, G);
    let closed = [Violation::NotOpenToPeer { address, bytes: G, peer: 1 }];
    assert_eq!(device.take_violations(), closed);
    device.enable_peer_access(1).unwrap();
    device.check_peer_use(1, address, G);
    assert_eq!(device.take_violations(), closed, "access was set before the peer was let in");
    device.set_access(address, G).unwrap();
    device.check_peer_use(1, address, G);
    assert_eq!(device.take_violations(), []);
}

#[test]
fn devices_by_name() {
    let named = |name| {
        let profile = Profile::named(name).unwrap();
        SimDevice::new(profile.applied_to(SimConfig { peers: vec![1], ..SimConfig::default() }))
    };
    for profile in Profile::ALL {
        assert_eq!(Profile::named(profile.name()), Some(profile));
    }
    assert_eq!(Profile::named("h100"), None);

    assert_eq!(named("bare-metal").config().network_memory, NetworkMemory::Works);
    let wsl = named("wsl2");
    assert_eq!(wsl.config().network_memory, NetworkMemory::Broken);
    assert_eq!(wsl.reserve(32 << 30, 0).unwrap_err().code, ErrorCode::OutOfMemory);
    wsl.reserve((32 << 30) - G, 0).unwrap();

    let virtual_gpu = named("virtual-gpu");
    assert!(!virtual_gpu.info().has_virtual_memory && !virtual_gpu.info().has_async_malloc);
    virtual_gpu.malloc(G).unwrap();

    let part = named("mig");
    assert_eq!(part.enable_peer_access(1).unwrap_err().code, ErrorCode::NotSupported);
    assert!(part.info().has_virtual_memory && part.info().total_bytes == 10 << 30);

    let slow = named("slow-memory-info");
    slow.memory_info().unwrap();
    assert_eq!(slow.now_ns(), 8_000_000);
}
