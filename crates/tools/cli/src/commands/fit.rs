//! `drystone fit`: the smallest device memory on which each allocator completes a trace.
//!
//! Found by halving, to one granule. An allocator need not be monotonic (more memory may in
//! principle hurt it), so the answer is a size that works next to one that does not. Larger sizes,
//! up to a little above the peak, are tried, too: it is told from where on each of them works.

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

/// Larger sizes are tried up to this many hundredths of the peak request.
const SAMPLED_TO_PERCENT: u64 = 104;
/// So many of them, evenly apart.
const SAMPLES: u64 = 40;

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
    /// The smallest of the sizes tried from which all larger ones work, too, in bytes. Absent where
    /// the largest does not work, and where none was tried, `capacity_bytes` being beyond them all.
    served_from_bytes: Option<u64>,
    /// Over the peak of the requested bytes.
    served_from_per_requested: Option<f64>,
    /// How often the trace was replayed to find both.
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
    let least = Capacity::Bytes(peak_requested_bytes).resolve(0) / GRANULE_BYTES;
    let unhindered = unhindered(trace, candidate, ample)?;
    let found = unhindered.map(|from| smallest(least, from, &mut works)).transpose()?;
    let most = peak_requested_bytes * SAMPLED_TO_PERCENT / 100 / GRANULE_BYTES;
    let served_from = match found {
        Some(found) => served_from(found, most, &mut works)?,
        None => None,
    };
    let per_requested = |capacity: u64| capacity as f64 / peak_requested_bytes as f64;
    let [capacity_bytes, served_from_bytes] =
        [found, served_from].map(|size| size.map(|granules| granules * GRANULE_BYTES));
    let [capacity_per_requested, served_from_per_requested] = [capacity_bytes, served_from_bytes]
        .map(|size| size.filter(|_| peak_requested_bytes > 0).map(per_requested));
    Ok(Fit {
        allocator: candidate.name().to_owned(),
        configuration: candidate.configuration().to_owned(),
        capacity_bytes,
        capacity_per_requested,
        served_from_bytes,
        served_from_per_requested,
        replays,
    })
}

/// The smallest size that works, in granules, by halving between the least there may be and the
/// first that works from `unhindered` on.
fn smallest(
    least: u64,
    unhindered: u64,
    works: &mut impl FnMut(u64) -> Result<bool>,
) -> Result<u64> {
    let (mut low, mut high) = (least, unhindered.max(least));
    while !works(high)? {
        low = high + 1;
        high += high.div_ceil(16);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if works(middle)? { high = middle } else { low = middle + 1 }
    }
    Ok(high)
}

/// The smallest size, of `found` and some up to `most`, from which all of them work, in granules.
fn served_from(
    found: u64,
    most: u64,
    works: &mut impl FnMut(u64) -> Result<bool>,
) -> Result<Option<u64>> {
    let between = most.saturating_sub(found);
    let samples = SAMPLES.min(between);
    let mut from = None;
    // The largest first: below one that does not work nothing is asked.
    for at in (1..=samples).rev() {
        let size = found + between * at / samples;
        if !works(size)? {
            return Ok(from);
        }
        from = Some(size);
    }
    Ok(from.map(|_| found))
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
    let heads = ["allocator", "fits in", "over requested", "served from", "over it", "replays"];
    let mut table = Table::new(&heads);
    for fit in &report.fits {
        table.row(vec![
            candidates::label(&fit.allocator, &fit.configuration),
            fit.capacity_bytes.map_or("nothing".into(), bytes),
            fit.capacity_per_requested.map_or("-".into(), ratio),
            fit.served_from_bytes.map_or("-".into(), bytes),
            fit.served_from_per_requested.map_or("-".into(), ratio),
            count(u64::from(fit.replays)),
        ]);
    }
    let peak = bytes(report.peak_requested_bytes);
    format!("{}: peak requested {peak}\n{}\n", printable(&report.trace), table.render("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both answers where just these sizes work, and how many were tried.
    fn found(sizes: impl Fn(u64) -> bool, most: u64) -> (u64, Option<u64>, Vec<u64>) {
        let mut tried = Vec::new();
        let mut works = |size| {
            tried.push(size);
            Ok(sizes(size))
        };
        let found = smallest(100, 120, &mut works).unwrap();
        let from = served_from(found, most, &mut works).unwrap();
        (found, from, tried)
    }

    #[test]
    fn where_every_larger_size_works_both_answers_are_the_same() {
        let (found, from, tried) = found(|size| size >= 107, 120);
        assert_eq!((found, from), (107, Some(107)));
        assert!((108..=120).all(|size| tried.contains(&size)));
    }

    #[test]
    fn a_larger_size_that_does_not_work_is_told() {
        let works = |size| size == 106 || size >= 113;
        assert_eq!(found(works, 120).0, 113);
        // What halving meets first is the smaller one.
        let works = |size| size == 105 || size == 110 || size >= 113;
        let (found, from, tried) = found(works, 120);
        assert_eq!((found, from), (105, Some(113)));
        assert!(tried.contains(&112) && !tried.contains(&107));
    }

    #[test]
    fn nothing_is_said_where_no_size_above_was_tried_or_the_largest_does_not_work() {
        assert_eq!(found(|size| size >= 110, 110).1, None);
        assert_eq!(found(|size| size >= 110, 104).1, None);
        assert_eq!(found(|size| size >= 105 && size != 120, 120).1, None);
    }

    #[test]
    fn of_a_wide_range_some_sizes_are_tried() {
        let (found, from, tried) = found(|size| size >= 101, 4000);
        assert_eq!((found, from), (101, Some(101)));
        assert!(tried.len() < 50 && tried.contains(&4000));
    }
}
