//! Figures of a run, and of a trace by itself.
//!
//! Lives here: what is counted and how it is defined. [`Summary`] describes a trace before anything
//! replays it; [`Metrics`] is what one allocator made of it. Memory figures are exact peaks over
//! every event, not samples.

mod cost;
mod holders;
mod summary;

pub use cost::{DeviceTime, DriverCost, PerMalloc, Percentiles, Remaps};
pub use holders::{Holder, holders};
pub use summary::{Lifetimes, Share, SizeClass, Summary, live_at};

use crate::model::{Kind, Trace};

/// What one allocator made of one trace.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Metrics {
    /// Events of the trace, markers included.
    pub events: u64,
    /// Allocations, frees and stream records among them.
    pub operations: u64,
    /// Peak of the requested bytes of served, live blocks; no rounding.
    pub peak_requested_bytes: u64,
    /// Peak of what live blocks occupy.
    pub peak_allocated_bytes: u64,
    /// Peak of the physical memory held from the driver.
    pub peak_reserved_bytes: u64,
    /// Driver calls; queries of device and capture not counted.
    pub driver_calls: u64,
    /// The same, priced by the simulated device, in microseconds.
    pub driver_time_us: f64,
    /// Driver calls in the steady window: see [`Window`].
    pub steady_driver_calls: u64,
    /// The same, priced, in microseconds.
    pub steady_driver_time_us: f64,
    /// What single requests have cost.
    pub per_malloc: PerMalloc,
    /// Driver calls of each iteration.
    pub driver_calls_per_iteration: Vec<u64>,
    /// How the program fared; absent where none was modelled.
    pub device_time: Option<DeviceTime>,
    /// What was remapped in all, and is away from home at the end.
    #[serde(flatten)]
    pub remaps: Remaps,
    /// Whether the allocator settles down.
    pub convergence: Convergence,
    /// Requests the allocator refused; the replay went on without them.
    pub out_of_memory_events: u64,
    /// Processor time per operation in a warm pass, the simulated driver included; absent when
    /// timing was not asked for.
    pub cpu_ns_per_operation: Option<f64>,
    /// Events per second of wall time in the measured pass.
    pub events_per_s: f64,
}

impl Metrics {
    /// Peak reserved over peak requested: 1 is perfect. Absent when nothing was requested.
    pub fn reserved_per_requested(&self) -> Option<f64> {
        (self.peak_requested_bytes > 0)
            .then(|| self.peak_reserved_bytes as f64 / self.peak_requested_bytes as f64)
    }
}

/// What each part of a trace has cost, in order: of each iteration, or of each sixteenth of the
/// events where there are fewer than four iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Convergence {
    /// Whether the parts are iterations.
    pub is_by_iteration: bool,
    /// Driver calls in each part.
    pub driver_calls: Vec<u64>,
    /// Granules remapped in each part. In JSON `harvested_granules`.
    #[serde(rename = "harvested_granules")]
    pub granule_remaps: Vec<u64>,
}

impl Convergence {
    /// From the totals at the ends of the parts.
    pub fn from_totals(is_by_iteration: bool, ends: &[(DriverCost, Remaps)]) -> Self {
        Self {
            is_by_iteration,
            driver_calls: differences(ends.iter().map(|(cost, _)| cost.calls)),
            granule_remaps: differences(ends.iter().map(|end| end.1.granule_remaps)),
        }
    }

    /// Up to `most` neighbouring groups of parts, of sizes that differ by one at most: a range of
    /// parts each, with its driver calls and its granules.
    pub fn groups(&self, most: usize) -> Vec<(std::ops::Range<usize>, u64, u64)> {
        let parts = self.driver_calls.len();
        let groups = parts.min(most);
        let edge = |group: usize| group * parts / groups.max(1);
        let sum = |of: &[u64], range: std::ops::Range<usize>| of[range].iter().sum();
        (0..groups)
            .map(|group| {
                let range = edge(group)..edge(group + 1);
                let calls = sum(&self.driver_calls, range.clone());
                (range.clone(), calls, sum(&self.granule_remaps, range))
            })
            .collect()
    }
}

/// Running totals as what was added by each.
pub(crate) fn differences(totals: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut before = 0;
    totals.map(|total| total - std::mem::replace(&mut before, total)).collect()
}

/// The steady window of a trace: the last quarter of its iterations, or of its operations where it
/// has fewer than four iterations. What a program costs once it has warmed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Allocations, frees and stream records in the whole trace.
    pub operations: u64,
    /// First event of the last quarter of the operations; the number of events where iterations
    /// decide instead.
    pub split: usize,
    /// The iterations at whose ends the window begins and ends, where there are four or more.
    pub iterations: Option<(usize, usize)>,
}

impl Window {
    /// The window of a trace.
    pub fn of(trace: &Trace) -> Self {
        let (mut operations, mut steps, mut marks) = (0u64, 0usize, 0usize);
        for event in &trace.events {
            match event.kind {
                Kind::Allocate | Kind::Free | Kind::RecordStream => {
                    operations += 1;
                    steps += 1;
                }
                Kind::EmptyCache => steps += 1,
                Kind::Iteration => marks += 1,
                Kind::OutOfMemory | Kind::HostWait | Kind::CaptureBegin | Kind::CaptureEnd => {}
            }
        }
        if marks >= 4 {
            let iterations = Some((marks - 1 - marks / 4, marks - 1));
            return Self { operations, split: trace.events.len(), iterations };
        }
        Self { operations, split: nth_step(trace, steps - steps / 4), iterations: None }
    }

    /// The cost within the window, from running totals at iteration ends, at the split and at the
    /// end.
    pub fn cost(&self, ends: &[DriverCost], at_split: DriverCost, total: DriverCost) -> DriverCost {
        let from_to = self.iterations.and_then(|(from, to)| Some((ends.get(from)?, ends.get(to)?)));
        let (from, to) = from_to.map_or((at_split, total), |(from, to)| (*from, *to));
        to.since(from)
    }
}

/// Index of the event that follows the first `count` steps (events the allocator is asked
/// something by).
fn nth_step(trace: &Trace, count: usize) -> usize {
    let is_step =
        |kind| matches!(kind, Kind::Allocate | Kind::Free | Kind::RecordStream | Kind::EmptyCache);
    let mut steps = trace.events.iter().enumerate().filter(|(_, event)| is_step(event.kind));
    steps.nth(count).map_or(trace.events.len(), |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::{Convergence, DriverCost, Remaps, Window};
    use crate::model::{Event, Kind, Trace};

    fn event(kind: Kind, block: u32) -> Event {
        Event { time_ns: 0, bytes: 512, block, stream: 0, pool: 0, kind }
    }

    fn trace(iterations: usize, pairs: usize) -> Trace {
        let mut events = Vec::new();
        for _ in 0..iterations.max(1) {
            for _ in 0..pairs {
                events.extend([event(Kind::Allocate, 0), event(Kind::Free, 0)]);
            }
            if iterations > 0 {
                events.push(event(Kind::Iteration, 0));
            }
        }
        Trace { name: "t".into(), events, blocks: 1, streams: 1, pools: 1, ..Trace::default() }
    }

    fn cost(calls: u64) -> DriverCost {
        DriverCost { calls, time_us: calls as f64 }
    }

    #[test]
    fn parts_are_what_was_added_and_groups_are_even() {
        let remaps = |granules| Remaps { granule_remaps: granules, ..Remaps::default() };
        let ends: Vec<_> =
            [(9, 0), (9, 4), (12, 5), (13, 5), (13, 7)].map(|(c, g)| (cost(c), remaps(g))).into();
        let of = Convergence::from_totals(true, &ends);
        assert_eq!(of.driver_calls, [9, 0, 3, 1, 0]);
        assert_eq!(of.granule_remaps, [0, 4, 1, 0, 2]);
        assert_eq!(of.groups(2), [(0..2, 9, 4), (2..5, 4, 3)]);
        assert_eq!(of.groups(8).len(), 5);
        assert_eq!(Convergence::default().groups(8), []);
    }

    #[test]
    fn four_or_more_iterations_decide_the_window() {
        let window = Window::of(&trace(8, 2));
        assert_eq!(window.iterations, Some((5, 7)));
        let ends: Vec<_> = [10, 20, 30, 40, 50, 55, 58, 60].map(cost).into();
        assert_eq!(window.cost(&ends, cost(0), cost(70)), cost(5));
    }

    #[test]
    fn fewer_iterations_leave_it_to_the_operations() {
        let window = Window::of(&trace(0, 8));
        assert_eq!((window.operations, window.split, window.iterations), (16, 12, None));
        assert_eq!(window.cost(&[], cost(30), cost(32)), cost(2));
        // Markers are no operations: the split falls on the same one.
        let window = Window::of(&trace(2, 4));
        assert_eq!((window.operations, window.split), (16, 13));
    }

    #[test]
    fn an_empty_trace_has_an_empty_window() {
        let window = Window::of(&Trace::default());
        assert_eq!((window.operations, window.split), (0, 0));
    }
}
