//! `drystone fit`: the smallest device memory on which each allocator completes a trace.
//!
//! Found by halving, to one granule. An allocator need not be monotonic (more memory may in
//! principle hurt it), so the answer is a size that works next to one that does not.

use anyhow::Result;
use drystone_models::{Candidate, Gaps};
use drystone_trace::metrics::Summary;
use drystone_trace::model::Trace;
use drystone_trace::replay::{self, Options};

use super::each_file::{self, Tables};
use super::ended::Ended;
use crate::args::{AMPLE_BYTES, Capacity, Costs, Files, GRANULE_BYTES, Kernels, Profile, Quirks};
use crate::candidates::{self, Device};
use crate::input::{self, Input};
use crate::jobs::Progress;
use crate::output::printable;
use crate::table::Table;
use crate::units::{bytes, count, ratio};

/// Options of `fit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    configurations: candidates::Configurations,

    #[command(flatten)]
    profile: Profile,

    #[command(flatten)]
    quirks: Quirks,

    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
}

/// What was found for one trace.
#[derive(Debug, serde::Serialize)]
struct Report {
    file: String,
    trace: String,
    peak_requested_bytes: u64,
    fits: Vec<Fit>,
}

/// What was found for one candidate.
#[derive(Debug, serde::Serialize)]
struct Fit {
    allocator: String,
    configuration: String,
    /// The smallest device that works, in bytes; absent where even an ample one does not.
    capacity_bytes: Option<u64>,
    /// Over the peak of the requested bytes.
    capacity_per_requested: Option<f64>,
    /// How often the trace was replayed to find it.
    replays: u32,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let candidates = candidates::all(&args.configurations)?;
    let work = |input: &Input, progress: &Progress| {
        let file = input.name();
        let traces = input::read(input)?;
        progress.expect_more((traces.len().saturating_sub(1) * candidates.len()) as u64);
        let fit = |mut trace: Trace| {
            trace.recording = None; // not needed, and larger than the events
            fit_trace(&file, &trace, &candidates, &untimed(args), progress)
        };
        traces.into_iter().map(fit).collect()
    };
    let tables = Tables { command: "fit", json: args.json, steps_per_file: candidates.len() };
    let (reports, errors) = tables.run(&args.files, work, text)?;
    let fits = reports.iter().flat_map(|report: &Report| &report.fits);
    let all_fit = fits.into_iter().all(|fit| fit.capacity_bytes.is_some());
    Ok(each_file::ended(&errors, !all_fit))
}

fn fit_trace(
    file: &str,
    trace: &Trace,
    candidates: &[Candidate],
    ample: &Device,
    progress: &Progress,
) -> Result<Report> {
    let peak_requested_bytes = Summary::of(trace).peak_requested_bytes;
    let mut fits = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        fits.push(fit_one(trace, candidate, peak_requested_bytes, ample)?);
        progress.step(&trace.name);
    }
    Ok(Report { file: file.to_owned(), trace: trace.name.clone(), peak_requested_bytes, fits })
}

fn fit_one(
    trace: &Trace,
    candidate: &Candidate,
    peak_requested_bytes: u64,
    ample: &Device,
) -> Result<Fit> {
    let mut replays = 1;
    let mut works = |granules: u64| -> Result<bool> {
        replays += 1;
        let device = Device { capacity_bytes: granules * GRANULE_BYTES, ..*ample };
        let mut allocator = device.build(candidate, trace)?;
        Ok(replay::completes(trace, allocator.as_mut()))
    };
    let found = match unhindered(trace, candidate, ample)? {
        None => None,
        Some(unhindered) => {
            let mut low = Capacity::Bytes(peak_requested_bytes).resolve(0) / GRANULE_BYTES;
            let mut high = unhindered.max(low);
            while !works(high)? {
                low = high + 1;
                high += high.div_ceil(16);
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if works(middle)? { high = middle } else { low = middle + 1 }
            }
            Some(high * GRANULE_BYTES)
        }
    };
    Ok(Fit {
        allocator: candidate.name().to_owned(),
        configuration: candidate.configuration().to_owned(),
        capacity_bytes: found,
        capacity_per_requested: found
            .filter(|_| peak_requested_bytes > 0)
            .map(|capacity| capacity as f64 / peak_requested_bytes as f64),
        replays,
    })
}

/// An ample device where nothing takes time: whether a trace fits is asked, not how fast it runs.
fn untimed(args: &Args) -> Device {
    Device {
        capacity_bytes: AMPLE_BYTES,
        quirks: args.quirks,
        costs: Costs::default(),
        measured: args.profile.device,
        kernels: Kernels::Off,
        gaps: Gaps::Kept,
    }
}

/// Granules that an allocator takes when nothing stops it: the first size to try. `None` where it
/// runs out of memory even so.
fn unhindered(trace: &Trace, candidate: &Candidate, ample: &Device) -> Result<Option<u64>> {
    let mut allocator = ample.build(candidate, trace)?;
    let options = Options { timed_passes: 0, curve_points: 1 };
    let metrics = replay::run(trace, allocator.as_mut(), &options).metrics;
    let granules = metrics.peak_reserved_bytes.div_ceil(GRANULE_BYTES).max(1);
    Ok((metrics.out_of_memory_events == 0).then_some(granules))
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&["allocator", "fits in", "over requested", "replays"]);
    for fit in &report.fits {
        table.row(vec![
            candidates::label(&fit.allocator, &fit.configuration),
            fit.capacity_bytes.map_or("nothing".into(), bytes),
            fit.capacity_per_requested.map_or("-".into(), ratio),
            count(u64::from(fit.replays)),
        ]);
    }
    let peak = bytes(report.peak_requested_bytes);
    format!("{}: peak requested {peak}\n{}\n", printable(&report.trace), table.render("  "))
}
