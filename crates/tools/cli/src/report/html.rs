//! The HTML report: one file that needs nothing else, no network and no server.
//!
//! The page is a template, a style sheet and scripts in the folder beside this file, whose README
//! says what data they draw; here that is cut out of the reports. The Python package fills the same
//! template. Invariant: nothing in a trace can end the data element or reach the page as markup.

use anyhow::Result;
use drystone_trace::replay::{BlockState, Curve, Layout, LayoutSegment};
use serde_json::{Value, json};

use crate::runs::{Run, TraceReport};

const PAGE: &str = include_str!("html/page.html");

/// What the template has marks for, beside the data.
macro_rules! files {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("html/", $name)))),*] };
}
const FILES: [(&str, &str); 8] = files![
    "page.css",
    "words.js",
    "charts.js",
    "map.js",
    "convergence.js",
    "traces.js",
    "sections.js",
    "page.js"
];

/// Address maps with more blocks than this have neighbours of one state drawn as one.
const MOST_BLOCKS: usize = 20_000;

pub fn render<'a>(reports: impl IntoIterator<Item = &'a TraceReport>) -> Result<String> {
    let traces: Vec<Value> = reports.into_iter().map(trace).collect();
    let data = serde_json::to_string(&json!({
        "subtitle": "memory of replayed traces",
        "note": "",
        "traces": traces,
        "sections": [],
    }))?;
    // Inside a JSON string `<` may be written as an escape; elsewhere in JSON it cannot occur.
    let data = data.replace('<', "\\u003c");
    let mut page = String::with_capacity(data.len() + (64 << 10));
    let mut parts = PAGE.split("{{");
    page.extend(parts.next());
    for part in parts {
        let (name, after) = part.split_once("}}").unwrap_or((part, ""));
        let file = FILES.iter().find(|(file, _)| *file == name);
        page.extend([file.map_or(data.as_str(), |(_, content)| content), after]);
    }
    Ok(page)
}

fn trace(report: &TraceReport) -> Value {
    let summary = &report.summary;
    json!({
        "name": report.trace,
        "events": summary.events,
        "iterations": summary.iterations,
        "streams": summary.streams.len(),
        "peak_requested_bytes": summary.peak_requested_bytes,
        "capacity_bytes": report.capacity_bytes,
        "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

/// As in the JSON report, with what only the page shows.
fn run(run: &Run) -> Value {
    let mut told = json!(run);
    told["label"] = json!(run.label());
    told["remaps"] = json!(run.metrics.remaps);
    told["curve"] = curve(&run.curve);
    told["layout"] = json!(run.layout.as_ref().map(layout));
    told
}

fn curve(curve: &Curve) -> Value {
    let column = |pick: fn(&drystone_trace::replay::CurvePoint) -> u64| -> Vec<u64> {
        curve.points.iter().map(pick).collect()
    };
    json!({
        "events_per_point": curve.events_per_point,
        "time_ns": column(|point| point.time_ns),
        "requested": column(|point| point.requested_bytes),
        "allocated": column(|point| point.allocated_bytes),
        "reserved": column(|point| point.reserved_bytes),
    })
}

/// Segments as `[address, bytes, [[bytes, state, requested, blocks], ...]]`.
fn layout(layout: &Layout) -> Value {
    let block_count: usize = layout.segments.iter().map(|segment| segment.blocks.len()).sum();
    let merge = block_count > MOST_BLOCKS;
    json!({ "segments": layout.segments.iter().map(|s| segment(s, merge)).collect::<Vec<_>>() })
}

fn segment(segment: &LayoutSegment, merge: bool) -> Value {
    let mut blocks: Vec<(u64, usize, u64, u64)> = Vec::with_capacity(segment.blocks.len());
    for block in &segment.blocks {
        let state = state(block.state);
        // Free blocks stay apart: their sizes are counted.
        let is_mergeable = merge && block.state != BlockState::Free;
        match blocks.last_mut() {
            Some(last) if is_mergeable && last.1 == state => {
                *last = (last.0 + block.bytes, state, last.2 + block.requested_bytes, last.3 + 1);
            }
            _ => blocks.push((block.bytes, state, block.requested_bytes, 1)),
        }
    }
    json!([segment.address, segment.bytes, blocks])
}

/// Index of a state in the script's list.
fn state(state: BlockState) -> usize {
    match state {
        BlockState::Live => 0,
        BlockState::Pending => 1,
        BlockState::Free => 2,
        BlockState::Unmapped => 3,
    }
}
