//! Agreement with PyTorch itself: every run in `torch_peaks.csv`, measured with the real allocator
//! on a fake driver, is repeated here with the model, and every figure must be the same.
//!
//! Traces that are not at hand are skipped by name; those of the repository and the synthetic ones
//! always run.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[allow(dead_code, reason = "the measuring tool uses the rest")]
mod support;

use std::collections::BTreeMap;

use drystone_models::torch::{Config, Replay};
use drystone_sim::{SimConfig, SimDevice};
use drystone_trace::model::Trace;
use drystone_trace::replay::{Options, run};
use support::{CALLS, Row, SYNTHETIC, find, table_path};

fn rows() -> BTreeMap<String, Vec<Row>> {
    let mut table = csv::Reader::from_path(table_path()).unwrap();
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in table.deserialize() {
        let row: Row = row.unwrap();
        rows.entry(row.trace.clone()).or_default().push(row);
    }
    rows
}

/// The row as the model would have measured it.
fn repeat(row: &Row, trace: &Trace) -> Row {
    let device = SimDevice::new(SimConfig {
        total_bytes: row.capacity_bytes,
        strict: true,
        ..SimConfig::default()
    });
    let config = Config::parse(&row.configuration).unwrap();
    let mut torch = Replay::new(config, &device, trace.streams, trace.pools);
    let outcome = run(trace, &mut torch, &Options { curve_points: 2, timed_passes: 0 });
    assert_eq!((torch.failure(), device.violations().first()), (None, None));
    assert_eq!(torch.stats().ooms, outcome.metrics.out_of_memory_events);
    assert_eq!(torch.stats().reserved_bytes, device.physical_bytes());
    let calls: Vec<String> = CALLS.iter().map(|call| device.calls_of(*call).to_string()).collect();
    Row {
        device_peak_bytes: device.peak_physical_bytes(),
        refused: torch.stats().ooms,
        retries: torch.stats().num_alloc_retries,
        calls: calls.join(" "),
        ..row.clone()
    }
}

fn differences(rows: &[Row], trace: &Trace) -> Vec<String> {
    let repeated = rows.iter().map(|row| (row, repeat(row, trace)));
    let different = repeated.filter(|(row, model)| *row != model);
    different.map(|(row, model)| format!("real  {row:?}\nmodel {model:?}")).collect()
}

#[test]
fn the_model_does_what_pytorch_does() {
    let all = rows();
    let mut checked = 0;
    let mut differ = Vec::new();
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (name, rows) in &all {
            let Some(trace) = find(name).unwrap() else {
                println!("skipped: {name} is not at hand");
                continue;
            };
            checked += rows.len();
            running.push(scope.spawn(move || differences(rows, &trace)));
        }
        differ.extend(running.into_iter().flat_map(|running| running.join().unwrap()));
    });
    assert!(differ.is_empty(), "{} of {checked} runs differ:\n{}", differ.len(), differ.join("\n"));
    assert!(SYNTHETIC.iter().all(|name| all.contains_key(*name)));
    println!("{checked} runs agree");
}

#[test]
fn the_live_bytes_of_every_measured_trace_are_ours() {
    for (name, rows) in rows() {
        let Some(trace) = find(&name).unwrap() else { continue };
        let (mut live, mut peak) = (0, 0);
        for event in &trace.events {
            match event.kind {
                drystone_trace::model::Kind::Allocate => live += event.bytes,
                drystone_trace::model::Kind::Free => live -= event.bytes,
                _ => {}
            }
            peak = peak.max(live);
        }
        for row in rows {
            assert_eq!(row.peak_requested_bytes, peak, "{name}: is this the trace measured?");
        }
    }
}
