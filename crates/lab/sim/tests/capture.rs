//! What a capture forbids, to whom, and what an illegal call does to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{CaptureMode, CaptureStatus, Driver, ErrorCode, Stream};
use drystone_sim::{GRANULARITY_BYTES as G, SimConfig, SimDevice};
use std::thread;

const REFUSED: ErrorCode = ErrorCode::CaptureUnsupported;

fn device() -> SimDevice {
    SimDevice::new(SimConfig { strict: true, ..SimConfig::default() })
}

fn capturing(device: &SimDevice, mode: CaptureMode) -> Stream {
    let stream = device.create_stream();
    device.begin_capture(stream, mode).unwrap();
    stream
}

#[test]
fn synchronising_what_is_captured_is_refused_even_when_relaxed() {
    let device = device();
    device.exchange_capture_mode(CaptureMode::Relaxed).unwrap();
    let stream = capturing(&device, CaptureMode::Relaxed);
    device.synchronize_stream(Stream::DEFAULT).unwrap();
    assert_eq!(device.synchronize_stream(stream).unwrap_err().code, REFUSED);
    assert_eq!(device.end_capture(stream), Err(ErrorCode::Other(901)));
    let stream = capturing(&device, CaptureMode::Relaxed);
    assert_eq!(device.synchronize_device().unwrap_err().code, REFUSED);
    assert_eq!(device.end_capture(stream), Err(ErrorCode::Other(901)));
    device.synchronize_device().unwrap();
}

#[test]
fn an_event_recorded_in_a_capture_belongs_to_it_until_recorded_anew() {
    let device = device();
    let event = device.create_event().unwrap();
    let stream = capturing(&device, CaptureMode::Relaxed);
    device.record(event, stream).unwrap();
    device.end_capture(stream).unwrap();
    let captured = ErrorCode::CapturedEvent;
    assert_eq!(device.query(event).unwrap_err().code, captured);
    assert_eq!(device.synchronize_event(event).unwrap_err().code, captured);
    assert_eq!(device.wait(stream, event).unwrap_err().code, captured, "its graph has ended");
    assert_eq!(device.violation_count(), 3);
    device.record(event, stream).unwrap();
    assert_eq!(device.query(event), Ok(true));
}

#[test]
fn querying_a_captured_event_breaks_the_capture_under_every_mode() {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let device = device();
        let event = device.create_event().unwrap();
        let stream = capturing(&device, mode);
        device.record(event, stream).unwrap();
        let query = || device.query(event).unwrap_err().code;
        let code = thread::scope(|s| s.spawn(query).join().unwrap());
        assert_eq!(code, ErrorCode::CapturedEvent, "{mode:?}");
        assert_eq!(device.capture_status(stream), Ok(CaptureStatus::Invalidated), "{mode:?}");
    }
}

/// Draws `side` into the capture of `stream` and puts a kernel on it.
fn fork(device: &SimDevice, stream: Stream, side: Stream) {
    let event = device.create_event().unwrap();
    device.record(event, stream).unwrap();
    device.wait(side, event).unwrap();
    device.launch(side, 10).unwrap();
}

#[test]
fn a_wait_for_a_captured_event_draws_the_stream_in() {
    let device = device();
    let (stream, side) = (capturing(&device, CaptureMode::Global), device.create_stream());
    fork(&device, stream, side);
    assert_eq!(device.capture_status(side), Ok(CaptureStatus::Active));
    assert_eq!(device.busy_until_ns(side), Ok(0), "captured work does not run");
    assert_eq!(device.destroy_stream(side), Err(REFUSED));
    let join = device.create_event().unwrap();
    device.record(join, side).unwrap();
    device.wait(stream, join).unwrap();
    assert_eq!(device.end_capture(stream), Ok(()));
    assert_eq!(device.capture_status(side), Ok(CaptureStatus::None));
}

#[test]
fn a_stream_drawn_in_must_be_joined_back_after_its_last_work() {
    let device = device();
    let side = device.create_stream();
    let stream = capturing(&device, CaptureMode::Global);
    fork(&device, stream, side);
    assert_eq!(device.end_capture(stream), Err(ErrorCode::Other(904)), "never joined");
    assert_eq!(device.capture_status(side), Ok(CaptureStatus::None));

    let stream = capturing(&device, CaptureMode::Global);
    fork(&device, stream, side);
    let join = device.create_event().unwrap();
    device.record(join, side).unwrap();
    device.wait(stream, join).unwrap();
    device.launch(side, 10).unwrap();
    assert_eq!(device.end_capture(stream), Err(ErrorCode::Other(904)), "joined too early");
}

#[test]
fn a_stream_drawn_in_must_be_joined_back_even_without_work() {
    let device = device();
    let (event, side) = (device.create_event().unwrap(), device.create_stream());
    let stream = capturing(&device, CaptureMode::Global);
    device.record(event, stream).unwrap();
    device.wait(side, event).unwrap();
    assert_eq!(device.end_capture(stream), Err(ErrorCode::Other(904)));
}

#[test]
fn a_capture_may_not_wait_for_work_outside_it() {
    let device = device();
    let (before, never) = (device.create_event().unwrap(), device.create_event().unwrap());
    device.record(before, Stream::DEFAULT).unwrap();
    let stream = capturing(&device, CaptureMode::ThreadLocal);
    device.wait(stream, never).unwrap();
    assert_eq!(device.capture_status(stream), Ok(CaptureStatus::Active));
    assert_eq!(device.wait(stream, before).unwrap_err().code, ErrorCode::Other(905));
    assert_eq!(device.capture_status(stream), Ok(CaptureStatus::Invalidated));
    assert_eq!(device.violation_count(), 1);
}

#[test]
fn captures_do_not_mix_with_each_other_or_with_the_default_stream() {
    let device = device();
    let event = device.create_event().unwrap();
    let (one, two) =
        (capturing(&device, CaptureMode::Relaxed), capturing(&device, CaptureMode::Relaxed));
    device.record(event, one).unwrap();
    assert_eq!(device.wait(two, event).unwrap_err().code, ErrorCode::CapturedEvent);
    assert_eq!(device.end_capture(one), Err(ErrorCode::Other(901)));
    assert_eq!(device.end_capture(two), Err(ErrorCode::Other(901)));

    let stream = capturing(&device, CaptureMode::Relaxed);
    device.record(event, stream).unwrap();
    assert_eq!(device.wait(Stream::DEFAULT, event).unwrap_err().code, ErrorCode::Other(906));
    assert_eq!(device.begin_capture(Stream::DEFAULT, CaptureMode::Relaxed), Err(REFUSED));
}

#[test]
fn a_broken_capture_takes_nothing_more() {
    let device = device();
    let event = device.create_event().unwrap();
    let stream = capturing(&device, CaptureMode::Global);
    device.malloc(G).unwrap_err();
    let broken = ErrorCode::Other(901);
    assert_eq!(device.launch(stream, 1), Err(broken));
    assert_eq!(device.record(event, stream).unwrap_err().code, broken);
    assert_eq!(device.query(event).unwrap_err().code, REFUSED, "it forbids until it is ended");
    assert_eq!(device.end_capture(stream), Err(broken));
    assert_eq!(device.end_capture(stream), Err(ErrorCode::InvalidValue));
    device.malloc(G).unwrap();
}

#[test]
fn who_may_begin_and_end_a_capture() {
    let device = device();
    let end_elsewhere =
        |stream| thread::scope(|s| s.spawn(|| device.end_capture(stream)).join().unwrap());
    let stream = capturing(&device, CaptureMode::ThreadLocal);
    let again = device.begin_capture(stream, CaptureMode::Global);
    assert_eq!(again, Err(ErrorCode::InvalidValue));
    assert_eq!(end_elsewhere(stream), Err(ErrorCode::Other(908)));
    assert_eq!(device.end_capture(stream), Ok(()));
    assert_eq!(end_elsewhere(capturing(&device, CaptureMode::Relaxed)), Ok(()));

    let (stream, side) = (capturing(&device, CaptureMode::Global), device.create_stream());
    fork(&device, stream, side);
    assert_eq!(device.end_capture(side), Err(ErrorCode::Other(903)));
    assert_eq!(device.end_capture(stream), Err(ErrorCode::Other(901)));
}

#[test]
fn the_mode_is_the_threads_own() {
    let device = device();
    let exchange = |mode| device.exchange_capture_mode(mode).unwrap();
    assert_eq!(exchange(CaptureMode::Relaxed), CaptureMode::Global);
    let elsewhere = || exchange(CaptureMode::ThreadLocal);
    assert_eq!(thread::scope(|s| s.spawn(elsewhere).join().unwrap()), CaptureMode::Global);
    assert_eq!(exchange(CaptureMode::Global), CaptureMode::Relaxed);
}
