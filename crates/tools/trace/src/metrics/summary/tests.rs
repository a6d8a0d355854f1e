//! A trace small enough to count by hand.

use super::{Summary, live_at, size_class};
use crate::model::{Event, Kind, Trace};

fn event(kind: Kind, block: u32, bytes: u64, stream: u16) -> Event {
    Event { time_ns: 7, bytes, block, stream, pool: 0, kind }
}

/// Two iterations; block 2 outlives the first, block 3 is never freed.
fn trace() -> Trace {
    let events = vec![
        event(Kind::Allocate, 0, 1000, 0),
        event(Kind::Allocate, 1, 2048, 1),
        event(Kind::Free, 0, 1000, 0),
        event(Kind::Allocate, 2, 1000, 0),
        event(Kind::Free, 1, 2048, 1),
        event(Kind::Iteration, 0, 0, 0),
        event(Kind::Free, 2, 1000, 0),
        event(Kind::Allocate, 3, 2049, 0),
        event(Kind::OutOfMemory, 0, 1 << 40, 0),
        event(Kind::Iteration, 0, 0, 0),
    ];
    Trace { name: "t".into(), events, blocks: 4, streams: 2, pools: 1, ..Trace::default() }
}

#[test]
fn counts_peaks_and_lifetimes() {
    let summary = Summary::of(&trace());
    assert_eq!((summary.allocations, summary.frees, summary.iterations), (4, 3, 2));
    assert_eq!((summary.peak_requested_bytes, summary.peak_event), (3048, 1));
    assert_eq!(summary.peak_blocks, 2);
    assert_eq!(summary.iteration_peak_bytes, [3048, 2049]);
    assert_eq!(summary.left_bytes, 2049);
    assert_eq!(summary.distinct_sizes, 3);
    assert_eq!(summary.out_of_memory_events, 1);
    assert_eq!(summary.lifetimes.never_freed, 1);
    assert_eq!(summary.lifetimes.within_iteration, 2);
    assert_eq!(summary.lifetimes.median_events, 3);
    assert_eq!(summary.streams[1].peak_bytes, 2048);
    assert_eq!(summary.streams[0].allocations, 3);
}

/// What a graph's pool had live stays taken once it is free, and that of no other pool.
#[test]
fn what_graphs_keep_is_needed_beside_what_is_live() {
    let of_pool = |kind, block, bytes, pool| Event { pool, ..event(kind, block, bytes, 1) };
    let mut trace = trace();
    trace.pools = 3;
    trace.events = vec![
        of_pool(Kind::Allocate, 0, 512, 2),
        of_pool(Kind::Free, 0, 512, 2),
        of_pool(Kind::CaptureBegin, 0, 0, 1),
        of_pool(Kind::Allocate, 1, 1000, 1),
        of_pool(Kind::Free, 1, 1000, 1),
        of_pool(Kind::Allocate, 1, 300, 1),
        of_pool(Kind::CaptureEnd, 0, 0, 1),
        of_pool(Kind::Allocate, 2, 900, 0),
        of_pool(Kind::Allocate, 3, 100, 2),
    ];
    let summary = Summary::of(&trace);
    assert_eq!((summary.peak_requested_bytes, summary.needed_bytes), (1300, 2000));
}

#[test]
fn classes_are_powers_of_two_rounded_up() {
    assert_eq!([1, 2, 3, 1024, 1025].map(size_class), [0, 1, 2, 10, 11]);
    assert_eq!(size_class(u64::MAX), 64);
    let sizes = Summary::of(&trace()).sizes;
    let shape: Vec<_> =
        sizes.iter().map(|c| (c.upper_bytes, c.allocations, c.peak_bytes)).collect();
    assert_eq!(shape, [(1024, 2, 1000), (2048, 1, 2048), (4096, 1, 0)]);
}

#[test]
fn live_blocks_are_named_by_their_allocation() {
    let live: Vec<_> = live_at(&trace(), 3).iter().map(|(at, _)| *at).collect();
    assert_eq!(live, [1, 3]);
}
