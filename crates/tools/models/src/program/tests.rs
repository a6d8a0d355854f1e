//! Programs worked out by hand: a kernel of a small block takes 5 us, and the host launches one
//! each 2 us at most.

use super::{EVENT_LATENCY_NS, Gaps, Program, ideal_makespan_us, work_config};
use crate::Candidate;
use drystone_sim::{CostTable, SimConfig, SimDevice};
use drystone_trace::metrics::Metrics;
use drystone_trace::model::{Completion, Event, Kind, Trace};
use drystone_trace::replay::{Options, run};

/// Between two events.
const GAP_NS: u64 = 100_000;
const MIB: u64 = 1 << 20;
/// A kernel over this many bytes takes 1,000 us.
const LARGE: u64 = 2_039 * 1_000_000;

/// Events somewhat apart in recorded time, which the host does not sit out.
fn trace(events: &[(Kind, u32, u64, u16)]) -> Trace {
    let event = |(index, &(kind, block, bytes, stream))| {
        let time_ns = index as u64 * GAP_NS;
        Event { time_ns, bytes, block, stream, pool: 0, kind }
    };
    let events: Vec<Event> = events.iter().enumerate().map(event).collect();
    let blocks = 1 + events.iter().map(|event| event.block).max().unwrap_or(0);
    Trace { events, blocks, streams: 2, pools: 1, ..Trace::default() }
}

fn metrics(trace: &Trace, allocator: &str) -> Metrics {
    let device = SimDevice::new(work_config(SimConfig {
        event_latency_ns: EVENT_LATENCY_NS,
        costs: CostTable::small(),
        ..SimConfig::default()
    }));
    let allocator = Candidate::named(allocator, "").unwrap().build(&device, 2, 1).unwrap();
    let mut program = Program::new(allocator, &device, Gaps::Kept);
    run(trace, &mut program, &Options { curve_points: 1, timed_passes: 0 }).metrics
}

#[test]
fn streams_run_side_by_side_behind_the_host() {
    let allocate = |block, bytes, stream| (Kind::Allocate, block, bytes, stream);
    let two = trace(&[
        allocate(0, LARGE, 0),
        allocate(1, LARGE, 1),
        allocate(2, 512, 1),
        (Kind::RecordStream, 0, 0, 1),
    ]);
    // Stream 1 begins 2 us after the start: two large kernels and a small one follow each other.
    assert_eq!(ideal_makespan_us(&two, Gaps::Kept), 2.0 + 1000.0 + 5.0 + 1000.0);
    assert_eq!(ideal_makespan_us(&trace(&[]), Gaps::Kept), 0.0);
}

#[test]
fn calls_take_time_and_native_never_makes_a_stream_wait() {
    let one = trace(&[(Kind::Allocate, 0, 512, 0)]);
    let time = metrics(&one, "torch-native").device_time.unwrap();
    // One cudaMalloc of 2 MiB, and then the kernel.
    assert_eq!((time.makespan_us, time.stream_waits, time.host_waits), (100.0 + 5.0, 0, 0));
}

#[test]
fn giving_memory_back_waits_for_the_device() {
    let given = trace(&[
        (Kind::Allocate, 0, LARGE, 0),
        (Kind::Free, 0, LARGE, 0),
        (Kind::EmptyCache, 0, 0, 0),
    ]);
    let metrics = metrics(&given, "torch-native");
    let time = metrics.device_time.unwrap();
    assert!(time.host_waits > 0, "{time:?}");
    assert!((700.0..1000.0).contains(&time.host_waited_us), "{time:?}");
}

#[test]
fn a_use_lasts_after_its_free_as_long_as_recorded() {
    let mut used = trace(&[
        (Kind::Allocate, 0, MIB, 0),
        (Kind::RecordStream, 0, MIB, 1),
        (Kind::Free, 0, MIB, 0),
    ]);
    let plain_us = ideal_makespan_us(&used, Gaps::Kept);
    assert_eq!(plain_us, 2.0 + 5.0);
    used.completions = vec![Completion { event: 2, time_ns: 2 * GAP_NS + 50_000 }];
    assert_eq!(ideal_makespan_us(&used, Gaps::Kept), 4.0 + 50.0);
}

#[test]
fn where_the_program_was_idle_it_is_idle_again() {
    let allocate = |block, bytes, stream| (Kind::Allocate, block, bytes, stream);
    let mut idle = trace(&[allocate(0, MIB, 0), allocate(1, MIB, 1)]);
    idle.events[1].time_ns = 50_000_000;
    assert_eq!(ideal_makespan_us(&idle, Gaps::Kept), 50_000.0 + 5.0);
    assert_eq!(ideal_makespan_us(&idle, Gaps::Shortened), 2.0 + 5.0);
}

#[test]
fn a_program_that_waits_for_the_device_goes_on_when_it_is_idle() {
    let allocate = |block, bytes, stream| (Kind::Allocate, block, bytes, stream);
    let waits = trace(&[allocate(0, LARGE, 0), (Kind::HostWait, 0, 0, 0), allocate(1, MIB, 1)]);
    assert_eq!(ideal_makespan_us(&waits, Gaps::Kept), 1000.0 + 2.0 + 5.0);
    let time = metrics(&waits, "torch-native").device_time.unwrap();
    assert_eq!((time.host_waits, time.host_waited_us), (0, 0.0));
}

/// What a captured stream is given to do runs with its graph, of which a trace tells nothing.
#[test]
fn captured_work_does_not_run_and_no_allocator_breaks_a_capture() {
    let mut captured = trace(&[
        (Kind::Allocate, 0, MIB, 0),
        (Kind::RecordStream, 0, MIB, 1),
        (Kind::CaptureBegin, 0, 0, 1),
        (Kind::Allocate, 1, LARGE, 1),
        (Kind::Free, 0, MIB, 0),
        (Kind::Allocate, 0, 64 * MIB, 0),
        (Kind::Free, 1, LARGE, 1),
        (Kind::CaptureEnd, 0, 0, 1),
        (Kind::Free, 0, 64 * MIB, 0),
        (Kind::Allocate, 0, 32 * MIB, 1),
    ]);
    for at in [2, 3, 6, 7] {
        captured.events[at].pool = 1;
    }
    captured.pools = 2;
    captured.check().unwrap();
    // Three kernels in turn on the default stream, two beside them.
    assert!(ideal_makespan_us(&captured, Gaps::Kept) < 100.0);
    for name in crate::NAMES {
        let device = SimDevice::new(work_config(SimConfig::default()));
        let allocator = Candidate::named(name, "").unwrap().build(&device, 2, 2).unwrap();
        let mut program = Program::new(allocator, &device, Gaps::Kept);
        // An allocator that breaks the capture ends here.
        let run = run(&captured, &mut program, &Options { curve_points: 1, timed_passes: 1 });
        assert_eq!(run.metrics.out_of_memory_events, 0, "{name}");
    }
}
