//! `drystone fit`: the smallest device memory on which each allocator completes a trace.

use anyhow::Result;
use drystone_models::Candidate;
use drystone_trace::metrics::Summary;
use drystone_trace::model::Trace;

use super::each_file::{self, Ended, Tables};
use crate::args::{Files, Profile, Quirks};
use crate::candidates::{self, Device};
use crate::jobs::Progress;
use crate::output::printable;
use crate::smallest::{Smallest, smallest_of_all};
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

#[derive(Debug, serde::Serialize)]
struct Report {
    file: String,
    trace: String,
    peak_requested_bytes: u64,
    /// With what graphs keep between launches: no device of less serves.
    needed_bytes: u64,
    fits: Vec<Fit>,
}

#[derive(Debug, serde::Serialize)]
struct Fit {
    allocator: String,
    configuration: String,
    /// The smallest device that works, in bytes; absent where even an ample one does not.
    capacity_bytes: Option<u64>,
    /// Over what is needed.
    capacity_per_needed: Option<f64>,
    /// The smallest of the sizes tried from which all larger ones work, too, in bytes. Absent where
    /// the largest does not work, and where none was tried, `capacity_bytes` being beyond them all.
    served_from_bytes: Option<u64>,
    /// Over what is needed.
    served_from_per_needed: Option<f64>,
    /// How often the trace was replayed to find both.
    replays: u32,
}

pub fn run(args: &Args) -> Result<Ended> {
    let candidates = candidates::all(&args.configurations)?;
    let ample = Device::untimed(args.quirks, args.profile.device);
    let work = |file: &str, trace: Trace, progress: &Progress| {
        fit_trace(file, &trace, &candidates, &ample, progress)
    };
    let tables = Tables { command: "fit", json: args.json, replays: candidates.len() };
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
    let Summary { peak_requested_bytes, needed_bytes, .. } = Summary::of(trace);
    let mut fits = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        fits.push(fit_one(trace, candidate, needed_bytes, ample)?);
        progress.step(&trace.name);
    }
    let (file, trace) = (file.to_owned(), trace.name.clone());
    Ok(Report { file, trace, peak_requested_bytes, needed_bytes, fits })
}

fn fit_one(trace: &Trace, candidate: &Candidate, needed_bytes: u64, ample: &Device) -> Result<Fit> {
    let Smallest { capacity_bytes, served_from_bytes, replays } =
        smallest_of_all(trace, candidate, ample)?;
    let per_needed = |bytes: Option<u64>| {
        let capacity = bytes.filter(|_| needed_bytes > 0);
        capacity.map(|capacity| capacity as f64 / needed_bytes as f64)
    };
    Ok(Fit {
        allocator: candidate.name().to_owned(),
        configuration: candidate.configuration().to_owned(),
        capacity_bytes,
        capacity_per_needed: per_needed(capacity_bytes),
        served_from_bytes,
        served_from_per_needed: per_needed(served_from_bytes),
        replays,
    })
}

fn text(report: &Report) -> String {
    let heads = ["allocator", "fits in", "over needed", "served from", "over it", "replays"];
    let mut table = Table::new(&heads);
    for fit in &report.fits {
        table.row(vec![
            candidates::label(&fit.allocator, &fit.configuration),
            fit.capacity_bytes.map_or("nothing".into(), bytes),
            fit.capacity_per_needed.map_or("-".into(), ratio),
            fit.served_from_bytes.map_or("-".into(), bytes),
            fit.served_from_per_needed.map_or("-".into(), ratio),
            count(u64::from(fit.replays)),
        ]);
    }
    let peak = bytes(report.peak_requested_bytes);
    let with_graphs = match report.needed_bytes {
        same if same == report.peak_requested_bytes => String::new(),
        more => format!(", {} with what graphs keep between launches", bytes(more)),
    };
    let name = printable(&report.trace);
    format!("{name}: peak requested {peak}{with_graphs}\n{}\n", table.render("  "))
}
