//! Measures PyTorch's real allocator, for `tests/torch_peaks.csv`: runs the PyTorch rig's `replay`
//! over every trace at hand and every synthetic one, with settings and device sizes that between
//! them reach every rule of the model.
//!
//!     cargo run --release -p drystone-models --example measure_torch -- RIG_OUT_FOLDER

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use drystone_driver::Call;
use drystone_trace::codec::csv;
use serde_json::Value;
use support::{CALLS, Row, SYNTHETIC, find, table_path, trace_folders};

type Failure = Box<dyn std::error::Error>;

/// Settings that every trace runs with, on an unlimited device and on a tight one.
const PLAIN: [&str; 2] = ["", "expandable_segments:True"];

/// Settings for the traces of [`KNOB_TRACES`].
const KNOBS: [&str; 17] = [
    "max_split_size_mb:20",
    "max_split_size_mb:64",
    "max_split_size_mb:64,max_non_split_rounding_mb:128",
    "max_split_size_mb:12,large_segment_size_mb:12",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:1,4:2,16:4,64:0,>:8]",
    "roundup_power2_divisions:[2:8,32:4]",
    "large_segment_size_mb:12",
    "large_segment_size_mb:64,max_split_size_mb:64",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.95",
    "garbage_collection_threshold:0.9,per_process_memory_fraction:0.99",
    "garbage_collection_threshold:0.6",
    "per_process_memory_fraction:0.8",
    "expandable_segments:True,large_segment_size_mb:12,graph_capture_record_stream_reuse:True",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,max_split_size_mb:64",
    "expandable_segments:True,per_process_memory_fraction:0.9,garbage_collection_threshold:0.5",
];

/// Traces that run with all settings: small ones with many sizes, and one of several streams.
const KNOB_TRACES: [&str; 4] = [
    "graphsage_neighbor_sampling",
    "llama_1b_fsdp2_8way",
    "resnet50_train_eval_amp",
    "synthetic_3_streams",
];

/// Device sizes over the peak of the requested bytes; 0 is a device without limit.
const PLAIN_FACTORS: [f64; 2] = [0.0, 1.02];
const KNOB_FACTORS: [f64; 3] = [0.0, 1.02, 1.3];

fn main() -> Result<(), Failure> {
    let rig = std::env::args().nth(1).ok_or("give the rig's `out` folder")?;
    let rig = Path::new(&rig);
    let torch = std::fs::read_to_string(rig.join("torch_version"))?.trim().to_owned();
    let folder = tempfile::tempdir()?;
    let mut table = ::csv::Writer::from_path(table_path())?;
    for name in names()? {
        let trace = find(&name)?.ok_or("a listed trace is gone")?;
        let path = folder.path().join(&name);
        csv::write(&trace, std::io::BufWriter::new(std::fs::File::create(&path)?))?;
        let knobs = if KNOB_TRACES.contains(&name.as_str()) { &KNOBS[..] } else { &[] };
        let tight = if name.contains("minimalloc") { 1 } else { 2 };
        let plain = PLAIN.iter().map(|text| (text, &PLAIN_FACTORS[..tight]));
        for (configuration, factors) in plain.chain(knobs.iter().map(|c| (c, &KNOB_FACTORS[..]))) {
            for factor in factors {
                let row = measure(rig, &path, configuration, *factor)?;
                let (trace, torch) = (name.clone(), torch.clone());
                table.serialize(Row { trace, torch, ..row })?;
            }
        }
    }
    table.flush()?;
    Ok(())
}

/// Every trace at hand, sorted by name.
fn names() -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::from(SYNTHETIC.map(str::to_owned));
    for folder in trace_folders().iter().filter(|folder| folder.exists()) {
        for entry in std::fs::read_dir(folder)? {
            let file = entry?.file_name().to_string_lossy().into_owned();
            names.extend(file.strip_suffix(".csv.zst").map(str::to_owned));
        }
    }
    Ok(names)
}

fn measure(rig: &Path, trace: &Path, configuration: &str, factor: f64) -> Result<Row, Failure> {
    let mut command = Command::new(rig.join("replay"));
    command.arg(trace).arg("--reps").arg("1");
    if factor > 0.0 {
        command.arg("--capacity-factor").arg(factor.to_string());
    }
    command
        .env("FAKECUDA_MEM_GB", "2000")
        .env("PYTORCH_CUDA_ALLOC_CONF", configuration)
        .env("LD_LIBRARY_PATH", rig)
        .env_remove("PYTORCH_ALLOC_CONF");
    let output = command.output()?;
    let line = String::from_utf8(output.stdout)?;
    let failed = || format!("{}: {}", trace.display(), String::from_utf8_lossy(&output.stderr));
    let run: Value = serde_json::from_str(&line).map_err(|_| failed())?;
    let number = |key: &str| run[key].as_u64().ok_or_else(|| format!("no {key} in {line}"));
    let calls = CALLS
        .map(|call| run["stats"]["calls"][rig_name(call)][0].as_u64().unwrap_or(0).to_string());
    Ok(Row {
        trace: String::new(),
        configuration: configuration.to_owned(),
        capacity_bytes: number("capacity")?,
        peak_requested_bytes: number("peak_requested")?,
        device_peak_bytes: number("device_peak")?,
        refused: number("oom")?,
        retries: number("num_alloc_retries")?,
        torch: String::new(),
        calls: calls.join(" "),
    })
}

/// What the rig calls a driver call, where that differs.
fn rig_name(call: Call) -> &'static str {
    match call {
        Call::CreateEvent => "cudaEventCreateWithFlags",
        other => other.cuda_name(),
    }
}
