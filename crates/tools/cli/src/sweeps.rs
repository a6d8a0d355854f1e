//! Replays of one trace on devices of several sizes, through several allocators.
//!
//! Invariant: every replay has a device and an allocator of its own, so they run in parallel and
//! come back in the order of prices, then sizes, then allocators.

use anyhow::Result;
use clap::ValueEnum;
use drystone_models::{Candidate, Gaps};
use drystone_trace::metrics::{Metrics, Summary};
use drystone_trace::model::Trace;
use drystone_trace::replay::{self, Options};

use crate::args::{AMPLE_BYTES, Capacity, Costs, Kernels, Quirks, parse_capacity};
use crate::candidates::{self, Device};
use crate::jobs::{self, Progress};

/// No memory curves are kept, and processor time is not measured: all cores are busy.
const UNTIMED: Options = Options { curve_points: 1, timed_passes: 0 };

#[derive(Clone, Debug)]
pub struct Size {
    text: String,
    capacity: Capacity,
}

/// Reads a size, a factor or `ample`.
pub fn parse_device_size(text: &str) -> Result<Size, String> {
    let capacity = match text {
        "ample" => Capacity::Bytes(AMPLE_BYTES),
        _ => parse_capacity(text)?,
    };
    Ok(Size { text: text.to_owned(), capacity })
}

#[derive(Debug, Default, serde::Serialize)]
pub struct Report {
    pub file: String,
    pub trace: String,
    pub summary: Summary,
    /// By prices, then by size, then by allocator.
    pub cells: Vec<Cell>,
}

#[derive(Debug, Default, serde::Serialize)]
pub struct Cell {
    /// Name of the table of prices.
    pub costs: String,
    /// The size as it was asked for.
    pub device: String,
    /// Physical memory of the device, in bytes.
    pub capacity_bytes: u64,
    pub allocator: String,
    /// Its configuration; empty for the default.
    pub configuration: String,
    /// The figures, without those of single iterations.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Peak reserved over peak requested.
    pub reserved_per_requested: Option<f64>,
    /// Makespan over that of an allocator that never waits and never stalls.
    pub makespan_over_ideal: Option<f64>,
}

impl Cell {
    pub fn label(&self) -> String {
        candidates::label(&self.allocator, &self.configuration)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Prices of driver calls.
    pub costs: &'a [Costs],
    pub sizes: &'a [Size],
    pub quirks: Quirks,
    /// Whether the program's kernels are modelled.
    pub kernels: Kernels,
    /// What becomes of the program's idle times.
    pub gaps: Gaps,
    pub jobs: usize,
}

/// Replays a trace on each size through each candidate.
pub fn sweep(
    file: &str,
    trace: &Trace,
    candidates: &[Candidate],
    settings: &Settings,
    progress: &Progress,
) -> Result<Report> {
    let summary = Summary::of(trace);
    let ideal_us = settings.kernels.ideal_us(trace, settings.gaps);
    let mut replays = Vec::new();
    for &costs in settings.costs {
        for size in settings.sizes {
            replays.extend(candidates.iter().map(|candidate| (costs, size, candidate)));
        }
    }
    let work = |&(costs, size, candidate): &(Costs, &Size, &Candidate)| {
        let device = Device {
            capacity_bytes: size.capacity.resolve(summary.needed_bytes),
            quirks: settings.quirks,
            costs,
            measured: None,
            kernels: settings.kernels,
            gaps: settings.gaps,
        };
        let mut cell = cell(trace, &size.text, &device, candidate);
        if let Ok(cell) = &mut cell {
            cell.makespan_over_ideal = candidates::over_ideal(&cell.metrics, ideal_us);
        }
        progress.step(&trace.name);
        cell
    };
    let mut cells = Vec::with_capacity(replays.len());
    jobs::run(&replays, settings.jobs, progress, work, |_, cell| cells.push(cell));
    let cells = cells.into_iter().collect::<Result<_>>()?;
    Ok(Report { file: file.to_owned(), trace: trace.name.clone(), summary, cells })
}

fn cell(trace: &Trace, size: &str, device: &Device, candidate: &Candidate) -> Result<Cell> {
    let mut allocator = device.build(candidate, trace)?;
    let mut metrics = replay::run(trace, allocator.as_mut(), &UNTIMED).metrics;
    // One number per iteration for each cell would be most of the report.
    metrics.driver_calls_per_iteration.clear();
    metrics.convergence = Default::default();
    let costs = device.costs.to_possible_value().map(|value| value.get_name().to_owned());
    Ok(Cell {
        costs: costs.unwrap_or_default(),
        device: size.to_owned(),
        capacity_bytes: device.capacity_bytes,
        allocator: candidate.name().to_owned(),
        configuration: candidate.configuration().to_owned(),
        reserved_per_requested: metrics.reserved_per_requested(),
        makespan_over_ideal: None,
        metrics,
    })
}
