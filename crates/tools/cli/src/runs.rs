//! Replays of one file: every trace in it through every contestant.
//!
//! Invariant: a trace is decoded once and dropped as soon as its last contestant is through.

use anyhow::Result;
use drystone_models::Contestant;
use drystone_trace::metrics::{Metrics, Summary};
use drystone_trace::model::Trace;
use drystone_trace::replay::{self, Curve, Layout, Options};

use crate::args::{AMPLE_BYTES, Capacity};
use crate::contestants::{self, Device};
use crate::input::{self, Input};
use crate::jobs::Progress;

/// How the replays are made.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Physical memory of the device.
    pub capacity: Option<Capacity>,
    /// Nanoseconds from recording an event until the device has reached it.
    pub event_latency_ns: u64,
    /// Whether address maps are wanted: each costs another replay up to its moment.
    pub with_layouts: bool,
}

/// What all contestants made of one trace.
#[derive(Debug, serde::Serialize)]
pub struct TraceReport {
    /// The file it came from.
    pub file: String,
    /// The trace's own name.
    pub trace: String,
    /// Physical memory of the device, in bytes.
    pub capacity_bytes: u64,
    /// What is in the trace.
    pub summary: Summary,
    /// One per contestant, in their order.
    pub runs: Vec<Run>,
}

/// What one contestant made of one trace.
#[derive(Debug, serde::Serialize)]
pub struct Run {
    /// The allocator's name.
    pub allocator: String,
    /// Its configuration; empty for the default.
    pub configuration: String,
    /// The figures.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Peak reserved over peak requested.
    pub reserved_per_requested: Option<f64>,
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

/// The first request that was refused.
#[derive(Debug, serde::Serialize)]
pub struct FirstRefusal {
    /// Index of its event.
    pub event: usize,
    /// The allocator's message.
    pub message: String,
}

impl TraceReport {
    /// Whether any contestant met a refusal.
    pub fn ran_out_of_memory(&self) -> bool {
        self.runs.iter().any(|run| run.metrics.out_of_memory_events > 0)
    }
}

impl Run {
    /// Name and configuration in one.
    pub fn label(&self) -> String {
        contestants::label(&self.allocator, &self.configuration)
    }
}

/// Replays every trace of a file through every contestant.
pub fn examine_file(
    input: &Input,
    contestants: &[Contestant],
    settings: &Settings,
    progress: &Progress,
) -> Result<Vec<TraceReport>> {
    let file = input.name();
    progress.show(&file);
    let traces = input::read(input)?;
    progress.expect_more((traces.len().saturating_sub(1) * contestants.len()) as u64);
    let examine = |mut trace: Trace| {
        trace.recording = None; // not needed, and larger than the events
        examine(&file, &trace, contestants, settings, progress)
    };
    traces.into_iter().map(examine).collect()
}

fn examine(
    file: &str,
    trace: &Trace,
    contestants: &[Contestant],
    settings: &Settings,
    progress: &Progress,
) -> Result<TraceReport> {
    let summary = Summary::of(trace);
    let capacity = settings.capacity.unwrap_or(Capacity::Bytes(AMPLE_BYTES));
    let device = Device {
        capacity_bytes: capacity.resolve(summary.peak_requested_bytes),
        event_latency_ns: settings.event_latency_ns,
    };
    let mut runs = Vec::with_capacity(contestants.len());
    for contestant in contestants {
        runs.push(one_run(trace, contestant, &device, settings.with_layouts)?);
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

fn one_run(
    trace: &Trace,
    contestant: &Contestant,
    device: &Device,
    with_layout: bool,
) -> Result<Run> {
    let mut allocator = device.build(contestant, trace)?;
    let outcome = replay::run(trace, allocator.as_mut(), &Options::default());
    drop(allocator);
    let layout = if with_layout {
        let mut again = device.build(contestant, trace)?;
        replay::layout_at(trace, again.as_mut(), outcome.peak_event)
    } else {
        None
    };
    let refusal = outcome.first_refusal.map(|(event, refusal)| {
        let message = refusal.to_string();
        FirstRefusal { event, message }
    });
    Ok(Run {
        allocator: contestant.name().to_owned(),
        configuration: contestant.configuration().to_owned(),
        reserved_per_requested: outcome.metrics.reserved_per_requested(),
        metrics: outcome.metrics,
        peak_event: outcome.peak_event,
        first_out_of_memory: refusal,
        curve: outcome.curve,
        layout,
    })
}
