//! The current context of the calling thread: used where it fits, restored where it does not.

use drystone_driver::{Driver, MemoryPoolConfig, Stream};

use crate::raw;
use crate::scenario::{open, open_at};

/// Calls of every kind, one that fails among them.
fn use_device(device: &dyn Driver) {
    let granule = device.info().granularity_bytes;
    let address = device.reserve(granule, 0).unwrap();
    let handle = device.create(granule).unwrap();
    device.map(address, granule, handle).unwrap();
    device.set_access(address, granule).unwrap();
    assert_eq!(raw::ordinal_of(address), device.info().ordinal.cast_signed());
    device.unmap(address, granule).unwrap();
    device.release(handle).unwrap();
    device.unreserve(address, granule).unwrap();
    let address = device.malloc(512).unwrap();
    assert_eq!(raw::ordinal_of(address), device.info().ordinal.cast_signed());
    device.free(address).unwrap();
    device.malloc(1 << 50).unwrap_err();
    let event = device.create_event().unwrap();
    device.record(event, Stream::DEFAULT).unwrap();
    device.synchronize_event(event).unwrap();
    assert!(device.query(event).unwrap());
    device.destroy_event(event).unwrap();
    let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
    let address = device.malloc_async(pool, 512, Stream::DEFAULT).unwrap();
    device.free_async(address, Stream::DEFAULT).unwrap();
    device.destroy_memory_pool(pool).unwrap();
    device.stream_uid(Stream::DEFAULT).unwrap();
    device.capture_status(Stream::DEFAULT).unwrap();
    device.synchronize_device().unwrap();
}

#[test]
fn b31_a_thread_without_a_context_has_none_afterwards() {
    crate::scenario!(1, "", || {
        let device = open();
        assert_eq!(raw::current(), 0, "opening leaves none either");
        use_device(&device);
        assert_eq!(raw::current(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use_device(&device);
                assert_eq!(raw::current(), 0);
            });
        });
    });
}

#[test]
fn b10_another_devices_context_is_current_before_and_after_but_not_used() {
    crate::scenario!(2, "", || {
        let device = open_at(0);
        let other = raw::primary(1);
        raw::set_current(other);
        let before = raw::free_bytes();
        let address = device.malloc(256 << 20).unwrap();
        assert_eq!(raw::current(), other);
        // Of the other device nothing.
        raw::assert_taken(before, 0);
        device.free(address).unwrap();
        use_device(&device);
        assert_eq!(raw::current(), other);
        raw::assert_taken(before, 0);
    });
}

#[test]
fn two_devices_are_used_in_turn_by_one_thread() {
    crate::scenario!(2, "", || {
        let (one, two) = (open_at(0), open_at(1));
        raw::set_current(raw::primary(0));
        for _ in 0..3 {
            use_device(&one);
            use_device(&two);
        }
        assert_eq!(raw::current(), raw::primary(0));
    });
}

#[test]
fn devices_of_one_ordinal_share_the_primary_context() {
    crate::scenario!(1, "", || {
        let (one, two) = (open(), open());
        let stream = Stream::DEFAULT;
        assert_eq!(one.stream_uid(stream).unwrap(), two.stream_uid(stream).unwrap());
        let address = one.malloc(512).unwrap();
        two.free(address).unwrap();
        drop(one);
        use_device(&two);
        drop(two);
        use_device(&open());
    });
}

#[test]
fn many_threads_use_a_device_at_once() {
    crate::scenario!(2, "", || {
        let devices = [open_at(0), open_at(1)];
        std::thread::scope(|scope| {
            for at in 0..8 {
                let (mine, other) = (&devices[at % 2], raw::primary((at as i32 + 1) % 2));
                scope.spawn(move || {
                    raw::set_current(other);
                    (0..20).for_each(|_| use_device(mine));
                    assert_eq!(raw::current(), other);
                });
            }
        });
    });
}
