//! What an allocator costs: running totals of driver calls and moves, and how single requests share
//! them.

/// What an allocator has cost in driver calls since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DriverCost {
    /// Memory, event, stream and synchronisation calls; queries of device and capture not counted.
    pub calls: u64,
    /// The same calls priced by the simulated device's cost table, in microseconds.
    pub time_us: f64,
}

impl DriverCost {
    /// What was added since an earlier total.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { calls: self.calls - earlier.calls, time_us: self.time_us - earlier.time_us }
    }
}

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

/// How a program fared with an allocator, on a device whose kernels, events and calls take time.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct DeviceTime {
    /// When the last kernel is done, in microseconds from the start of the program.
    pub makespan_us: f64,
    /// Times one stream was made to wait for another.
    pub stream_waits: u64,
    /// Calls that wait for the device: synchronisations, and frees of plain memory.
    pub host_waits: u64,
    /// How long these blocked the host, in microseconds. What calls cost is not in it.
    pub host_waited_us: f64,
}

/// What an allocator that maps memory anew has moved so far, and what is mapped so now. All zero
/// for one that does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Remaps {
    /// Granules that were mapped elsewhere to back a request, in all. In JSON `harvested_granules`.
    #[serde(rename = "harvested_granules")]
    pub granule_remaps: u64,
    /// Granules that are mapped away from home now. In JSON `lent_granules`.
    #[serde(rename = "lent_granules")]
    pub remapped_granules: u64,
    /// Mappings beyond homes now.
    pub aliases: u64,
    /// Addresses that lead to memory which backs another place now, in bytes.
    pub alias_bytes: u64,
    /// Handles that were emptied by moving live memory, in all.
    pub moves: u64,
    /// Bytes that were copied for it.
    pub moved_bytes: u64,
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
