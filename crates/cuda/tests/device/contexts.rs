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

/// Of another device's primary context, too: that is waited for from then on.
#[test]
fn b11_a_wait_for_the_device_covers_primary_contexts_and_no_other() {
    crate::scenario!(2, "", || {
        let device = open_at(0);
        raw::set_current(raw::primary(0));
        let own = Stream(raw::create_stream());
        let made = raw::create_context(0);
        let foreign = Stream(raw::create_stream());
        let [legacy, per_thread] = [Stream::DEFAULT, Stream::PER_THREAD];
        assert_eq!(device.covers(foreign), Some(false));
        for stream in [own, legacy, per_thread] {
            assert_eq!(device.covers(stream), Some(true));
        }
        raw::set_current(raw::primary(1));
        assert_eq!(device.covers(Stream(raw::create_stream())), Some(true));
        // Nothing is kept of a context that was made.
        raw::destroy_context(made);
        device.synchronize_device().unwrap();
        assert_eq!(device.covers(own), Some(true));
        assert_eq!(raw::current(), raw::primary(1));
    });
}

fn covers_in_a_capture() -> Option<bool> {
    let device = open();
    raw::set_current(raw::primary(0));
    let stream = raw::create_stream();
    raw::begin_capture(stream);
    let covers = device.covers(Stream(stream));
    assert!(raw::end_capture(stream), "the capture is broken");
    assert_eq!(device.covers(Stream(stream)), Some(true));
    covers
}

#[test]
fn i11_whose_a_captured_stream_is_breaks_no_capture() {
    crate::scenario!(1, ",driver:12040", || {
        let covers = covers_in_a_capture();
        assert!(covers.is_none_or(|covers| covers));
    });
}

#[test]
fn i11_newer_drivers_tell_whose_a_captured_stream_is() {
    crate::scenario!(1, ",driver:12050", || {
        let covers = covers_in_a_capture();
        assert!(covers.is_none_or(|covers| covers));
        // A GPU's own driver may be older.
        assert!(covers.is_some() || raw::driver_version() < 12_050);
    });
}
