//! `drystone sweep`: traces on devices of several sizes, from ample to barely enough.
//!
//! Invariant: one file after another; the replays of a file are what runs in parallel.

use std::path::{Path, PathBuf};

use anyhow::Result;
use drystone_models::{DRYSTONE_VMM, TORCH_ASYNC, TORCH_EXPANDABLE, TORCH_NATIVE};
use drystone_trace::model::Trace;

use super::each_file::{self, Ended, Tables};
use crate::args::{Costs, Files, GapsArg, Kernels, Quirks};
use crate::candidates;
use crate::input;
use crate::jobs::Progress;
use crate::output::{self, Pending, printable};
use crate::report::pressure;
use crate::sweeps::{self, Report, Settings, Size, parse_device_size};
use crate::table::Table;
use crate::units::{bytes, count, duration_us, ratio};

/// Who is swept, in their default configurations.
const ALLOCATORS: [&str; 4] = [DRYSTONE_VMM, TORCH_EXPANDABLE, TORCH_NATIVE, TORCH_ASYNC];
/// Sizes unless some are given.
const SIZES: [&str; 6] = ["ample", "1.34x", "1.25x", "1.1x", "1.05x", "1.02x"];

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    configurations: candidates::Configurations,

    /// Physical memory of the devices: sizes such as 24GiB, factors such as 1.02x of what the
    /// trace needs (its peak request and what graphs keep), or `ample`
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_values = SIZES,
          value_parser = parse_device_size)]
    capacity: Vec<Size>,

    /// Prices of driver calls; several are swept one after another
    #[arg(long, value_enum, value_name = "TABLE,...", value_delimiter = ',',
          default_values_t = [Costs::default()])]
    costs: Vec<Costs>,

    /// Whether each block is used by a kernel that takes time, and calls take time too
    #[arg(long, value_enum, value_name = "ON|OFF", default_value_t)]
    kernels: Kernels,

    /// What becomes of the times at which the program was idle when recorded, where kernels are
    /// modelled
    #[arg(long, value_enum, value_name = "KEEP|SHORTEN", default_value_t)]
    gaps: GapsArg,

    #[command(flatten)]
    quirks: Quirks,

    /// Print JSON in place of the tables
    #[arg(long)]
    json: bool,

    /// Write memory held and device time against the size of the device as SVG
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Ended> {
    let candidates = candidates::of(&ALLOCATORS, &args.configurations)?;
    let targets: Vec<&Path> = args.svg.as_deref().into_iter().collect();
    output::ensure_apart(&targets, &input::expand(&args.files.files).0)?;
    let svg_file = args.svg.as_deref().map(Pending::create).transpose()?;
    let replays = args.costs.len() * args.capacity.len() * candidates.len();
    let settings = Settings {
        costs: &args.costs,
        sizes: &args.capacity,
        quirks: args.quirks,
        kernels: args.kernels,
        gaps: args.gaps.into(),
        jobs: args.files.jobs(),
    };
    let work = |file: &str, trace: Trace, progress: &Progress| {
        sweeps::sweep(file, &trace, &candidates, &settings, progress)
    };
    let files = Files { files: args.files.files.clone(), jobs: Some(1) };
    let tables = Tables { command: "sweep", json: args.json, replays };
    let (reports, errors) = tables.run(&files, work, text)?;
    if let Some(file) = svg_file
        && !reports.is_empty()
    {
        file.finish(pressure::render(&reports)?.as_bytes())?;
    }
    let cells = reports.iter().flat_map(|report: &Report| &report.cells);
    let refused = cells.into_iter().any(|cell| cell.metrics.out_of_memory_events > 0);
    Ok(each_file::ended(&errors, refused))
}

fn text(report: &Report) -> String {
    let heads = [
        "prices",
        "device",
        "allocator",
        "OOM",
        "res/req",
        "makespan",
        "/ideal",
        "waits",
        "calls",
        "driver time",
        "steady calls",
        "steady",
    ];
    let mut table = Table::new(&heads);
    let mut last = ("", "");
    for cell in &report.cells {
        let metrics = &cell.metrics;
        let group = (cell.costs.as_str(), cell.device.as_str());
        let (costs, device) = if group == last { ("", "") } else { group };
        last = group;
        table.row(vec![
            costs.to_owned(),
            device.to_owned(),
            cell.label(),
            count(metrics.out_of_memory_events),
            cell.reserved_per_requested.map_or("-".into(), ratio),
            metrics.device_time.map_or("-".into(), |time| duration_us(time.makespan_us)),
            cell.makespan_over_ideal.map_or("-".into(), ratio),
            metrics.device_time.map_or("-".into(), |time| count(time.stream_waits)),
            count(metrics.driver_calls),
            duration_us(metrics.driver_time_us),
            count(metrics.steady_driver_calls),
            duration_us(metrics.steady_driver_time_us),
        ]);
    }
    let peak = bytes(report.summary.peak_requested_bytes);
    format!("{}: peak requested {peak}\n{}\n", printable(&report.trace), table.render("  "))
}
