//! A measured run: peaks, memory curve, driver cost, processor time.
//!
//! Invariant: figures of memory and of the driver come from the first pass alone, over the fresh
//! allocator; processor time comes from further passes with nothing looking on, over the same
//! allocator, as a program that repeats itself would find it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::clock;
use super::curve::{Curve, Recorder};
use super::engine::{Addresses, Probe, Silent, pass};
use super::replayed::{Refusal, Replayed};
use crate::metrics::{Convergence, DriverCost, Metrics, PerMalloc, Remaps, Window, differences};
use crate::model::{Event, Kind, Trace};

/// Time between two passes on the trace's clock, long enough for every fence to pass.
const PAUSE_NS: u64 = 1_000_000_000;
/// Equal parts of a trace that marks no iterations.
const PARTS: usize = 16;
/// Timed passes end early once they have taken this long together.
const TIMED_BUDGET: Duration = Duration::from_millis(500);

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Points of the memory curve, at most.
    pub curve_points: usize,
    /// Timed passes at most; the fastest counts. 0 leaves processor time out.
    pub timed_passes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { curve_points: 2048, timed_passes: 5 }
    }
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures.
    pub metrics: Metrics,
    /// Memory over time.
    pub curve: Curve,
    /// Index of the event at which reserved memory first reached its peak.
    pub peak_event: usize,
    /// The first refusal: index of its event, and the allocator's message.
    pub first_refusal: Option<(usize, Refusal)>,
}

/// Watches the first pass.
#[derive(Default)]
struct Measure {
    recorder: Recorder,
    requested_bytes: u64,
    peak_requested_bytes: u64,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    peak_event: usize,
    out_of_memory: u64,
    first_refusal: Option<(usize, Refusal)>,
    /// What there was before the request in hand, and what each request has cost.
    before: DriverCost,
    requests: Vec<DriverCost>,
    /// What there was at every iteration end.
    iterations: Vec<(DriverCost, Remaps)>,
}

impl Measure {
    fn new(trace: &Trace, options: &Options) -> Self {
        let count = |kind| trace.events.iter().filter(|e| e.kind == kind).count();
        Self {
            recorder: Recorder::new(trace.events.len(), options.curve_points),
            requests: Vec::with_capacity(count(Kind::Allocate)),
            iterations: Vec::with_capacity(count(Kind::Iteration)),
            ..Self::default()
        }
    }
}

impl<R: Replayed + ?Sized> Probe<R> for Measure {
    fn asked(&mut self, allocator: &R) {
        self.before = allocator.driver_cost();
    }

    fn answered(&mut self, allocator: &R) {
        self.requests.push(allocator.driver_cost().since(self.before));
    }

    #[inline]
    fn allocated(&mut self, index: usize, event: &Event, _: u64, allocator: &R) {
        self.requested_bytes = self.requested_bytes.saturating_add(event.bytes);
        let usage = allocator.usage();
        self.peak_requested_bytes = self.peak_requested_bytes.max(self.requested_bytes);
        self.peak_allocated_bytes = self.peak_allocated_bytes.max(usage.allocated_bytes);
        if usage.reserved_bytes > self.peak_reserved_bytes {
            self.peak_reserved_bytes = usage.reserved_bytes;
            self.peak_event = index;
        }
        self.recorder.enter(index, event.time_ns);
        self.recorder.sample(self.requested_bytes, usage);
    }

    fn refused(&mut self, index: usize, _: &Event, refusal: Refusal) -> ControlFlow<()> {
        self.out_of_memory += 1;
        self.first_refusal.get_or_insert((index, refusal));
        ControlFlow::Continue(())
    }

    #[inline]
    fn freed(&mut self, index: usize, event: &Event, _: u64, _: &R) {
        self.requested_bytes = self.requested_bytes.saturating_sub(event.bytes);
        self.recorder.enter(index, event.time_ns);
        self.recorder.fell_to(self.requested_bytes);
    }

    fn passed(&mut self, index: usize, event: &Event, allocator: &R) {
        match event.kind {
            Kind::Iteration => {
                self.iterations.push((allocator.driver_cost(), allocator.remaps()));
            }
            Kind::EmptyCache => {
                self.recorder.enter(index, event.time_ns);
                self.recorder.sample(self.requested_bytes, allocator.usage());
            }
            _ => {}
        }
    }
}

/// Replays a trace over a fresh allocator and measures it. Refused blocks are left out, with all
/// their later events, and counted; the replay goes on.
pub fn run<R: Replayed + ?Sized>(trace: &Trace, allocator: &mut R, options: &Options) -> Outcome {
    let window = Window::of(trace);
    let mut addresses = Addresses::new(trace);
    let mut measure = Measure::new(trace, options);
    let events = trace.events.len();
    let started = Instant::now();
    let (mut at_split, mut parts, mut at) = (DriverCost::default(), Vec::new(), 0);
    for stop in stops(events, window.split) {
        // The probe never breaks off, so the outcome of a pass says nothing.
        let _ = pass(trace, at..stop, 0, &mut addresses, allocator, &mut measure);
        at = stop;
        if stop == window.split {
            at_split = allocator.driver_cost();
        }
        if is_part_end(events, stop) {
            parts.push((allocator.driver_cost(), allocator.remaps()));
        }
    }
    let wall = started.elapsed();
    let (total, remaps) = (allocator.driver_cost(), allocator.remaps());
    let device_time = allocator.device_time();

    let best_ns = time(trace, &mut addresses, allocator, options);
    let ends: Vec<DriverCost> = measure.iterations.iter().map(|end| end.0).collect();
    let steady = window.cost(&ends, at_split, total);
    let is_by_iteration = window.iterations.is_some();
    let parts = if is_by_iteration { &measure.iterations } else { &parts };
    let metrics = Metrics {
        events: events as u64,
        operations: window.operations,
        peak_requested_bytes: measure.peak_requested_bytes,
        peak_allocated_bytes: measure.peak_allocated_bytes,
        peak_reserved_bytes: measure.peak_reserved_bytes,
        driver_calls: total.calls,
        driver_time_us: total.time_us,
        steady_driver_calls: steady.calls,
        steady_driver_time_us: steady.time_us,
        per_malloc: PerMalloc::of(&measure.requests),
        driver_calls_per_iteration: differences(ends.iter().map(|end| end.calls)),
        device_time,
        remaps,
        convergence: Convergence::from_totals(is_by_iteration, parts),
        out_of_memory_events: measure.out_of_memory,
        cpu_ns_per_operation: best_ns
            .filter(|_| window.operations > 0)
            .map(|ns| ns as f64 / window.operations as f64),
        events_per_s: events as f64 / wall.as_secs_f64().max(1e-9),
    };
    Outcome {
        metrics,
        curve: measure.recorder.finish(),
        peak_event: measure.peak_event,
        first_refusal: measure.first_refusal,
    }
}

/// Where a pass pauses: at the ends of the parts and at the split, in order.
fn stops(events: usize, split: usize) -> Vec<usize> {
    let mut stops: Vec<usize> = (1..=PARTS).map(|part| part * events / PARTS).collect();
    stops.push(split);
    stops.sort_unstable();
    stops.dedup();
    stops
}

/// Whether a part of the trace ends before an event, with the one part of an empty trace.
fn is_part_end(events: usize, stop: usize) -> bool {
    (1..=PARTS).any(|part| part * events / PARTS == stop)
}

/// Replays again and again with nothing looking on, and returns the processor time of the fastest
/// pass in nanoseconds.
fn time<R: Replayed + ?Sized>(
    trace: &Trace,
    addresses: &mut Addresses,
    allocator: &mut R,
    options: &Options,
) -> Option<u64> {
    let last_ns = trace.events.last().map_or(0, |event| event.time_ns);
    let length_ns = last_ns.saturating_add(PAUSE_NS);
    let started = Instant::now();
    let mut best_ns: Option<u64> = None;
    for number in 1..=u64::from(options.timed_passes) {
        addresses.free_all(allocator);
        let base_ns = length_ns.saturating_mul(number);
        let before = clock::thread_cpu_ns();
        let _ = pass(trace, 0..trace.events.len(), base_ns, addresses, allocator, &mut Silent);
        let spent = clock::thread_cpu_ns() - before;
        best_ns = Some(best_ns.map_or(spent, |best| best.min(spent)));
        if started.elapsed() > TIMED_BUDGET {
            break;
        }
    }
    best_ns
}

#[cfg(test)]
mod tests;
