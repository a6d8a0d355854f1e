//! `drystone convert`: a trace or a snapshot into another format.
//!
//! A recording becomes the same snapshot again. A trace has no addresses of its own, so it becomes
//! a snapshot by being replayed; so does a recording when an allocator is named.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use drystone_peers::Contestant;
use drystone_trace::codec::csv;
use drystone_trace::metrics::Summary;
use drystone_trace::model::Trace;
use drystone_trace::replay;
use drystone_trace::snapshot::Snapshot;

use super::Ended;
use crate::args::{AMPLE_BYTES, DeviceArgs};
use crate::contestants::{self, Device};
use crate::input::{self, Input};
use crate::output::{self, Pending};

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
    #[arg(short, long, value_name = "NAME")]
    allocator: Option<String>,

    /// Configuration of that allocator
    #[arg(short, long, value_name = "KEY:VALUE,...", default_value = "")]
    conf: String,

    #[command(flatten)]
    simulated: DeviceArgs,
}

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// gpu-alloc-trace v1, as text
    Csv,
    /// gpu-alloc-trace v1, compressed
    #[value(name = "csv.zst")]
    CsvZst,
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
            (".pickle", Self::Pickle),
            (".pkl", Self::Pickle),
            (".json", Self::Json),
        ];
        endings.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| *format)
    }
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let format = args.format.or_else(|| Format::of(&args.to)).with_context(|| {
        let out = args.to.display();
        format!("{out}: the ending says no format; use .csv, .csv.zst, .pickle, .json or --format")
    })?;
    let to_stdout = args.to == Path::new("-");
    let file = if to_stdout { None } else { Some(Pending::create(&args.to)?) };
    let input = one_input(&args.from)?;
    let traces = input::read(&input)?;
    let mut content = Vec::new();
    let encoded = match format {
        Format::Csv => csv::write(&one_device(args, &input, traces)?, &mut content),
        Format::CsvZst => csv::write_zst(&one_device(args, &input, traces)?, &mut content),
        Format::Pickle => with_snapshot(args, &input, traces, |s| s.write_pickle(&mut content))?,
        Format::Json => with_snapshot(args, &input, traces, |s| s.write_json(&mut content))?,
    };
    encoded.with_context(|| format!("{}: cannot encode", input.name()))?;
    match file {
        Some(file) => file.finish(&content)?,
        None => output::print_bytes(&content)?,
    }
    Ok(Ended::Well)
}

fn one_input(from: &Path) -> Result<Input> {
    let (mut inputs, failures) = input::expand(std::slice::from_ref(&from.to_owned()));
    if let Some(failure) = failures.into_iter().next() {
        return Err(anyhow!("{}: {:#}", failure.file, failure.error));
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

/// Hands the snapshot to `write`: the recording's own, or one made by replaying.
fn with_snapshot<T>(
    args: &Args,
    input: &Input,
    traces: Vec<Trace>,
    write: impl FnOnce(&Snapshot) -> T,
) -> Result<T> {
    let recording = traces.first().and_then(|trace| trace.recording.as_ref());
    if let Some(recording) = recording
        && args.allocator.is_none()
        && args.device.is_none()
    {
        return Ok(write(&recording.snapshot));
    }
    let trace = one_device(args, input, traces)?;
    let name = args.allocator.as_deref().unwrap_or(contestants::DEFAULT);
    let contestant = Contestant::named(name, &args.conf)?;
    let peak_requested_bytes = Summary::of(&trace).peak_requested_bytes;
    let capacity = args.simulated.capacity.map(|c| c.resolve(peak_requested_bytes));
    let device = Device {
        capacity_bytes: capacity.unwrap_or(AMPLE_BYTES),
        event_latency_ns: args.simulated.latency.ns(),
    };
    let mut allocator = device.build(&contestant, &trace)?;
    let snapshot = replay::record(&trace, allocator.as_mut())
        .with_context(|| format!("{name} has no address map to write"))?;
    Ok(write(&snapshot))
}
