//! Who replays: the allocators a command line names, and the device each is given.

use anyhow::Result;
use drystone_models::{
    COMPARABLE, Candidate, DRYSTONE_VMM, EVENT_LATENCY_NS, Gaps, NAMES, Program, TORCH_EXPANDABLE,
    TORCH_NATIVE, work_config,
};
use drystone_sim::{Measured, SimConfig, SimDevice};
use drystone_trace::metrics::Metrics;
use drystone_trace::model::Trace;
use drystone_trace::replay::Replayed;

use crate::args::{AMPLE_BYTES, Costs, Kernels, Quirks};

#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub capacity_bytes: u64,
    pub quirks: Quirks,
    /// What each driver call costs, unless that was measured.
    pub costs: Costs,
    /// What was measured of a real device, except its memory.
    pub measured: Option<&'static Measured>,
    /// Whether the program's kernels are modelled.
    pub kernels: Kernels,
    /// What becomes of the program's idle times, where they are.
    pub gaps: Gaps,
}

/// Makespan over that of an allocator that never waits and never stalls.
pub fn over_ideal(metrics: &Metrics, ideal_us: Option<f64>) -> Option<f64> {
    let own_us = metrics.device_time.map(|time| time.makespan_us);
    own_us.zip(ideal_us.filter(|&ideal_us| ideal_us > 0.0)).map(|(own, ideal)| own / ideal)
}

impl Kernels {
    /// What the trace takes with an allocator that costs nothing, where kernels are modelled.
    pub fn ideal_us(self, trace: &Trace, gaps: Gaps) -> Option<f64> {
        (self == Self::On).then(|| drystone_models::ideal_makespan_us(trace, gaps))
    }
}

impl Device {
    /// An ample one where nothing takes time: whether a trace fits is asked, not how fast it runs.
    pub fn untimed(quirks: Quirks, measured: Option<&'static Measured>) -> Self {
        Self {
            capacity_bytes: AMPLE_BYTES,
            quirks,
            costs: Costs::default(),
            measured,
            kernels: Kernels::Off,
            gaps: Gaps::Kept,
        }
    }

    /// A fresh allocator for a trace, on a fresh device of its own.
    pub fn build(&self, candidate: &Candidate, trace: &Trace) -> Result<Box<dyn Replayed>> {
        let with_kernels = self.kernels == Kernels::On;
        let given_ns = self.quirks.event_latency_us.map(|us| (us * 1e3) as u64);
        let latency_ns = if with_kernels { EVENT_LATENCY_NS } else { 0 };
        let config = SimConfig { costs: self.costs.table(), ..SimConfig::default() };
        let config = self.measured.map_or(config.clone(), |device| device.applied_to(config));
        let measured_bytes = self.measured.and_then(|device| device.withheld_bytes);
        let withheld_bytes = self.quirks.withheld.or(measured_bytes).unwrap_or(0);
        let config = SimConfig {
            total_bytes: self.capacity_bytes.saturating_add(withheld_bytes),
            process_limit_bytes: self.capacity_bytes,
            event_latency_ns: given_ns.unwrap_or(latency_ns),
            ..config
        };
        let config = if with_kernels { work_config(config) } else { config };
        let device = SimDevice::new(config);
        let allocator = candidate.build(&device, trace.streams, trace.pools)?;
        Ok(if with_kernels {
            Box::new(Program::new(allocator, &device, self.gaps))
        } else {
            allocator
        })
    }
}

/// Configurations to show beside the default ones.
#[derive(Debug, clap::Args)]
pub struct Configurations {
    /// Also compare with Drystone over virtual memory in this configuration (DRYSTONE_CONF); may be
    /// given several times
    #[arg(long, value_name = "KEY:VALUE,...")]
    drystone_conf: Vec<String>,

    /// Also compare with PyTorch's allocator in this configuration (PYTORCH_CUDA_ALLOC_CONF);
    /// may be given several times
    #[arg(long, value_name = "KEY:VALUE,...")]
    torch_conf: Vec<String>,
}

/// Drystone as it is by default.
pub const DEFAULT: &str = NAMES[0];

/// Every allocator whose figures compare in its default configuration, and some in more.
pub fn all(more: &Configurations) -> Result<Vec<Candidate>> {
    of(&COMPARABLE, more)
}

/// The allocators of these names in their default configuration, and some in more.
pub fn of(names: &[&str], more: &Configurations) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for name in names {
        candidates.push(Candidate::named(name, "")?);
    }
    for configuration in &more.drystone_conf {
        candidates.push(Candidate::named(DRYSTONE_VMM, configuration)?);
    }
    for configuration in &more.torch_conf {
        let is_expandable = configuration.replace(' ', "").contains("expandable_segments:True");
        let name = if is_expandable { TORCH_EXPANDABLE } else { TORCH_NATIVE };
        candidates.push(Candidate::named(name, configuration)?);
    }
    Ok(candidates)
}

pub fn label(name: &str, configuration: &str) -> String {
    if configuration.is_empty() { name.to_owned() } else { format!("{name} ({configuration})") }
}
