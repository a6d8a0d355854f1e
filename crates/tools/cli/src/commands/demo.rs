//! `drystone demo`: a program near the end of its device, through PyTorch's allocators and
//! Drystone, as bars.
//!
//! Invariant: every figure is of a replay that this run made. The default trace is the one of the
//! shipped traces with several streams that PyTorch's expandable segments refuse least of.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use drystone_models::{Candidate, DRYSTONE_VMM, TORCH_EXPANDABLE, TORCH_NATIVE};
use drystone_trace::model::Trace;

use super::each_file::{self, Ended, Tables};
use crate::args::{Capacity, Costs, Files, Quirks, Time, parse_capacity};
use crate::candidates::Device;
use crate::input;
use crate::jobs::Progress;
use crate::output::{self, Pending};
use crate::report::bars::{self, Report};
use crate::report::html;
use crate::runs::{self, Settings};
use crate::smallest::smallest;

/// Whom the bars are of, first to last.
const NAMES: [&str; 3] = [TORCH_NATIVE, TORCH_EXPANDABLE, DRYSTONE_VMM];
const DEFAULT: &str = "traces/experts_exchange_tokens.csv.zst";

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces or snapshots, as for `compare`
    #[arg(value_name = "FILE", default_value = DEFAULT)]
    files: Vec<PathBuf>,

    /// Memory of the simulated GPU: a factor of what the program uses at most, or a size
    #[arg(long, value_name = "SIZE", default_value = "1.02x", value_parser = parse_capacity)]
    capacity: Capacity,

    /// Prices of driver calls
    #[arg(long, value_enum, value_name = "TABLE", default_value_t)]
    costs: Costs,

    /// Write one self-contained HTML page with charts and address maps
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Ended> {
    if args.files == [Path::new(DEFAULT)] && !Path::new(DEFAULT).exists() {
        return Err(anyhow!(
            "{DEFAULT}: no such file here; run this in a checkout of Drystone, or name a trace or \
             a snapshot of PyTorch"
        ));
    }
    let targets: Vec<&Path> = args.html.iter().map(PathBuf::as_path).collect();
    output::ensure_apart(&targets, &input::expand(&args.files).0)?;
    let page = args.html.as_deref().map(Pending::create).transpose()?;
    let candidates: Vec<Candidate> =
        NAMES.iter().map(|name| Candidate::named(name, "")).collect::<Result<_, _>>()?;
    let settings = settings(args, page.is_some());
    let work = |file: &str, trace: Trace, progress: &Progress| {
        let needs = needs(&trace, &candidates, &settings, progress)?;
        let replays = runs::examine(file, &trace, &candidates, &settings, progress)?;
        Ok(Report { replays, needs })
    };
    let files = Files { files: args.files.clone(), jobs: None };
    let tables = Tables { command: "demo", json: false, replays: 2 * candidates.len() };
    let (reports, errors) = tables.run(&files, work, bars::one)?;
    output::print(&bars::end(&reports))?;
    if let Some(page) = page.filter(|_| !reports.is_empty()) {
        let reports: Vec<_> = reports.iter().map(|report| &report.replays).collect();
        page.finish(html::render(reports)?.as_bytes())?;
    }
    // A refusal is what it shows, and no failure.
    Ok(each_file::ended(&errors, false))
}

fn settings(args: &Args, with_layouts: bool) -> Settings {
    Settings {
        capacity: Some(args.capacity),
        quirks: Quirks::default(),
        time: Time { costs: args.costs, ..Time::default() },
        with_layouts,
        with_processor_time: false,
    }
}

/// The smallest device for each candidate, in bytes, found side by side.
fn needs(
    trace: &Trace,
    candidates: &[Candidate],
    settings: &Settings,
    progress: &Progress,
) -> Result<Vec<Option<u64>>> {
    let mut ample = Device::untimed(settings.quirks, None);
    ample.costs = settings.time.costs;
    ample.kernels = settings.time.kernels;
    let search = |candidate: &Candidate| -> Result<Option<u64>> {
        let found = smallest(trace, candidate, &ample)?;
        progress.step(&trace.name);
        Ok(found.capacity_bytes)
    };
    std::thread::scope(|scope| {
        let search = &search;
        let searches: Vec<_> =
            candidates.iter().map(|candidate| scope.spawn(move || search(candidate))).collect();
        let found = searches.into_iter().map(|search| {
            search.join().unwrap_or_else(|_| Err(anyhow!("a replay ended before its time")))
        });
        found.collect()
    })
}
