//! Streams that are held: who waits for whom, what a device with few queues does, and what the
//! thread that holds them must not do.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use drystone_driver::{Driver, ErrorCode, Stream};
use drystone_sim::{Gate, SimConfig, SimDevice, Violation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn device(config: SimConfig) -> (SimDevice, [Stream; 2]) {
    let device = SimDevice::new(SimConfig { oracle: true, ..config });
    let streams = [device.create_stream(), device.create_stream()];
    (device, streams)
}

#[test]
fn a_stream_whose_kernel_waits_for_others_comes_to_no_stop() {
    let (device, streams) = device(SimConfig::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let others = Arc::clone(&is_over);
    let gate = Gate(Arc::new(move || others.load(Ordering::Relaxed)));
    device.launch_until(streams[1], gate).unwrap();
    assert!(!device.query_stream(streams[1]).unwrap());
    for _ in 0..2 {
        let begun = Instant::now();
        assert_eq!(device.hold(&streams).unwrap_err().code, ErrorCode::NotReady);
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
    let hold = device.hold(&streams[..1]).unwrap();
    device.let_go(hold);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            device.synchronize_stream(streams[1]).unwrap();
            is_over.load(Ordering::Relaxed)
        });
        thread::sleep(Duration::from_millis(5));
        is_over.store(true, Ordering::Relaxed);
        assert!(waits.join().unwrap(), "it was not waited for");
    });
    let hold = device.hold(&streams).unwrap();
    device.let_go(hold);
    assert_eq!(device.violations(), []);
}

#[test]
fn one_hold_lasts_at_a_time() {
    let (device, streams) = device(SimConfig::default());
    let hold = device.hold(&streams[..1]).unwrap();
    assert_eq!(device.hold(&streams[1..]).unwrap_err().code, ErrorCode::NotReady);
    device.let_go(hold);
    let hold = device.hold(&streams[1..]).unwrap();
    device.let_go(hold);
}

#[test]
fn streams_are_not_held_where_no_queue_is_left_for_copies() {
    let (device, streams) = device(SimConfig { connections: 3, ..SimConfig::default() });
    let hold = device.hold(&streams[..1]).unwrap();
    device.let_go(hold);
    assert_eq!(device.hold(&streams).unwrap_err().code, ErrorCode::NotReady);
}

#[test]
fn who_holds_streams_waits_for_none() {
    let (device, streams) = device(SimConfig::default());
    let hold = device.hold(&streams[..1]).unwrap();
    device.synchronize_stream(streams[1]).unwrap();
    assert_eq!(device.take_violations(), []);
    device.wait_for_held("cuStreamCreate");
    device.synchronize_stream(streams[0]).unwrap();
    device.synchronize_device().unwrap();
    let functions = ["cuStreamCreate", "cuStreamSynchronize", "cuCtxSynchronize"];
    let found = functions.map(|function| Violation::WaitsForItself { function });
    assert_eq!(device.take_violations(), found);
    device.let_go(hold);
    device.wait_for_held("cuStreamCreate");
    assert_eq!(device.take_violations(), []);
}
