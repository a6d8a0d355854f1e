//! The engine's tests, over the reference allocator.

use super::super::reference::{CALL_US, Reference};
use super::super::{BlockState, completes, layout_at};
use super::{Options, run};
use crate::model::{Completion, Event, Kind, Trace};

const KIB: u64 = 1024;

/// Builds a trace one event at a time, a microsecond apart.
#[derive(Default)]
struct Builder(Trace);

impl Builder {
    fn push(mut self, kind: Kind, block: u32, bytes: u64, stream: u16) -> Self {
        let time_ns = self.0.events.len() as u64 * 1000;
        self.0.events.push(Event { time_ns, bytes, block, stream, pool: 0, kind });
        self.0.blocks = self.0.blocks.max(block + 1);
        self.0.streams = self.0.streams.max(stream + 1);
        self.0.pools = 1;
        self
    }

    fn allocate(self, block: u32, bytes: u64) -> Self {
        self.push(Kind::Allocate, block, bytes, 0)
    }

    fn free(self, block: u32, bytes: u64) -> Self {
        self.push(Kind::Free, block, bytes, 0)
    }

    fn iteration(self) -> Self {
        self.push(Kind::Iteration, 0, 0, 0)
    }
}

fn untimed() -> Options {
    Options { timed_passes: 0, ..Options::default() }
}

#[test]
fn peaks_are_exact_and_costs_are_counted() {
    let trace = Builder::default()
        .allocate(0, 1000)
        .allocate(1, 3 * KIB)
        .free(0, 1000)
        .allocate(0, 1000)
        .free(1, 3 * KIB)
        .push(Kind::EmptyCache, 0, 0, 0)
        .allocate(1, 512)
        .0;
    let outcome = run(&trace, &mut Reference::new(1 << 30), &untimed());
    let metrics = outcome.metrics;
    assert_eq!(metrics.peak_requested_bytes, 1000 + 3 * KIB);
    assert_eq!(metrics.peak_allocated_bytes, 4 * KIB);
    assert_eq!(metrics.peak_reserved_bytes, 4 * KIB);
    assert_eq!(outcome.peak_event, 1);
    // Two growths, one give-back of the 3 KiB block, one more growth.
    assert_eq!(metrics.driver_calls, 4);
    assert!((metrics.driver_time_us - 4.0 * CALL_US).abs() < 1e-9);
    assert_eq!((metrics.events, metrics.operations), (7, 6));
    // Three of four requests grow, the third in order reuses: half of them cost one call or less.
    let calls = metrics.per_malloc.driver_calls;
    assert_eq!((calls.p50, calls.p99, calls.max), (1.0, 1.0, 1.0));
    assert_eq!(metrics.per_malloc.driver_time_us.max, CALL_US);
    assert_eq!(metrics.cpu_ns_per_operation, None);
    assert!(metrics.events_per_s > 0.0);
}

#[test]
fn a_refused_block_is_left_out_with_its_later_events() {
    let trace = Builder::default()
        .allocate(0, 8 * KIB)
        .allocate(1, 64 * KIB)
        .push(Kind::RecordStream, 1, 64 * KIB, 2)
        .free(1, 64 * KIB)
        .allocate(1, KIB)
        .free(1, KIB)
        .0;
    let mut allocator = Reference::new(16 * KIB);
    let outcome = run(&trace, &mut allocator, &untimed());
    assert_eq!(outcome.metrics.out_of_memory_events, 1);
    assert_eq!(outcome.metrics.peak_requested_bytes, 9 * KIB);
    let (index, refusal) = outcome.first_refusal.expect("one refusal");
    assert_eq!((index, refusal.to_string().as_str()), (1, "no room for 65536 bytes"));
    let expected =
        ["allocate 8192 on 0 in 0", "refuse 65536", "allocate 1024 on 0 in 0", "free 1024"];
    assert_eq!(allocator.log, expected);
    assert!(!completes(&trace, &mut Reference::new(16 * KIB)));
    assert!(completes(&trace, &mut Reference::new(128 * KIB)));
}

#[test]
fn streams_records_and_time_reach_the_allocator() {
    let trace = Builder::default()
        .push(Kind::Allocate, 0, KIB, 3)
        .push(Kind::RecordStream, 0, KIB, 1)
        .push(Kind::OutOfMemory, 0, 1 << 40, 0)
        .push(Kind::Free, 0, KIB, 3)
        .0;
    let mut allocator = Reference::new(1 << 20);
    run(&trace, &mut allocator, &untimed());
    assert_eq!(allocator.log, ["allocate 1024 on 3 in 0", "record 1", "free 1024"]);
    assert_eq!(allocator.now_ns, 3000);
}

#[test]
fn captures_and_waits_reach_the_allocator() {
    let in_pool = |mut builder: Builder| {
        let event = builder.0.events.last_mut().unwrap();
        event.pool = 1;
        builder.0.pools = 2;
        builder
    };
    let mut trace = in_pool(Builder::default().push(Kind::CaptureBegin, 0, 0, 2));
    trace = in_pool(trace.push(Kind::Allocate, 0, KIB, 2));
    // Another stream asks the capture's pool, a third uses what it gave; a fourth does neither.
    trace = in_pool(trace.push(Kind::Allocate, 1, KIB, 1)).push(Kind::Allocate, 2, KIB, 4);
    trace = in_pool(trace.push(Kind::RecordStream, 1, KIB, 3));
    trace = in_pool(trace.push(Kind::Allocate, 3, KIB, 1));
    trace = in_pool(trace.push(Kind::CaptureEnd, 0, 0, 2)).push(Kind::HostWait, 0, 0, 0);
    let trace = in_pool(trace.push(Kind::CaptureBegin, 0, 0, 3)).0;
    let mut allocator = Reference::new(1 << 20);
    run(&trace, &mut allocator, &Options { timed_passes: 1, ..Options::default() });
    let first = [
        "capture 2 into 1",
        "allocate 1024 on 2 in 1",
        "join 1 to 2",
        "allocate 1024 on 1 in 1",
        "allocate 1024 on 4 in 0",
        "join 3 to 2",
        "record 3",
        "allocate 1024 on 1 in 1",
        "end 2 into 1",
        "wait",
        "capture 3 into 1",
        // It is over before the trace is replayed once more.
        "end 3 into 1",
    ];
    assert_eq!(allocator.log[..first.len()], first);
}

#[test]
fn recorded_gaps_keep_the_recorded_streams_busy() {
    let mut trace = Builder::default()
        .allocate(0, 64 * KIB)
        .push(Kind::RecordStream, 0, 64 * KIB, 2)
        .free(0, 64 * KIB)
        .allocate(0, KIB)
        .push(Kind::RecordStream, 0, KIB, 1)
        .push(Kind::RecordStream, 0, KIB, 2)
        .free(0, KIB)
        .0;
    // The first block is refused: its completion must not hold up the second's.
    let completion = |event, time_ns| Completion { event, time_ns };
    trace.completions = vec![completion(2, 5000), completion(6, 9000)];
    let mut allocator = Reference::new(16 * KIB);
    run(&trace, &mut allocator, &untimed());
    let busy: Vec<_> = allocator.log.iter().filter(|line| line.starts_with("busy")).collect();
    assert_eq!(busy, ["busy 2 until 9000", "busy 1 until 9000"]);
    assert_eq!(allocator.log.last().map(String::as_str), Some("free 1024"));
}

#[test]
fn the_steady_window_follows_the_iterations() {
    let mut builder = Builder::default();
    // Eight iterations; each takes one new size, the last three none.
    for iteration in 0..8u64 {
        let bytes = (iteration.min(4) + 1) * KIB;
        builder = builder.allocate(0, bytes).free(0, bytes).iteration();
    }
    let metrics = run(&builder.0, &mut Reference::new(1 << 30), &untimed()).metrics;
    assert_eq!(metrics.driver_calls_per_iteration, [1, 1, 1, 1, 1, 0, 0, 0]);
    assert_eq!((metrics.driver_calls, metrics.steady_driver_calls), (5, 0));
    assert!(metrics.steady_driver_time_us.abs() < 1e-9);
}

#[test]
fn without_iterations_the_last_quarter_of_operations_is_steady() {
    let mut builder = Builder::default();
    for index in 0..16u32 {
        builder = builder.allocate(index, u64::from(index + 1) * KIB);
    }
    let metrics = run(&builder.0, &mut Reference::new(1 << 30), &untimed()).metrics;
    assert_eq!((metrics.driver_calls, metrics.steady_driver_calls), (16, 4));
}

#[test]
fn timed_passes_start_from_an_empty_allocator_and_time_moves_on() {
    let trace = Builder::default().allocate(0, KIB).allocate(1, KIB).free(0, KIB).iteration().0;
    let mut allocator = Reference::new(1 << 20);
    let options = Options { timed_passes: 2, ..Options::default() };
    let metrics = run(&trace, &mut allocator, &options).metrics;
    assert!(metrics.cpu_ns_per_operation.is_some_and(|ns| ns > 0.0));
    let allocations = allocator.log.iter().filter(|l| l.starts_with("allocate")).count();
    assert_eq!(allocations, 6);
    assert_eq!(allocator.live_blocks(), 1);
    // The later passes found the first one's blocks: memory figures are the first pass's.
    assert_eq!((metrics.driver_calls, metrics.peak_reserved_bytes), (2, 2 * KIB));
}

#[test]
fn a_broken_trace_is_passed_over_without_a_panic() {
    let mut trace = Builder::default().free(0, 5).allocate(0, KIB).free(0, KIB).free(0, KIB).0;
    trace.events.push(Event {
        time_ns: u64::MAX,
        bytes: u64::MAX,
        block: u32::MAX,
        stream: 9,
        pool: 9,
        kind: Kind::Allocate,
    });
    let mut allocator = Reference::new(1 << 20);
    let outcome = run(&trace, &mut allocator, &Options::default());
    assert_eq!(outcome.metrics.peak_requested_bytes, KIB);
    let outcome = run(&Trace::default(), &mut Reference::new(0), &Options::default());
    assert_eq!(outcome.metrics.reserved_per_requested(), None);
    let layout = layout_at(&trace, &mut Reference::new(1 << 20), 1).expect("a layout");
    assert_eq!(layout.segments.len(), 1);
    assert_eq!(layout.segments[0].blocks[0].state, BlockState::Live);
}

#[test]
fn parts_of_a_trace_without_iterations_add_up() {
    let mut builder = Builder::default();
    for block in 0..50 {
        builder = builder.allocate(block, KIB);
    }
    let metrics = run(&builder.0, &mut Reference::new(1 << 30), &untimed()).metrics;
    let parts = metrics.convergence;
    assert!(!parts.is_by_iteration);
    assert_eq!(parts.driver_calls.len(), 16);
    assert_eq!(parts.driver_calls.iter().sum::<u64>(), metrics.driver_calls);
    // A growth for each allocation: the parts differ by one event at most.
    assert!(parts.driver_calls.iter().all(|calls| (3..=4).contains(calls)), "{parts:?}");
    assert_eq!(parts.granule_remaps, [0; 16]);
    let metrics = run(&Trace::default(), &mut Reference::new(1 << 30), &untimed()).metrics;
    assert_eq!(metrics.convergence.driver_calls, [0]);
}
