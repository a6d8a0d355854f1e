//! Streams, events and captures.

use drystone_driver::{CaptureMode, CaptureStatus, Driver, ErrorCode, Stream};

use crate::raw;
use crate::scenario::{open, open_at};

#[test]
fn default_streams_are_told_apart_from_each_other_and_from_created_ones() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let created = Stream(raw::create_stream());
        let uid = |stream| device.stream_uid(stream).unwrap();
        assert_eq!(uid(Stream(0)), uid(Stream(1)), "two names of the legacy default stream");
        assert_ne!(uid(Stream(0)), uid(Stream(2)));
        assert_ne!(uid(Stream(0)), uid(created));
        assert_ne!(uid(Stream(2)), uid(created));
        raw::destroy_stream(created.0);
    });
}

#[test]
fn b4_the_per_thread_default_stream_is_another_in_every_thread() {
    crate::scenario!(1, "", || {
        let device = open();
        let here = device.stream_uid(Stream(2)).unwrap();
        let there = std::thread::scope(|scope| {
            scope.spawn(|| device.stream_uid(Stream(2)).unwrap()).join().unwrap()
        });
        assert_ne!(here, there);
        assert_eq!(device.stream_uid(Stream(2)).unwrap(), here);
    });
}

#[test]
fn b2_a_recycled_handle_is_another_stream() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let mut seen = Vec::new();
        for _ in 0..8 {
            let stream = raw::create_stream();
            let uid = device.stream_uid(Stream(stream)).unwrap();
            assert!(!seen.contains(&uid), "{uid:?} came twice");
            seen.push(uid);
            raw::destroy_stream(stream);
        }
    });
}

#[test]
fn b3_default_streams_of_two_devices_differ() {
    crate::scenario!(2, "", || {
        let (one, two) = (open_at(0), open_at(1));
        for handle in 0..3 {
            let stream = Stream(handle);
            assert_ne!(one.stream_uid(stream).unwrap(), two.stream_uid(stream).unwrap());
        }
    });
}

#[test]
fn events_order_streams_and_tell_what_is_complete() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let (one, two) = (Stream(raw::create_stream()), Stream(raw::create_stream()));
        let event = device.create_event().unwrap();
        assert!(device.query(event).unwrap(), "never recorded");
        device.record(event, one).unwrap();
        device.wait(two, event).unwrap();
        device.synchronize_event(event).unwrap();
        assert!(device.query(event).unwrap());
        device.synchronize_stream(two).unwrap();
        device.synchronize_device().unwrap();
        device.destroy_event(event).unwrap();
        raw::destroy_stream(one.0);
        raw::destroy_stream(two.0);
    });
}

#[test]
fn i11_a_captured_stream_is_not_asked_who_it_is() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let stream = Stream(raw::create_stream());
        let before = device.stream_uid(stream).unwrap();
        raw::begin_capture(stream.0);
        assert_eq!(device.capture_status(stream).unwrap(), CaptureStatus::Active);
        let refused = device.stream_uid(stream).unwrap_err();
        assert_eq!(refused.code, ErrorCode::CaptureUnsupported);
        assert!(raw::end_capture(stream.0), "the capture is broken");
        assert_eq!(device.capture_status(stream).unwrap(), CaptureStatus::None);
        assert_eq!(device.stream_uid(stream).unwrap(), before);
        raw::destroy_stream(stream.0);
    });
}

#[test]
fn i11_a_relaxed_thread_may_call_what_a_capture_forbids() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let stream = raw::create_stream();
        raw::begin_capture(stream);
        let before = device.exchange_capture_mode(CaptureMode::Relaxed).unwrap();
        let address = device.malloc(512).unwrap();
        assert_eq!(device.exchange_capture_mode(before).unwrap(), CaptureMode::Relaxed);
        assert_eq!(device.capture_status(Stream(stream)).unwrap(), CaptureStatus::Active);
        let error = device.malloc(512).unwrap_err();
        assert_eq!((error.code, error.bytes), (ErrorCode::CaptureUnsupported, 512));
        let cuda_error = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
        assert_eq!(error.cuda_error, cuda_error);
        raw::end_capture(stream);
        device.free(address).unwrap();
        raw::destroy_stream(stream);
    });
}

#[test]
fn i11_memory_can_be_mapped_in_a_capture() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let granule = device.info().granularity_bytes;
        let stream = raw::create_stream();
        raw::begin_capture(stream);
        let address = device.reserve(granule, 0).unwrap();
        let handle = device.create(granule).unwrap();
        device.map(address, granule, handle).unwrap();
        device.set_access(address, granule).unwrap();
        assert!(raw::end_capture(stream));
        device.unmap(address, granule).unwrap();
        device.release(handle).unwrap();
        device.unreserve(address, granule).unwrap();
        raw::destroy_stream(stream);
    });
}

#[test]
fn an_event_recorded_in_a_capture_cannot_be_asked() {
    crate::scenario!(1, "", || {
        let device = open();
        raw::set_current(raw::primary(0));
        let stream = Stream(raw::create_stream());
        let event = device.create_event().unwrap();
        raw::begin_capture(stream.0);
        device.record(event, stream).unwrap();
        let before = device.exchange_capture_mode(CaptureMode::Relaxed).unwrap();
        assert_eq!(device.query(event).unwrap_err().code, ErrorCode::CapturedEvent);
        device.exchange_capture_mode(before).unwrap();
        raw::end_capture(stream.0);
        device.destroy_event(event).unwrap();
        raw::destroy_stream(stream.0);
    });
}
