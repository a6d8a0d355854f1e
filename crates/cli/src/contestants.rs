//! Who replays: the allocators a command line names, and the device each is given.

use anyhow::Result;
use drystone_peers::{COMPARABLE, Contestant, NAMES, TORCH_EXPANDABLE, TORCH_NATIVE};
use drystone_sim::{SimConfig, SimDevice};
use drystone_trace::model::Trace;
use drystone_trace::replay::Replayed;

/// The simulated device of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Physical memory, in bytes.
    pub capacity_bytes: u64,
    /// Nanoseconds from recording an event until the device has reached it.
    pub event_latency_ns: u64,
}

impl Device {
    /// A fresh allocator for a trace, on a fresh device of its own.
    pub fn build(&self, contestant: &Contestant, trace: &Trace) -> Result<Box<dyn Replayed>> {
        let device = SimDevice::new(SimConfig {
            total_bytes: self.capacity_bytes,
            event_latency_ns: self.event_latency_ns,
            ..SimConfig::default()
        });
        Ok(contestant.build(&device, trace.streams, trace.pools)?)
    }
}

/// Drystone as it is by default.
pub const DEFAULT: &str = NAMES[0];

/// Every allocator whose figures compare in its default configuration, and PyTorch's in some more.
pub fn all(torch_configurations: &[String]) -> Result<Vec<Contestant>> {
    let mut contestants = Vec::with_capacity(COMPARABLE.len() + torch_configurations.len());
    for name in COMPARABLE {
        contestants.push(Contestant::named(name, "")?);
    }
    for configuration in torch_configurations {
        let is_expandable = configuration.replace(' ', "").contains("expandable_segments:True");
        let name = if is_expandable { TORCH_EXPANDABLE } else { TORCH_NATIVE };
        contestants.push(Contestant::named(name, configuration)?);
    }
    Ok(contestants)
}

/// Name and configuration in one.
pub fn label(name: &str, configuration: &str) -> String {
    if configuration.is_empty() { name.to_owned() } else { format!("{name} ({configuration})") }
}
