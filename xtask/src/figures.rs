//! What each trace costs on devices from ample to barely enough, held against the goals.
//!
//! Lives here: which replays are made, and how they are told as they come. They are `drystone
//! sweep`'s, over the traces of the repository and every program that `drystone generate` knows.
//! The goals are in `figures/goals.rs`.

mod fit;
mod goals;
mod row;
mod table;
mod tool;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::command::root;
use fit::Fit;
use row::Row;
use tool::{drystone, report};

/// Devices that the goals speak of.
const DEVICES: &str = "ample,1.34x,1.25x,1.1x,1.05x,1.02x";
/// Tables of prices under which a conclusion is to hold; where calls are free, the makespan tells
/// of waiting alone.
const COSTS: &str = "free,a100,vattention,small";
/// Programs that come up to the end of memory are there for a device of this size.
const AT_THE_LIMIT: [(&str, &str); 3] =
    [("batch-finder", "80GiB"), ("out-of-memory", "80GiB"), ("first-growth", "80GiB")];

/// The picture's traces: three streams, four streams, and one each with and without repetition.
const PICTURED: [&str; 4] = [
    "llama_1b_fsdp2_8way",
    "four_streams_inference",
    "vit_large_varying_batch",
    "moe_mixtral_small_train",
];
/// The picture's devices, closest together where allocators begin to refuse.
const PICTURED_DEVICES: &str = "1x,1.0025x,1.005x,1.0075x,1.01x,1.015x,1.02x,1.03x,1.04x,1.05x,\
                                1.075x,1.1x,1.15x,1.2x,1.25x,1.3x,1.35x,1.4x,1.45x,1.5x";

/// What to replay.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces; unless said otherwise those of `traces/` and every generated program.
    files: Vec<PathBuf>,
    /// Only those whose name contains this; may be given several times.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Devices, as `drystone sweep` takes them.
    #[arg(long, value_name = "SIZE,...", default_value = DEVICES)]
    capacity: String,
    /// Prices of driver calls, as `drystone sweep` takes them.
    #[arg(long, value_name = "TABLE,...", default_value = COSTS)]
    costs: String,
    /// Drystone in this configuration, instead of the default one.
    #[arg(long, value_name = "KEY:VALUE,...")]
    conf: Option<String>,
    /// Show the rows that miss a goal alone.
    #[arg(long)]
    misses: bool,
    /// Also look for the smallest device that serves each trace, and replay just above it.
    #[arg(long)]
    fit: bool,
    /// Where the whole result goes; `target/figures/figures.json` unless said otherwise.
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

/// Replays all of it, prints a row for each trace, table of prices and device, and writes the whole
/// as JSON.
pub fn figures(args: &Args) -> Result<()> {
    tool::build()?;
    let folder = root().join("target/figures");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let named =
        |file: &PathBuf| file.canonicalize().with_context(|| format!("find {}", file.display()));
    let mut files = match args.files.as_slice() {
        [] => all_traces(&folder)?,
        files => files.iter().map(named).collect::<Result<_>>()?,
    };
    files.retain(|file| {
        args.only.is_empty() || args.only.iter().any(|part| name_of(file).contains(part))
    });
    ensure!(!files.is_empty(), "no trace has such a name");

    let mut rows = Vec::new();
    println!("{}", table::heads());
    for (number, file) in files.iter().enumerate() {
        eprintln!("[{}/{}] {}", number + 1, files.len(), name_of(file));
        for row in sweep(args, file)? {
            if !args.misses || !goals::missed(&row).is_empty() {
                println!("{}", table::row(&row));
            }
            rows.push(row);
        }
    }
    println!("\n{}", goals::summary(&rows));
    let fits = if args.fit { fits(args, &files)? } else { Vec::new() };
    let out = args.json.clone().unwrap_or_else(|| folder.join("figures.json"));
    let whole: Vec<Value> = rows.iter().map(table::json).collect();
    let fits: Vec<Value> = fits.iter().map(Fit::json).collect();
    let text = serde_json::to_string_pretty(&json!({ "rows": whole, "fits": fits }))?;
    std::fs::write(&out, text).with_context(|| format!("write {}", out.display()))?;
    eprintln!("{}", out.display());
    Ok(())
}

/// Draws memory held and time against the size of the device.
pub fn picture() -> Result<()> {
    tool::build()?;
    let out = root().join("docs/evidence/device_size.svg");
    let mut command = drystone();
    command.args(["sweep", "--json", "--capacity", PICTURED_DEVICES, "--svg"]).arg(&out);
    command.args(PICTURED.map(|name| format!("traces/{name}.csv.zst")));
    report(command)?;
    println!("{}", out.display());
    Ok(())
}

/// The second table: smallest devices.
fn fits(args: &Args, files: &[PathBuf]) -> Result<Vec<Fit>> {
    let mut fits = Vec::new();
    println!("{}", fit::heads());
    for (number, file) in files.iter().enumerate() {
        eprintln!("[{}/{}] {}", number + 1, files.len(), name_of(file));
        for fit in Fit::of(file, args.conf.as_deref())? {
            println!("{}", fit.line());
            fits.push(fit);
        }
    }
    println!("\n{}", fit::summary(&fits));
    Ok(fits)
}

/// The name of a trace is that of its file without the endings.
fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// The traces of the repository, then the generated ones, which are made anew.
fn all_traces(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let traces = root().join("traces");
    for entry in traces.read_dir().with_context(|| format!("read {}", traces.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".csv.zst") {
            files.push(path);
        }
    }
    files.sort();
    let mut list = drystone();
    let listed = list.args(["generate", "--list"]).output().context("cannot start drystone")?;
    for line in String::from_utf8_lossy(&listed.stdout).lines().skip(1) {
        let Some(program) = line.split_whitespace().next() else { continue };
        let file = folder.join(format!("{program}.csv.zst"));
        let made = drystone().args(["generate", program, "--out"]).arg(&file).output();
        let made = made.context("cannot start drystone")?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        files.push(file);
    }
    Ok(files)
}

/// The rows of one trace.
fn sweep(args: &Args, file: &Path) -> Result<Vec<Row>> {
    let name = name_of(file);
    let mut devices = args.capacity.clone();
    if let Some((_, size)) = AT_THE_LIMIT.iter().find(|(program, _)| *program == name) {
        devices = format!("{devices},{size}");
    }
    let mut command = drystone();
    command.args(["sweep", "--json", "--costs", &args.costs, "--capacity", &devices]).arg(file);
    if let Some(conf) = &args.conf {
        command.args(["--drystone-conf", conf]);
    }
    let mut rows = Vec::new();
    for trace in report(command)? {
        rows.extend(Row::all_of(&trace, args.conf.as_deref().unwrap_or_default()));
    }
    Ok(rows)
}
