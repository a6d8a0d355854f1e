//! The oracle: every kind of fault is caught, and its legal twin is not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{Call, CaptureMode, Driver, MemoryPoolConfig, Stream, StreamUid};
use drystone_sim::{GRANULARITY_BYTES as G, SimConfig, SimDevice, Violation};

const A: Stream = Stream::DEFAULT;

/// A device with an oracle and a second stream. Pretended kernels take no time at all, so that
/// nothing here can be excused by the clock.
fn device() -> (SimDevice, Stream) {
    let device = SimDevice::new(SimConfig { oracle: true, ..SimConfig::default() });
    let second = device.create_stream();
    (device, second)
}

fn uid(device: &SimDevice, stream: Stream) -> StreamUid {
    device.stream_uid(stream).unwrap()
}

/// A block that lived on `stream` and was freed.
fn past_block(device: &SimDevice, address: u64, bytes: u64, stream: Stream) {
    device.check_alloc(address, bytes, stream);
    device.check_free(address);
}

/// One granule of physical memory mapped at two addresses.
fn aliases(device: &SimDevice) -> (u64, u64) {
    let address = device.reserve(2 * G, 0).unwrap();
    let handle = device.create(G).unwrap();
    device.map(address, G, handle).unwrap();
    device.map(address + G, G, handle).unwrap();
    device.set_access(address, 2 * G).unwrap();
    (address, address + G)
}

/// `to` waits on the device for all that `from` has done.
fn order(device: &SimDevice, from: Stream, to: Stream) {
    let event = device.create_event().unwrap();
    device.record(event, from).unwrap();
    device.wait(to, event).unwrap();
    device.destroy_event(event).unwrap();
}

#[test]
fn two_live_blocks_on_one_byte() {
    let (device, _) = device();
    let address = device.malloc(G).unwrap();
    device.check_alloc(address, 1024, A);
    device.check_alloc(address + 1024, 1024, A);
    assert_eq!(device.violations(), [], "neighbours do not overlap");
    device.check_alloc(address + 512, 513, A);
    let overlap = |other_address, shared_bytes| Violation::Overlap {
        address: address + 512,
        bytes: 513,
        other_address,
        other_bytes: 1024,
        shared_bytes,
    };
    let expected = [overlap(address, 512), overlap(address + 1024, 1)];
    assert_eq!(device.take_violations(), expected);
}

#[test]
fn the_same_block_handed_out_twice_is_an_overlap_and_after_a_free_it_is_not() {
    let (device, _) = device();
    let address = device.malloc(G).unwrap();
    past_block(&device, address, 1024, A);
    device.check_alloc(address, 1024, A);
    assert_eq!(device.violations(), []);
    device.check_alloc(address, 1024, A);
    assert!(matches!(device.violations()[..], [Violation::Overlap { shared_bytes: 1024, .. }]));
}

#[test]
fn two_live_blocks_on_one_byte_through_two_mappings() {
    let (device, _) = device();
    let (one, two) = aliases(&device);
    device.check_alloc(one, 4096, A);
    device.check_alloc(two + 4096, 4096, A);
    assert_eq!(device.violations(), [], "different parts of one granule");
    device.check_alloc(two + 2048, 2048, A);
    assert!(matches!(
        device.take_violations()[..],
        [Violation::Overlap { shared_bytes: 2048, other_bytes: 4096, .. }]
    ));
}

#[test]
fn reuse_across_streams_without_order() {
    let (device, b) = device();
    let address = device.malloc(G).unwrap();
    past_block(&device, address, G, A);
    device.check_alloc(address, 512, b);
    let (stream, earlier) = (uid(&device, b), uid(&device, A));
    let expected = Violation::UnorderedReuse { address, bytes: 512, stream, earlier };
    assert_eq!(device.take_violations(), [expected]);
}

#[test]
fn reuse_across_streams_is_legal_after_any_kind_of_order() {
    let ways: [fn(&SimDevice, Stream); 7] = [
        |device, b| order(device, A, b),
        |device, b| {
            let middle = device.create_stream();
            order(device, A, middle);
            order(device, middle, b);
        },
        |device, _| {
            let event = device.create_event().unwrap();
            device.record(event, A).unwrap();
            assert_eq!(device.query(event), Ok(true));
        },
        |device, _| {
            let event = device.create_event().unwrap();
            device.record(event, A).unwrap();
            device.synchronize_event(event).unwrap();
        },
        |device, _| device.synchronize_stream(A).unwrap(),
        |device, _| device.synchronize_device().unwrap(),
        |device, _| device.free(device.malloc(512).unwrap()).unwrap(),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let (device, b) = device();
        let address = device.malloc(G).unwrap();
        past_block(&device, address, G, A);
        way(&device, b);
        past_block(&device, address, G, b);
        assert_eq!(device.violations(), [], "way {number}");
        // What came after the order was made is not covered by it.
        order(&device, b, A);
        past_block(&device, address, G, A);
        device.check_alloc(address, G, b);
        assert_eq!(device.violation_count(), 1, "way {number}");
    }
}

#[test]
fn order_in_the_wrong_direction_or_taken_too_early_does_not_count() {
    let mutants: [fn(&SimDevice, u64, Stream); 4] = [
        // The wait goes the wrong way.
        |device, address, b| {
            past_block(device, address, 512, A);
            order(device, b, A);
        },
        // The event was recorded before the last use.
        |device, address, b| {
            let event = device.create_event().unwrap();
            device.check_alloc(address, 512, A);
            device.record(event, A).unwrap();
            device.check_free(address);
            device.wait(b, event).unwrap();
        },
        // The event was seen, but not ready.
        |device, address, _| {
            device.launch(A, 1000).unwrap();
            past_block(device, address, 512, A);
            let event = device.create_event().unwrap();
            device.record(event, A).unwrap();
            assert_eq!(device.query(event), Ok(false));
        },
        // Time alone has passed: the work is done, but nobody has asked.
        |device, address, _| {
            past_block(device, address, 512, A);
            device.advance_by(1_000_000);
        },
    ];
    for (number, mutant) in mutants.into_iter().enumerate() {
        let (device, b) = device();
        let address = device.malloc(G).unwrap();
        mutant(&device, address, b);
        device.check_alloc(address, 512, b);
        let found = device.violations();
        assert!(matches!(found[..], [Violation::UnorderedReuse { .. }]), "{number}: {found:?}");
    }
}

#[test]
fn every_stream_that_used_the_block_counts() {
    for waits_for_user in [true, false] {
        let (device, b) = device();
        let address = device.malloc(G).unwrap();
        device.check_alloc(address, G, A);
        device.check_use(address, b);
        device.check_free(address);
        if waits_for_user {
            order(&device, b, A);
        }
        device.check_alloc(address, G, A);
        assert_eq!(device.violation_count(), u64::from(!waits_for_user));
    }
}

#[test]
fn reuse_through_another_mapping_needs_order_too() {
    for is_ordered in [true, false] {
        let (device, b) = device();
        let (one, two) = aliases(&device);
        past_block(&device, one, G, A);
        if is_ordered {
            order(&device, A, b);
        }
        device.check_alloc(two, G, b);
        assert_eq!(device.violation_count(), u64::from(!is_ordered));
    }
}

#[test]
fn a_recycled_stream_handle_does_not_pass_for_the_stream_before_it() {
    let (device, b) = device();
    let address = device.malloc(G).unwrap();
    past_block(&device, address, G, b);
    device.destroy_stream(b).unwrap();
    let recycled = device.create_stream();
    assert_eq!(recycled, b);
    device.check_alloc(address, G, recycled);
    assert!(matches!(device.take_violations()[..], [Violation::UnorderedReuse { .. }]));
}

#[test]
fn a_block_may_outlive_its_stream() {
    let (device, b) = device();
    let address = device.malloc(G).unwrap();
    device.check_alloc(address, G, b);
    device.destroy_stream(b).unwrap();
    device.check_free(address);
    device.synchronize_device().unwrap();
    device.check_alloc(address, G, A);
    assert_eq!(device.violations(), []);
}

#[test]
fn a_freed_block_does_not_burden_the_heir_of_its_streams_handle() {
    let (device, b) = device();
    let address = device.malloc(G).unwrap();
    device.check_alloc(address, G, b);
    device.destroy_stream(b).unwrap();
    assert_eq!(device.create_stream(), b);
    device.synchronize_device().unwrap();
    device.check_free(address);
    device.check_alloc(address, G, A);
    assert_eq!(device.violations(), []);
}

#[test]
fn unmapping_before_the_last_use_is_known_to_be_complete() {
    let (device, b) = device();
    let (one, two) = aliases(&device);
    past_block(&device, one, 512, b);
    order(&device, b, A); // ordered on the device, but the host knows nothing
    device.unmap(two, G).unwrap();
    assert_eq!(device.violations(), [], "nothing ever used this mapping");
    device.unmap(one, G).unwrap();
    let earlier = uid(&device, b);
    let expected = Violation::UnmapInFlight { address: one, bytes: 512, earlier };
    assert_eq!(device.take_violations(), [expected]);
}

#[test]
fn unmapping_after_the_host_saw_the_last_use_complete() {
    let (device, b) = device();
    let (one, _) = aliases(&device);
    past_block(&device, one, 512, b);
    device.synchronize_stream(b).unwrap();
    past_block(&device, one + 512, 512, A);
    device.synchronize_stream(A).unwrap();
    device.unmap(one, 2 * G).unwrap();
    assert_eq!(device.violations(), []);
}

#[test]
fn taking_memory_away_from_under_a_live_block() {
    let (device, _) = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let ((one, _), plain) = (aliases(&device), device.malloc(G).unwrap());
    let pooled = device.malloc_async(pool, G, A).unwrap();
    for address in [one, plain, pooled] {
        device.check_alloc(address, 512, A);
    }
    device.unmap(one, G).unwrap();
    device.free(plain).unwrap();
    device.free_async(pooled, A).unwrap();
    let gone = |call, address, bytes| Violation::LiveMemoryGone {
        call,
        address,
        bytes,
        block_address: address,
    };
    let expected =
        [gone(Call::Unmap, one, G), gone(Call::Free, plain, G), gone(Call::FreeAsync, pooled, G)];
    assert_eq!(device.take_violations(), expected);
}

#[test]
fn giving_memory_back_after_the_block_was_freed() {
    let (device, b) = device();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let ((one, _), plain) = (aliases(&device), device.malloc(G).unwrap());
    let pooled = device.malloc_async(pool, G, b).unwrap();
    for address in [one, plain, pooled] {
        past_block(&device, address, 512, b);
    }
    device.free(plain).unwrap(); // waits for the device, so no question has to be asked before
    device.free_async(pooled, b).unwrap();
    device.unmap(one, G).unwrap();
    assert_eq!(device.violations(), []);
}

#[test]
fn memory_that_came_back_from_the_driver_has_no_past() {
    let (device, b) = device();
    let handle = device.create(G).unwrap();
    let address = device.reserve(G, 0).unwrap();
    device.map(address, G, handle).unwrap();
    device.set_access(address, G).unwrap();
    past_block(&device, address, G, A);
    device.synchronize_stream(A).unwrap();
    device.unmap(address, G).unwrap();
    device.release(handle).unwrap();
    let handle = device.create(G).unwrap();
    device.map(address, G, handle).unwrap();
    device.set_access(address, G).unwrap();
    device.check_alloc(address, G, b);
    assert_eq!(device.violations(), []);
}

#[test]
fn freeing_in_the_order_of_a_stream_that_has_not_waited() {
    for waits in [true, false] {
        let (device, b) = device();
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        let address = device.malloc_async(pool, G, A).unwrap();
        device.check_alloc(address, G, A);
        device.check_use(address, b);
        device.check_free(address);
        if waits {
            order(&device, b, A);
        }
        device.free_async(address, A).unwrap();
        let (stream, earlier) = (uid(&device, A), uid(&device, b));
        let expected = Violation::UnorderedFree { address, bytes: G, stream, earlier };
        assert_eq!(device.take_violations(), if waits { vec![] } else { vec![expected] });
    }
}

#[test]
fn blocks_outside_of_what_kernels_can_reach() {
    let (device, _) = device();
    let address = device.reserve(2 * G, 0).unwrap();
    let handle = device.create(G).unwrap();
    let not = |address, bytes| vec![Violation::NotAccessible { address, bytes }];
    device.check_alloc(address, 512, A);
    assert_eq!(device.take_violations(), not(address, 512), "nothing is mapped");
    device.map(address, G, handle).unwrap();
    device.check_alloc(address, 512, A);
    assert_eq!(device.take_violations(), not(address, 512), "mapped without access");
    device.set_access(address, G).unwrap();
    device.check_alloc(address, G, A);
    assert_eq!(device.take_violations(), []);
    device.check_alloc(address + 512, G, A);
    assert_eq!(device.take_violations(), not(address + 512, G), "over the end of the mapping");
    let plain = device.malloc(700).unwrap();
    device.check_alloc(plain, 701, A);
    assert_eq!(device.take_violations(), not(plain, 701), "more than was asked for");
    device.check_alloc(u64::MAX - 511, 1024, A);
    assert_eq!(device.violation_count(), 1);
}

#[test]
fn a_block_may_cover_many_mappings() {
    let (device, b) = device();
    let address = device.reserve(3 * G, 0).unwrap();
    for number in [2, 0, 1] {
        device.map(address + number * G, G, device.create(G).unwrap()).unwrap();
    }
    device.set_access(address, 3 * G).unwrap();
    device.check_alloc(address + 512, 3 * G - 1024, A);
    device.check_alloc(address + 3 * G - 512, 512, b);
    assert_eq!(device.violations(), []);
    device.check_alloc(address + 2 * G, 512, A);
    assert_eq!(device.violation_count(), 1);
}

#[test]
fn misaligned_and_unknown_blocks_and_streams() {
    let (device, _) = device();
    let address = device.malloc(G).unwrap();
    device.check_alloc(address + 256, 16, A);
    device.check_use(address, A);
    device.check_free(address);
    device.check_free(address + 256);
    device.check_free(address + 256);
    device.check_alloc(address, 16, Stream(12345));
    let unknown = |address| Violation::UnknownBlock { address };
    let expected = [
        Violation::Misaligned { address: address + 256 },
        unknown(address),
        unknown(address),
        unknown(address + 256),
        Violation::UnknownStream { address, stream: Stream(12345) },
    ];
    assert_eq!(device.take_violations(), expected);
}

#[test]
fn an_overlap_does_not_hide_the_survivor() {
    let (device, _) = device();
    let address = device.malloc(G).unwrap();
    device.check_alloc(address, 2048, A);
    device.check_alloc(address + 1024, 2048, A);
    assert_eq!(device.take_violations().len(), 1);
    device.check_free(address);
    device.check_alloc(address, 1536, A);
    let found = device.take_violations();
    assert!(matches!(found[..], [Violation::Overlap { shared_bytes: 512, .. }]), "{found:?}");
}

#[test]
fn order_inside_a_capture_follows_captured_events() {
    for waits in [true, false] {
        let (device, b) = device();
        let (stream, address) = (device.create_stream(), device.malloc(G).unwrap());
        device.begin_capture(stream, CaptureMode::Global).unwrap();
        order(&device, stream, b);
        past_block(&device, address, G, stream);
        past_block(&device, address, G, stream);
        assert_eq!(device.violations(), [], "one stream is in order with itself");
        if waits {
            order(&device, stream, b);
        }
        device.check_alloc(address, G, b);
        assert_eq!(device.violation_count(), u64::from(!waits));
        order(&device, b, stream);
        device.end_capture(stream).unwrap();
    }
}

#[test]
fn without_an_oracle_the_checks_do_nothing() {
    let device = SimDevice::new(SimConfig::default());
    device.check_alloc(1, 1, Stream(77));
    device.check_use(1, A);
    device.check_free(1);
    assert_eq!((device.violation_count(), device.now_ns()), (0, 0));
}

#[test]
fn pretended_kernels_keep_their_streams_busy() {
    let config = SimConfig { oracle: true, check_kernel_ns: 1000, ..SimConfig::default() };
    let device = SimDevice::new(config);
    let address = device.malloc(G).unwrap();
    let mut before = 0;
    for _ in 0..20 {
        past_block(&device, address, 512, A);
        let until = device.busy_until_ns(A).unwrap();
        assert!(until > before && until <= before + 2000, "two kernels of at most 1000 ns");
        before = until;
    }
}

#[test]
fn texts_say_who_where_and_why() {
    let (device, b) = device();
    let address = device.malloc(G).unwrap();
    past_block(&device, address, 512, A);
    device.check_alloc(address, 512, b);
    device.check_alloc(address, 512, b);
    let texts: Vec<String> = device.violations().iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "block 0x20000000000 (+512) on stream 2 reuses memory that stream 1 may still be using",
            "block 0x20000000000 (+512) shares 512 physical bytes with the live block \
             0x20000000000 (+512)",
        ]
    );
}
