//! `drystone convert`: a trace or a snapshot into another format.
//!
//! A recording becomes the same snapshot again. A trace has no addresses of its own, so it becomes
//! a snapshot by being replayed; so does a recording when an allocator is named. Options of a
//! replay where there is none are errors: nothing that was asked for is ignored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use drystone_models::{Candidate, NAMES};
use drystone_trace::codec::{csv, parquet};
use drystone_trace::metrics::Summary;
use drystone_trace::model::Trace;
use drystone_trace::replay;
use drystone_trace::snapshot::{Action, Snapshot};

use super::each_file::Ended;
use crate::args::DeviceArgs;
use crate::candidates::{self, Device};
use crate::input::{self, Input};
use crate::output::{self, Pending};
use crate::report::text::plural;

/// Options of `convert`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace or snapshot; `-` is standard input
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// The file to write, its format by its ending; `-` is standard output
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// Format of OUT, whatever its name
    #[arg(short, long, value_enum)]
    format: Option<Format>,

    /// Which device of a snapshot of several
    #[arg(short, long, value_name = "INDEX")]
    device: Option<usize>,

    /// Replay through this allocator before a snapshot is written [default: drystone-vmm for
    /// traces; recordings stay as they are]
    #[arg(short, long, value_name = "NAME", value_parser = NAMES)]
    allocator: Option<String>,

    /// Configuration of that allocator
    #[arg(short, long, value_name = "KEY:VALUE,...")]
    conf: Option<String>,

    #[command(flatten)]
    simulated: DeviceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// gpu-alloc-trace v1, as text
    Csv,
    /// gpu-alloc-trace v1, compressed
    #[value(name = "csv.zst")]
    CsvZst,
    /// Parquet, a row for each event
    Parquet,
    /// PyTorch snapshot, as torch.cuda.memory._dump_snapshot writes it
    Pickle,
    /// PyTorch snapshot, as JSON
    Json,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let endings = [
            (".csv.zst", Self::CsvZst),
            (".csv", Self::Csv),
            (".parquet", Self::Parquet),
            (".pickle", Self::Pickle),
            (".pkl", Self::Pickle),
            (".json", Self::Json),
        ];
        endings.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| *format)
    }
}

pub fn run(args: &Args) -> Result<Ended> {
    let format = args.format.or_else(|| Format::of(&args.to)).with_context(|| {
        let out = args.to.display();
        format!(
            "{out}: the ending says no format; use .csv, .csv.zst, .parquet, .pickle, .json or \
                 --format"
        )
    })?;
    let input = one_input(&args.from)?;
    let to_stdout = args.to == Path::new("-");
    let file = if to_stdout {
        None
    } else {
        output::ensure_apart(&[&args.to], std::slice::from_ref(&input))?;
        Some(Pending::create(&args.to)?)
    };
    let traces = input::read(&input)?;
    let mut content = Vec::new();
    let mut refused = 0;
    let encoded = match format {
        Format::Csv | Format::CsvZst | Format::Parquet => {
            args.refuse_replay_options("a trace has no addresses, so nothing is replayed for it")?;
            let trace = one_device(args, &input, traces)?;
            match format {
                Format::Csv => csv::write(&trace, &mut content),
                Format::Parquet => parquet::write(&trace, &mut content),
                _ => csv::write_zst(&trace, &mut content),
            }
        }
        Format::Pickle | Format::Json => {
            let snapshot;
            (snapshot, refused) = snapshot_of(args, &input, traces)?;
            match format {
                Format::Pickle => snapshot.write_pickle(&mut content),
                _ => snapshot.write_json(&mut content),
            }
        }
    };
    encoded.with_context(|| format!("{}: cannot encode", input.name()))?;
    match file {
        Some(file) => file.finish(&content)?,
        None => output::print_bytes(&content)?,
    }
    if refused == 0 {
        return Ok(Ended::Well);
    }
    let (name, were) = (input.name(), if refused == 1 { "was" } else { "were" });
    let refused = plural(refused as u64, "request");
    output::complain(&format!("{name}: {refused} {were} refused: the device's memory was used up"));
    Ok(Ended::OutOfMemory)
}

impl Args {
    /// Whether something was said of a replay.
    fn refuse_replay_options(&self, reason: &str) -> Result<()> {
        let given = [
            ("--allocator", self.allocator.is_some()),
            ("--conf", self.conf.is_some()),
            ("--capacity", self.simulated.capacity.is_some()),
            ("--event-latency-us", self.simulated.quirks.event_latency_us.is_some()),
            ("--withheld", self.simulated.quirks.withheld.is_some()),
        ];
        match given.into_iter().find(|&(_, is_given)| is_given) {
            Some((option, _)) => anyhow::bail!("{option} has no effect here: {reason}"),
            None => Ok(()),
        }
    }
}

fn one_input(from: &Path) -> Result<Input> {
    let (mut inputs, failures) = input::expand(std::slice::from_ref(&from.to_owned()));
    if let Some(failure) = failures.into_iter().next() {
        return Err(failure);
    }
    let input = inputs.pop().ok_or_else(|| anyhow!("{}: no such file", from.display()))?;
    anyhow::ensure!(inputs.is_empty(), "{}: several files match; name one", from.display());
    Ok(input)
}

/// The trace that was asked for.
fn one_device(args: &Args, input: &Input, mut traces: Vec<Trace>) -> Result<Trace> {
    let (name, count) = (input.name(), traces.len());
    let index = match args.device {
        Some(index) => index,
        None if count == 1 => 0,
        None => anyhow::bail!("{name}: has {count} devices; choose one with --device 0, 1, ..."),
    };
    anyhow::ensure!(index < count, "{name}: has no device {index}; it has {count}");
    Ok(traces.swap_remove(index))
}

/// The snapshot to write, and how many requests a replay for it refused: the recording's own, or
/// one made by replaying.
fn snapshot_of(args: &Args, input: &Input, traces: Vec<Trace>) -> Result<(Arc<Snapshot>, usize)> {
    let is_recording = traces.first().is_some_and(|trace| trace.recording.is_some());
    if is_recording && args.allocator.is_none() {
        args.refuse_replay_options("a recording stays as it is unless --allocator is given")?;
        let is_whole = args.device.is_none();
        let first = match args.device {
            None => traces.into_iter().next(),
            Some(_) => Some(one_device(args, input, traces)?),
        };
        let recording = first.and_then(|trace| trace.recording);
        let recording = recording.with_context(|| format!("{}: empty", input.name()))?;
        let snapshot = match is_whole {
            true => recording.snapshot,
            false => Arc::new(recording.snapshot.of_device(recording.device)),
        };
        return Ok((snapshot, 0));
    }
    let trace = one_device(args, input, traces)?;
    let summary = Summary::of(&trace);
    anyhow::ensure!(
        summary.allocations > 0,
        "{}: no allocation, so a snapshot of it would be empty",
        input.name()
    );
    let name = args.allocator.as_deref().unwrap_or(candidates::DEFAULT);
    let candidate = Candidate::named(name, args.conf.as_deref().unwrap_or_default())?;
    let capacity = args.simulated.capacity.map(|c| c.resolve(summary.needed_bytes));
    let ample = Device::untimed(args.simulated.quirks, None);
    let capacity_bytes = capacity.unwrap_or(ample.capacity_bytes);
    let device = Device { capacity_bytes, ..ample };
    let mut allocator = device.build(&candidate, &trace)?;
    let snapshot = replay::record(&trace, allocator.as_mut())
        .with_context(|| format!("{name} has no address map to write"))?;
    let entries = snapshot.device_traces.iter().flatten();
    let refused = entries.filter(|entry| entry.action == Action::OutOfMemory).count();
    Ok((Arc::new(snapshot), refused))
}
