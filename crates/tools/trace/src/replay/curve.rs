//! Memory over time in bounded space.
//!
//! Invariant: events are cut into equal runs, one point each, and a point keeps the run's extremes,
//! so no peak is lost however long the trace is.

use super::replayed::Usage;

/// Extremes of one run of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CurvePoint {
    /// Nanoseconds since the first event, where the run begins.
    pub time_ns: u64,
    /// Highest requested bytes in the run.
    pub requested_bytes: u64,
    /// Lowest requested bytes in the run.
    pub requested_low_bytes: u64,
    /// Highest allocated bytes in the run.
    pub allocated_bytes: u64,
    /// Highest reserved bytes in the run.
    pub reserved_bytes: u64,
}

/// Memory over time: at most as many points as were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// How many events a point covers.
    pub events_per_point: u64,
    /// The points, in order.
    pub points: Vec<CurvePoint>,
}

/// Builds a [`Curve`]: one compare per sample on the way, one push per run.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    curve: Curve,
    /// Index of the first event after the current run.
    run_end: usize,
    point: CurvePoint,
    requested_bytes: u64,
    usage: Usage,
}

impl Recorder {
    /// For a trace of `events` events and at most `points` points.
    pub(super) fn new(events: usize, points: usize) -> Self {
        let per_point = events.div_ceil(points.max(1)).max(1);
        let curve = Curve {
            events_per_point: per_point as u64,
            points: Vec::with_capacity(events.div_ceil(per_point)),
        };
        Self { curve, run_end: per_point, ..Self::default() }
    }

    /// Enters event `index` at `time_ns`; must be called for every event that is sampled, in order.
    #[inline]
    pub(super) fn enter(&mut self, index: usize, time_ns: u64) {
        if index >= self.run_end {
            self.next_run(index, time_ns);
        }
    }

    /// After an event that may have changed everything.
    #[inline]
    pub(super) fn sample(&mut self, requested_bytes: u64, usage: Usage) {
        self.requested_bytes = requested_bytes;
        self.usage = usage;
        let point = &mut self.point;
        point.requested_bytes = point.requested_bytes.max(requested_bytes);
        point.allocated_bytes = point.allocated_bytes.max(usage.allocated_bytes);
        point.reserved_bytes = point.reserved_bytes.max(usage.reserved_bytes);
    }

    /// After a free: only the requested bytes have fallen.
    #[inline]
    pub(super) fn fell_to(&mut self, requested_bytes: u64) {
        self.requested_bytes = requested_bytes;
        self.point.requested_low_bytes = self.point.requested_low_bytes.min(requested_bytes);
    }

    #[cold]
    fn next_run(&mut self, index: usize, time_ns: u64) {
        let per_point = self.curve.events_per_point as usize;
        while index >= self.run_end {
            self.curve.points.push(self.point);
            self.run_end += per_point;
            self.point = CurvePoint {
                time_ns,
                requested_bytes: self.requested_bytes,
                requested_low_bytes: self.requested_bytes,
                allocated_bytes: self.usage.allocated_bytes,
                reserved_bytes: self.usage.reserved_bytes,
            };
        }
    }

    /// Closes the last run.
    pub(super) fn finish(mut self) -> Curve {
        self.curve.points.push(self.point);
        self.curve
    }
}

#[cfg(test)]
mod tests {
    use super::{Recorder, Usage};

    fn usage(bytes: u64) -> Usage {
        Usage { allocated_bytes: bytes, reserved_bytes: 2 * bytes }
    }

    #[test]
    fn keeps_every_peak_and_stays_bounded() {
        let mut recorder = Recorder::new(100_000, 64);
        for index in 0..100_000usize {
            recorder.enter(index, index as u64 * 10);
            let bytes = if index == 77_777 { 1_000_000 } else { (index % 7) as u64 };
            recorder.sample(bytes, usage(bytes));
        }
        let curve = recorder.finish();
        assert!(curve.points.len() <= 64, "{}", curve.points.len());
        assert_eq!(curve.points.iter().map(|p| p.requested_bytes).max(), Some(1_000_000));
        assert_eq!(curve.points.iter().map(|p| p.reserved_bytes).max(), Some(2_000_000));
        assert!(curve.points.is_sorted_by_key(|p| p.time_ns));
    }

    #[test]
    fn a_quiet_run_repeats_the_last_value_and_keeps_lows() {
        let mut recorder = Recorder::new(8, 4);
        recorder.enter(0, 0);
        recorder.sample(100, usage(128));
        recorder.enter(6, 60);
        recorder.fell_to(40);
        let curve = recorder.finish();
        let requested: Vec<_> =
            curve.points.iter().map(|p| (p.requested_low_bytes, p.requested_bytes)).collect();
        assert_eq!(requested, [(0, 100), (100, 100), (100, 100), (40, 100)]);
        assert!(curve.points.iter().all(|p| p.reserved_bytes == 256));
    }

    #[test]
    fn an_empty_trace_has_one_point_at_zero() {
        let curve = Recorder::new(0, 16).finish();
        assert_eq!(curve.points.len(), 1);
        assert_eq!(curve.points[0].reserved_bytes, 0);
    }
}
