//! Replays of one trace: through every candidate.

use anyhow::Result;
use drystone_models::Candidate;
use drystone_trace::metrics::{Metrics, Summary};
use drystone_trace::model::Trace;
use drystone_trace::replay::{self, Curve, Layout, Options, Outcome};

use crate::args::{AMPLE_BYTES, Capacity, Kernels, Quirks, Time};
use crate::candidates::{self, Device};
use crate::jobs::Progress;

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Physical memory of the device.
    pub capacity: Option<Capacity>,
    pub quirks: Quirks,
    pub time: Time,
    /// Whether address maps are wanted: each costs another replay up to its moment.
    pub with_layouts: bool,
    /// Whether the processor's time is wanted: it takes more replays than all else.
    pub with_processor_time: bool,
}

#[derive(Debug, serde::Serialize)]
pub struct TraceReport {
    pub file: String,
    pub trace: String,
    /// Physical memory of the device, in bytes.
    pub capacity_bytes: u64,
    pub summary: Summary,
    /// One per candidate, in their order.
    pub runs: Vec<Run>,
}

/// What one candidate made of one trace.
#[derive(Debug, serde::Serialize)]
pub struct Run {
    pub allocator: String,
    /// Its configuration; empty for the default.
    pub configuration: String,
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Peak reserved over peak requested.
    pub reserved_per_requested: Option<f64>,
    /// Makespan over that of an allocator that never waits and never stalls.
    pub makespan_over_ideal: Option<f64>,
    /// Event at which reserved memory first reached its peak.
    pub peak_event: usize,
    /// The first refusal, in the allocator's words.
    pub first_out_of_memory: Option<FirstRefusal>,
    /// Memory over time.
    #[serde(skip)]
    pub curve: Curve,
    /// The address map at `peak_event`.
    #[serde(skip)]
    pub layout: Option<Layout>,
}

#[derive(Debug, serde::Serialize)]
pub struct FirstRefusal {
    pub event: usize,
    pub message: String,
}

impl TraceReport {
    /// Whether any candidate met a refusal.
    pub fn ran_out_of_memory(&self) -> bool {
        self.runs.iter().any(|run| run.metrics.out_of_memory_events > 0)
    }
}

impl Run {
    pub fn label(&self) -> String {
        candidates::label(&self.allocator, &self.configuration)
    }
}

/// Replays one trace through every candidate.
pub fn examine(
    file: &str,
    trace: &Trace,
    candidates: &[Candidate],
    settings: &Settings,
    progress: &Progress,
) -> Result<TraceReport> {
    let summary = Summary::of(trace);
    let measured = settings.time.profile.device;
    let own_bytes = measured.and_then(|device| device.total_bytes).unwrap_or(AMPLE_BYTES);
    let capacity = settings.capacity.unwrap_or(Capacity::Bytes(own_bytes));
    let device = Device {
        capacity_bytes: capacity.resolve(summary.needed_bytes),
        quirks: settings.quirks,
        costs: settings.time.costs,
        measured,
        kernels: settings.time.kernels,
        gaps: settings.time.gaps.into(),
    };
    let ideal_makespan_us = device.kernels.ideal_us(trace, device.gaps);
    let mut runs = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        runs.push(one_run(trace, candidate, &device, ideal_makespan_us, settings)?);
        progress.step(&trace.name);
    }
    Ok(TraceReport {
        file: file.to_owned(),
        trace: trace.name.clone(),
        capacity_bytes: device.capacity_bytes,
        summary,
        runs,
    })
}

fn replayed(trace: &Trace, candidate: &Candidate, device: &Device) -> Result<Outcome> {
    let timed_passes = match device.kernels {
        Kernels::On => 0,
        Kernels::Off => Options::default().timed_passes,
    };
    let mut allocator = device.build(candidate, trace)?;
    Ok(replay::run(trace, allocator.as_mut(), &Options { timed_passes, ..Options::default() }))
}

fn one_run(
    trace: &Trace,
    candidate: &Candidate,
    device: &Device,
    ideal_makespan_us: Option<f64>,
    settings: &Settings,
) -> Result<Run> {
    let mut outcome = replayed(trace, candidate, device)?;
    if device.kernels == Kernels::On && settings.with_processor_time {
        // Modelling kernels takes processor time of its own.
        let plain = replayed(trace, candidate, &Device { kernels: Kernels::Off, ..*device })?;
        outcome.metrics.cpu_ns_per_operation = plain.metrics.cpu_ns_per_operation;
    }
    let layout = if settings.with_layouts {
        let mut again = device.build(candidate, trace)?;
        replay::layout_at(trace, again.as_mut(), outcome.peak_event)
    } else {
        None
    };
    let refusal = outcome.first_refusal.map(|(event, refusal)| {
        let message = refusal.to_string();
        FirstRefusal { event, message }
    });
    Ok(Run {
        allocator: candidate.name().to_owned(),
        configuration: candidate.configuration().to_owned(),
        reserved_per_requested: outcome.metrics.reserved_per_requested(),
        makespan_over_ideal: candidates::over_ideal(&outcome.metrics, ideal_makespan_us),
        metrics: outcome.metrics,
        peak_event: outcome.peak_event,
        first_out_of_memory: refusal,
        curve: outcome.curve,
        layout,
    })
}
