//! What single requests have cost in driver calls: the middle, the tail and the worst.

use super::cost::DriverCost;

/// The cost of one request, over all requests of a run, refused ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct PerMalloc {
    /// Driver calls.
    pub driver_calls: Percentiles,
    /// The same, priced by the simulated device, in microseconds.
    pub driver_time_us: Percentiles,
}

/// By nearest rank. All zero where there was nothing to rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Percentiles {
    /// Half of them are no higher.
    pub p50: f64,
    /// Ninety-nine hundredths are no higher.
    pub p99: f64,
    /// The highest.
    pub max: f64,
}

impl PerMalloc {
    /// From what each request has cost.
    pub fn of(requests: &[DriverCost]) -> Self {
        Self {
            driver_calls: Percentiles::of(requests.iter().map(|cost| cost.calls as f64).collect()),
            driver_time_us: Percentiles::of(requests.iter().map(|cost| cost.time_us).collect()),
        }
    }
}

impl Percentiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |hundredths: usize| {
            let rank = (values.len() * hundredths).div_ceil(100).max(1);
            values.get(rank - 1).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::{DriverCost, PerMalloc, Percentiles};

    #[test]
    fn the_tail_is_by_nearest_rank() {
        let cost = |calls: u64| DriverCost { calls, time_us: 2.0 * calls as f64 };
        let requests: Vec<_> = (1..=200).rev().map(cost).collect();
        let per_malloc = PerMalloc::of(&requests);
        assert_eq!(per_malloc.driver_calls, Percentiles { p50: 100.0, p99: 198.0, max: 200.0 });
        assert_eq!(per_malloc.driver_time_us.p99, 396.0);
        assert_eq!(PerMalloc::of(&[cost(7)]).driver_calls.p50, 7.0);
        assert_eq!(PerMalloc::of(&[]), PerMalloc::default());
    }
}
