//! Running totals of an allocator: what its driver calls cost, and what it moved.

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
