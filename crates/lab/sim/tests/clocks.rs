//! Time: streams are busy, events become ready, waits order streams, synchronising moves the host.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use drystone_driver::{Call, Driver, Stream};
use drystone_sim::{Cost, CostTable, SimConfig, SimDevice};
use std::time::{Duration, Instant};

const A: Stream = Stream::DEFAULT;

fn device() -> SimDevice {
    SimDevice::new(SimConfig::default())
}

#[test]
fn work_queues_up_behind_earlier_work_and_not_before_now() {
    let device = device();
    device.launch(A, 100).unwrap();
    device.launch(A, 50).unwrap();
    assert_eq!(device.busy_until_ns(A), Ok(150));
    device.advance_to(1000);
    device.launch(A, 50).unwrap();
    assert_eq!(device.busy_until_ns(A), Ok(1050));
    device.advance_to(5);
    assert_eq!(device.now_ns(), 1000, "time does not go back");
}

#[test]
fn an_event_is_ready_when_the_work_before_its_last_record_is_done() {
    let device = device();
    let event = device.create_event().unwrap();
    device.record(event, A).unwrap();
    assert_eq!(device.query(event), Ok(true), "an idle stream has nothing to wait for");
    device.launch(A, 100).unwrap();
    assert_eq!(device.query(event), Ok(true), "later work does not concern it");
    device.record(event, A).unwrap();
    device.advance_to(99);
    assert_eq!(device.query(event), Ok(false));
    device.advance_by(1);
    assert_eq!(device.query(event), Ok(true));
}

#[test]
fn a_wait_delays_the_stream_and_not_the_host() {
    let device = device();
    let (b, event) = (device.create_stream(), device.create_event().unwrap());
    device.launch(A, 100).unwrap();
    device.record(event, A).unwrap();
    device.wait(b, event).unwrap();
    device.launch(b, 10).unwrap();
    assert_eq!((device.busy_until_ns(b), device.now_ns()), (Ok(110), 0));
}

#[test]
fn synchronising_moves_the_host_as_far_as_needed() {
    let device = device();
    let (b, event) = (device.create_stream(), device.create_event().unwrap());
    device.launch(A, 100).unwrap();
    device.record(event, A).unwrap();
    device.launch(A, 100).unwrap();
    device.launch(b, 500).unwrap();
    device.synchronize_event(event).unwrap();
    assert_eq!(device.now_ns(), 100);
    device.synchronize_stream(A).unwrap();
    assert_eq!(device.now_ns(), 200);
    device.synchronize_device().unwrap();
    assert_eq!(device.now_ns(), 500);
}

#[test]
fn a_plain_free_waits_for_the_whole_device() {
    let device = device();
    let address = device.malloc(512).unwrap();
    device.launch(device.create_stream(), 700).unwrap();
    device.free(address).unwrap();
    assert_eq!(device.now_ns(), 700);
}

#[test]
fn work_of_a_destroyed_stream_still_runs() {
    let device = device();
    let (b, event) = (device.create_stream(), device.create_event().unwrap());
    device.launch(b, 300).unwrap();
    device.record(event, b).unwrap();
    device.destroy_stream(b).unwrap();
    assert_eq!(device.busy_until_ns(device.create_stream()), Ok(0), "a new stream is idle");
    assert_eq!(device.query(event), Ok(false));
    device.synchronize_device().unwrap();
    assert_eq!((device.now_ns(), device.query(event)), (300, Ok(true)));
}

#[test]
fn event_latency_delays_the_event_alone_and_events_stay_in_order() {
    let latency = SimConfig { event_latency_ns: 40, event_jitter_ns: 1000, ..Default::default() };
    let mut latest_ns = 0;
    for seed in 0..50 {
        let device = SimDevice::new(SimConfig { seed, ..latency.clone() });
        let events: Vec<_> = (0..8).map(|_| device.create_event().unwrap()).collect();
        for &event in &events {
            device.launch(A, 10).unwrap();
            device.record(event, A).unwrap();
        }
        assert_eq!(device.busy_until_ns(A), Ok(80));
        device.advance_to(49);
        assert_eq!(device.query(events[0]), Ok(false), "seed {seed}: latency passed too early");
        while !device.query(events[7]).unwrap() {
            let ready: Vec<_> = events.iter().map(|&event| device.query(event).unwrap()).collect();
            assert!(ready.is_sorted_by(|a, b| a >= b), "seed {seed}: {ready:?}");
            device.advance_by(7);
        }
        assert!(device.now_ns() <= 80 + 40 + 1000 + 7, "seed {seed}: later than it can be");
        latest_ns = latest_ns.max(device.now_ns());
    }
    assert!(latest_ns > 1000, "jitter comes on top of the latency: {latest_ns} ns")
}

#[test]
fn calls_take_time_when_asked_to() {
    let cost = Cost { first_us: 3.0, per_further_2mib_us: 1.0, ..Cost::default() };
    let costs = CostTable::default().with(Call::Create, cost);
    let config = SimConfig { calls_take_time: true, costs, ..SimConfig::default() };
    let device = SimDevice::new(config);
    device.create(6 << 20).unwrap();
    assert_eq!(device.now_ns(), 5000);
    device.memory_info().unwrap();
    assert_eq!(device.now_ns(), 5000);
}

#[test]
fn in_real_time_calls_and_waits_take_theirs() {
    let cost = Cost { first_us: 2000.0, ..Cost::default() };
    let costs = CostTable::default().with(Call::Create, cost);
    let times = SimConfig { calls_take_time: true, is_real_time: true, ..SimConfig::default() };
    let device = SimDevice::new(SimConfig { costs, ..times });
    let begun = Instant::now();
    device.create(2 << 20).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(2));
    device.launch(A, 3_000_000).unwrap();
    device.synchronize_stream(A).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(5));
    assert!(device.now_ns() >= 5_000_000, "time goes on by itself");
}

#[test]
fn one_seed_replays_a_run_and_another_gives_another() {
    let run = |seed| {
        let jitter = SimConfig { event_jitter_ns: 500, clock_jitter_ns: 300, ..Default::default() };
        let device = SimDevice::new(SimConfig { seed, ..jitter });
        let event = device.create_event().unwrap();
        let mut history = Vec::new();
        for _ in 0..100 {
            device.launch(A, 200).unwrap();
            device.record(event, A).unwrap();
            history.push((device.query(event).unwrap(), device.now_ns()));
        }
        history
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let ready = run(1).iter().filter(|(is_ready, _)| *is_ready).count();
    assert!((1..100).contains(&ready), "jitter must decide both ways: {ready} of 100");
}

/// Two streams of two kernels each, side by side unless a wait puts one behind the other.
#[test]
fn two_streams_take_as_long_as_the_longer_and_a_wait_lengthens_them() {
    let work_end_ns = |with_wait: bool| {
        let device = SimDevice::new(SimConfig { event_latency_ns: 20, ..SimConfig::default() });
        let (b, event) = (device.create_stream(), device.create_event().unwrap());
        device.launch(A, 100).unwrap();
        device.launch(b, 150).unwrap();
        device.record(event, A).unwrap();
        if with_wait {
            // A's event is seen at 120: after B's 150, so that costs nothing.
            device.wait(b, event).unwrap();
        }
        device.launch(A, 300).unwrap();
        device.record(event, A).unwrap();
        if with_wait {
            device.wait(b, event).unwrap();
        }
        device.launch(b, 50).unwrap();
        assert_eq!((device.now_ns(), device.host_waited_ns()), (0, 0), "the host runs ahead");
        device.work_end_ns()
    };
    assert_eq!(work_end_ns(false), 400);
    assert_eq!(work_end_ns(true), 400 + 20 + 50);
}

#[test]
fn the_host_runs_ahead_by_a_launch_queue_and_no_more() {
    assert_eq!(SimConfig::default().launch_queue, 1024);
    let device = SimDevice::new(SimConfig { launch_queue: 3, ..SimConfig::default() });
    let b = device.create_stream();
    let starts: Vec<u64> = (0..6)
        .map(|_| {
            device.launch(A, 100).unwrap();
            device.now_ns()
        })
        .collect();
    assert_eq!(starts, [0, 0, 0, 100, 200, 300]);
    device.launch(b, 10).unwrap();
    assert_eq!(device.now_ns(), 300, "each stream has a queue of its own");
    assert_eq!((device.work_end_ns(), device.host_waited_ns()), (600, 0));
    device.advance_to(1000);
    device.launch(A, 100).unwrap();
    assert_eq!((device.now_ns(), device.work_end_ns()), (1000, 1100));
}

#[test]
fn what_blocks_the_host_in_calls_is_counted() {
    let device = device();
    let address = device.malloc(512).unwrap();
    device.launch(A, 100).unwrap();
    device.synchronize_stream(A).unwrap();
    device.advance_to(150);
    device.launch(A, 70).unwrap();
    device.free(address).unwrap();
    device.synchronize_device().unwrap();
    assert_eq!((device.host_waited_ns(), device.now_ns()), (170, 220));
}
