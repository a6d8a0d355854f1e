//! `drystone sweep`: traces on devices of several sizes, from ample to hardly enough.
//!
//! Invariant: every replay has a device and an allocator of its own, so they run in parallel and
//! come back in the order of sizes, then allocators.

use anyhow::Result;
use drystone_models::{Candidate, DRYSTONE_VMM, TORCH_EXPANDABLE, TORCH_NATIVE};
use drystone_trace::metrics::{Metrics, Summary};
use drystone_trace::model::Trace;
use drystone_trace::replay::{self, Options};

use super::each_file::{self, Tables};
use super::ended::Ended;
use crate::args::{AMPLE_BYTES, Capacity, Files, Latency, parse_capacity};
use crate::candidates::{self, Device};
use crate::input::{self, Input};
use crate::jobs::{self, Progress};
use crate::output::printable;
use crate::table::Table;
use crate::units::{bytes, count, duration_us, ratio};

/// Who is swept, in their default configurations.
const ALLOCATORS: [&str; 3] = [DRYSTONE_VMM, TORCH_EXPANDABLE, TORCH_NATIVE];
/// Sizes unless some are given.
const SIZES: [&str; 6] = ["ample", "1.34x", "1.25x", "1.1x", "1.05x", "1.02x"];
/// No memory curves are kept, and processor time is not measured: all cores are busy.
const UNTIMED: Options = Options { curve_points: 1, timed_passes: 0 };

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    configurations: candidates::Configurations,

    /// Physical memory of the devices: sizes such as 24GiB, factors such as 1.02x of the trace's
    /// peak request, or `ample`
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_values = SIZES,
          value_parser = parse_size)]
    capacity: Vec<Size>,

    #[command(flatten)]
    latency: Latency,

    /// Print JSON in place of the tables
    #[arg(long)]
    json: bool,
}

/// A size of the device, and how it was written.
#[derive(Clone, Debug)]
struct Size {
    text: String,
    capacity: Capacity,
}

fn parse_size(text: &str) -> Result<Size, String> {
    let capacity = match text {
        "ample" => Capacity::Bytes(AMPLE_BYTES),
        _ => parse_capacity(text)?,
    };
    Ok(Size { text: text.to_owned(), capacity })
}

/// What came of one trace.
#[derive(Debug, serde::Serialize)]
struct Report {
    file: String,
    trace: String,
    /// What is in the trace.
    summary: Summary,
    /// By size, then by allocator.
    cells: Vec<Cell>,
}

/// One replay.
#[derive(Debug, serde::Serialize)]
struct Cell {
    /// The size as it was asked for.
    device: String,
    capacity_bytes: u64,
    allocator: String,
    configuration: String,
    #[serde(flatten)]
    metrics: Metrics,
    reserved_per_requested: Option<f64>,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let candidates = candidates::of(&ALLOCATORS, &args.configurations)?;
    let replays = args.capacity.len() * candidates.len();
    let jobs = args.files.jobs();
    let work = |input: &Input, progress: &Progress| {
        let traces = input::read(input)?;
        progress.expect_more((traces.len().saturating_sub(1) * replays) as u64);
        let sweep = |mut trace: Trace| {
            trace.recording = None; // not needed, and larger than the events
            sweep_trace(args, &input.name(), &trace, &candidates, jobs, progress)
        };
        traces.into_iter().map(sweep).collect()
    };
    // One file after another: its replays are what runs in parallel.
    let files = Files { files: args.files.files.clone(), jobs: Some(1) };
    let tables = Tables { command: "sweep", json: args.json, steps_per_file: replays };
    let (reports, errors) = tables.run(&files, work, text)?;
    let cells = reports.iter().flat_map(|report: &Report| &report.cells);
    let refused = cells.into_iter().any(|cell| cell.metrics.out_of_memory_events > 0);
    Ok(each_file::ended(&errors, refused))
}

fn sweep_trace(
    args: &Args,
    file: &str,
    trace: &Trace,
    candidates: &[Candidate],
    jobs: usize,
    progress: &Progress,
) -> Result<Report> {
    let summary = Summary::of(trace);
    let pairs = args.capacity.iter().flat_map(|size| candidates.iter().map(move |who| (size, who)));
    let pairs: Vec<(&Size, &Candidate)> = pairs.collect();
    let work = |&(size, candidate): &(&Size, &Candidate)| {
        let device = Device {
            capacity_bytes: size.capacity.resolve(summary.peak_requested_bytes),
            event_latency_ns: args.latency.ns(),
        };
        let cell = cell(trace, &size.text, &device, candidate);
        progress.step(&trace.name);
        cell
    };
    let mut cells = Vec::with_capacity(pairs.len());
    jobs::run(&pairs, jobs, progress, work, |_, cell| cells.push(cell));
    let cells = cells.into_iter().collect::<Result<_>>()?;
    Ok(Report { file: file.to_owned(), trace: trace.name.clone(), summary, cells })
}

fn cell(trace: &Trace, size: &str, device: &Device, candidate: &Candidate) -> Result<Cell> {
    let mut allocator = device.build(candidate, trace)?;
    let mut metrics = replay::run(trace, allocator.as_mut(), &UNTIMED).metrics;
    // One number per iteration for each cell would be most of the report.
    metrics.driver_calls_per_iteration.clear();
    metrics.convergence = Default::default();
    Ok(Cell {
        device: size.to_owned(),
        capacity_bytes: device.capacity_bytes,
        allocator: candidate.name().to_owned(),
        configuration: candidate.configuration().to_owned(),
        reserved_per_requested: metrics.reserved_per_requested(),
        metrics,
    })
}

fn text(report: &Report) -> String {
    let heads =
        ["device", "allocator", "OOM", "res/req", "calls", "driver time", "steady calls", "steady"];
    let mut table = Table::new(&heads);
    let mut last = "";
    for cell in &report.cells {
        let metrics = &cell.metrics;
        let is_new = std::mem::replace(&mut last, &cell.device) != cell.device;
        table.row(vec![
            if is_new { cell.device.clone() } else { String::new() },
            candidates::label(&cell.allocator, &cell.configuration),
            count(metrics.out_of_memory_events),
            cell.reserved_per_requested.map_or("-".into(), ratio),
            count(metrics.driver_calls),
            duration_us(metrics.driver_time_us),
            count(metrics.steady_driver_calls),
            duration_us(metrics.steady_driver_time_us),
        ]);
    }
    let peak = bytes(report.summary.peak_requested_bytes);
    format!("{}: peak requested {peak}\n{}\n", printable(&report.trace), table.render("  "))
}
