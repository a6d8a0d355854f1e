//! Counters: statistics in the form that costs a hit least. [`Counters::read`] tells them.
//!
//! Of what is in use, each quantity is kept as its peak and the distance from there: an addition
//! below the peak then changes one number. A total is kept by class alone, and once for what is
//! live and what is active, which begin together. Invariant: no distance is larger than its peak,
//! and what is told is what a gauge of each would say (I8).

use crate::stats::{Gauge, SizeClassStats, Stats};

/// How much there is, and the most that there ever was, or since the peaks were reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HighWater {
    peak: u64,
    /// How far it is below its peak.
    below: u64,
}

impl HighWater {
    /// There is more than ever before: what it is below its peak wrapped.
    #[cold]
    #[inline(never)]
    const fn rise(&mut self) {
        self.peak += self.below.wrapping_neg();
        self.below = 0;
    }
}

/// The same, with the sum of all that was ever added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    mark: HighWater,
    total: u64,
}

/// What goes up and down.
pub(crate) trait Count {
    fn add(&mut self, amount: u64);
    fn mark(&self) -> &HighWater;
    fn mark_mut(&mut self) -> &mut HighWater;

    #[inline]
    fn take(&mut self, amount: u64) {
        let mark = self.mark_mut();
        mark.below += amount;
        debug_assert!(mark.below <= mark.peak);
    }

    fn current(&self) -> u64 {
        let HighWater { peak, below } = *self.mark();
        // What is further below than can be is found by who checks, as above its peak.
        peak.wrapping_sub(below)
    }

    fn reset_peak(&mut self) {
        *self.mark_mut() = HighWater { peak: self.current(), below: 0 };
    }

    fn gauge(&self, total: u64) -> Gauge {
        Gauge { current: self.current(), peak: self.mark().peak, total }
    }
}

impl Count for HighWater {
    #[inline]
    fn add(&mut self, amount: u64) {
        // Two instructions below the peak: a subtraction in place, and a branch by its borrow.
        let is_above;
        (self.below, is_above) = self.below.overflowing_sub(amount);
        if is_above {
            self.rise();
        }
    }

    fn mark(&self) -> &HighWater {
        self
    }

    #[inline]
    fn mark_mut(&mut self) -> &mut HighWater {
        self
    }
}

impl Count for Meter {
    #[inline]
    fn add(&mut self, amount: u64) {
        self.total += amount;
        self.mark.add(amount);
    }

    fn mark(&self) -> &HighWater {
        &self.mark
    }

    #[inline]
    fn mark_mut(&mut self) -> &mut HighWater {
        &mut self.mark
    }
}

impl Meter {
    pub(crate) fn read(&self) -> Gauge {
        self.gauge(self.total)
    }
}

/// What is counted of one class, or of both together: [`SizeClassStats`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassCounters<T> {
    pub(crate) requested_bytes: T,
    pub(crate) allocated_bytes: HighWater,
    pub(crate) active_bytes: T,
    pub(crate) reserved_bytes: Gauge,
    pub(crate) allocations: HighWater,
    pub(crate) active_blocks: T,
    pub(crate) segments: Gauge,
}

impl<T: Count> ClassCounters<T> {
    #[inline]
    fn allocate(&mut self, requested: u64, bytes: u64) {
        self.requested_bytes.add(requested);
        self.allocated_bytes.add(bytes);
        self.active_bytes.add(bytes);
        self.allocations.add(1);
        self.active_blocks.add(1);
    }

    #[inline]
    fn free(&mut self, bytes: u64) {
        self.allocated_bytes.take(bytes);
        self.allocations.take(1);
    }

    #[inline]
    fn complete(&mut self, requested: u64, bytes: u64) {
        self.requested_bytes.take(requested);
        self.active_bytes.take(bytes);
        self.active_blocks.take(1);
    }

    fn reset_peaks(&mut self) {
        for count in [&mut self.requested_bytes, &mut self.active_bytes, &mut self.active_blocks] {
            count.reset_peak();
        }
        self.allocated_bytes.reset_peak();
        self.allocations.reset_peak();
        self.reserved_bytes.reset_peak();
        self.segments.reset_peak();
    }

    /// What they say, with the totals of requested bytes, of bytes and of blocks.
    fn read(&self, [requested, bytes, blocks]: [u64; 3]) -> SizeClassStats {
        SizeClassStats {
            requested_bytes: self.requested_bytes.gauge(requested),
            allocated_bytes: self.allocated_bytes.gauge(bytes),
            active_bytes: self.active_bytes.gauge(bytes),
            reserved_bytes: self.reserved_bytes,
            allocations: self.allocations.gauge(blocks),
            active_blocks: self.active_blocks.gauge(blocks),
            segments: self.segments,
        }
    }
}

impl ClassCounters<Meter> {
    const fn totals(&self) -> [u64; 3] {
        [self.requested_bytes.total, self.active_bytes.total, self.active_blocks.total]
    }
}

/// What is counted of a state machine: [`Stats`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) all: ClassCounters<HighWater>,
    pub(crate) classes: [ClassCounters<Meter>; 2],
    /// What is told as it is counted: all but the two above, and what the page table counts.
    pub(crate) rare: Stats,
}

impl Counters {
    #[inline]
    pub(crate) fn allocate(&mut self, class: usize, requested: u64, bytes: u64) {
        self.all.allocate(requested, bytes);
        self.classes[class].allocate(requested, bytes);
    }

    /// The program gave the block back.
    #[inline]
    pub(crate) fn free(&mut self, class: usize, bytes: u64) {
        self.all.free(bytes);
        self.classes[class].free(bytes);
    }

    /// No stream uses the block any more.
    #[inline]
    pub(crate) fn complete(&mut self, class: usize, requested: u64, bytes: u64) {
        self.all.complete(requested, bytes);
        self.classes[class].complete(requested, bytes);
    }

    /// Two live blocks became one.
    pub(crate) fn join(&mut self, class: usize) {
        self.free(class, 0);
        self.complete(class, 0, 0);
    }

    /// One live block became two.
    pub(crate) fn cut(&mut self, class: usize) {
        self.allocate(class, 0, 0);
    }

    /// How many blocks were ever given, and how many bytes ever went back to the device.
    pub(crate) const fn turnover(&self) -> (u64, u64) {
        let [small, large] = &self.classes;
        let reserved = &self.all.reserved_bytes;
        let given = small.active_blocks.total + large.active_blocks.total;
        (given, reserved.total - reserved.current)
    }

    /// Sets every peak to its current value.
    pub(crate) fn reset_peaks(&mut self) {
        self.all.reset_peaks();
        self.classes.iter_mut().for_each(ClassCounters::reset_peaks);
    }

    /// What they say.
    #[cold]
    #[inline(never)]
    pub(crate) fn read(&self) -> Stats {
        let totals = self.classes.map(|class| class.totals());
        let [small, large] = totals;
        Stats {
            all: self.all.read(std::array::from_fn(|at| small[at] + large[at])),
            classes: std::array::from_fn(|class| self.classes[class].read(totals[class])),
            ..self.rare
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up, below the peak, over it, and after a reset: as a gauge says.
    #[test]
    fn a_meter_says_what_a_gauge_says() {
        let (mut meter, mut gauge) = (Meter::default(), Gauge::default());
        for (add, take) in [(5, 3), (2, 4), (9, 0), (0, 9), (9, 1), (1, 1), (7, 7)] {
            meter.add(add);
            gauge.add(add);
            assert_eq!(meter.read(), gauge);
            meter.take(take);
            gauge.take(take);
            assert_eq!(meter.read(), gauge);
            if take == 4 {
                meter.reset_peak();
                gauge.reset_peak();
            }
        }
    }

    #[test]
    fn totals_of_all_are_those_of_both_classes() {
        let mut counters = Counters::default();
        counters.allocate(0, 100, 512);
        counters.allocate(1, 1000, 1024);
        counters.free(0, 512);
        counters.complete(0, 100, 512);
        counters.allocate(0, 1, 512);
        let Stats { all, classes: [small, large], .. } = counters.read();
        assert_eq!((all.requested_bytes.total, all.requested_bytes.peak), (1101, 1100));
        assert_eq!(all.allocated_bytes, all.active_bytes);
        let bytes = Gauge { current: 1536, peak: 1536, total: 2048 };
        assert_eq!((all.active_bytes, all.allocations.total), (bytes, 3));
        assert_eq!((small.active_blocks.peak, small.active_blocks.total), (1, 2));
        assert_eq!((large.active_bytes.total, large.requested_bytes.current), (1024, 1000));
    }
}
