//! The table on standard output.

use std::ops::Range;

use drystone_trace::metrics::{PerMalloc, Remaps};

use crate::output::printable;
use crate::runs::{Run, TraceReport};
use crate::table::Table;
use crate::units::{bytes, count, duration_us, ratio};

/// What a column is called, and what it says of a run.
type Column = (&'static str, fn(&Run) -> String);

const COLUMNS: [Column; 10] = [
    ("allocator", Run::label),
    ("reserved", |run| bytes(run.metrics.peak_reserved_bytes)),
    ("res/req", |run| run.reserved_per_requested.map_or("-".into(), ratio)),
    ("allocated", |run| bytes(run.metrics.peak_allocated_bytes)),
    ("calls", |run| count(run.metrics.driver_calls)),
    ("steady calls", |run| count(run.metrics.steady_driver_calls)),
    ("driver time", |run| duration_us(run.metrics.driver_time_us)),
    ("steady time", |run| duration_us(run.metrics.steady_driver_time_us)),
    ("ns/op", |run| nanoseconds(run.metrics.cpu_ns_per_operation)),
    ("OOM", |run| count(run.metrics.out_of_memory_events)),
];

/// Column heads of the table of time: how the program fared, and what single requests cost.
const PROGRAM_HEADS: [&str; 5] = ["makespan", "/ideal", "waits", "host waits", "host waited"];
const MALLOC_HEADS: [&str; 5] =
    ["malloc p50", "malloc p99", "malloc max", "calls p99", "calls max"];

/// Columns of the table of convergence, at most.
const GROUPS: usize = 8;

/// One trace: a headline, one row per candidate, how they settle down, and what ran out of memory.
pub fn trace(report: &TraceReport) -> String {
    let summary = &report.summary;
    let mut text = format!(
        "{}: {}, {}, {}; peak requested {}, device {}\n",
        printable(&report.trace),
        plural(summary.events, "event"),
        plural(summary.iterations, "iteration"),
        plural(summary.streams.len() as u64, "stream"),
        bytes(summary.peak_requested_bytes),
        bytes(report.capacity_bytes),
    );
    let mut table = Table::new(&COLUMNS.map(|(head, _)| head));
    for run in &report.runs {
        table.row(COLUMNS.map(|(_, cell)| cell(run)).into());
    }
    text.push_str(&table.render("  "));
    text.push_str(&convergence(report));
    text.push_str(&time(report));
    for run in &report.runs {
        if let Some(first) = &run.first_out_of_memory {
            let message = printable(&first.message);
            text.push_str(&format!("  {}, event {}: {message}\n", run.label(), first.event));
        }
    }
    text.push('\n');
    text
}

fn nanoseconds(per_operation: Option<f64>) -> String {
    per_operation.map_or("-".into(), |ns| format!("{ns:.1}"))
}

/// How the program fared, where its kernels were modelled, and what single requests have cost.
fn time(report: &TraceReport) -> String {
    let with_program = report.runs.iter().any(|run| run.metrics.device_time.is_some());
    let program_heads = if with_program { &PROGRAM_HEADS[..] } else { &[] };
    let heads = [&["time"], program_heads, &MALLOC_HEADS].concat();
    let mut table = Table::new(&heads);
    for run in &report.runs {
        let PerMalloc { driver_calls: calls, driver_time_us: time } = run.metrics.per_malloc;
        let mut cells = vec![run.label()];
        if let Some(program) = run.metrics.device_time {
            cells.extend([
                duration_us(program.makespan_us),
                run.makespan_over_ideal.map_or("-".into(), ratio),
                count(program.stream_waits),
                count(program.host_waits),
                duration_us(program.host_waited_us),
            ]);
        }
        cells.extend([time.p50, time.p99, time.max].map(duration_us));
        cells.extend([calls.p99, calls.max].map(|calls| count(calls as u64)));
        table.row(cells);
    }
    table.render("  ")
}

/// Driver calls of each part of a trace. Where granules were remapped, their number stands below,
/// with those away from home at the end. Empty for a trace that is too short to tell.
fn convergence(report: &TraceReport) -> String {
    let Some(first) = report.runs.first().map(|run| &run.metrics.convergence) else {
        return String::new();
    };
    let parts = first.groups(GROUPS);
    if parts.len() < 4 || report.summary.events < 100 {
        return String::new();
    }
    let head = if first.is_by_iteration { "calls per iteration" } else { "calls by part" };
    let mut heads = vec![head.to_owned()];
    heads.extend(parts.iter().map(|(range, ..)| match range.len() {
        1 => format!("{}", range.start + 1),
        _ => format!("{}-{}", range.start + 1, range.end),
    }));
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for run in &report.runs {
        let groups = run.metrics.convergence.groups(GROUPS);
        let mean = |total: u64, length: usize| match first.is_by_iteration && length > 1 {
            true => format!("{:.1}", total as f64 / length as f64),
            false => count(total),
        };
        let row = |name: String, pick: fn(&(Range<usize>, u64, u64)) -> u64| {
            let cells = groups.iter().map(|group| mean(pick(group), group.0.len()));
            std::iter::once(name).chain(cells).collect()
        };
        table.row(row(run.label(), |group| group.1));
        let remaps = &run.metrics.remaps;
        if remaps.granule_remaps > 0 {
            table.row(row("  granules remapped".into(), |group| group.2));
        }
    }
    let mut text = table.render("  ");
    for run in report.runs.iter().filter(|run| run.metrics.remaps.granule_remaps > 0) {
        let remaps = &run.metrics.remaps;
        text.push_str(&format!(
            "  {}: {} remapped in all, {} away from home at the end; \
             {} than homes, over {} of addresses\n",
            run.label(),
            plural(remaps.granule_remaps, "granule"),
            count(remaps.remapped_granules),
            plural_of(remaps.aliases, "more mapping", "more mappings"),
            bytes(remaps.alias_bytes),
        ));
    }
    for run in report.runs.iter().filter(|run| run.metrics.remaps.moves > 0) {
        let Remaps { moves, moved_bytes, .. } = run.metrics.remaps;
        text.push_str(&format!(
            "  {}: {} of live memory, {} copied\n",
            run.label(),
            plural(moves, "move"),
            bytes(moved_bytes),
        ));
    }
    text
}

/// All traces together, one row per candidate: sums, and geometric means and worst cases.
///
/// Means are over the traces that every candidate served whole: a run that refused requests holds
/// less, and rows over different traces could not be compared.
pub fn overall<'a>(reports: &'a [TraceReport]) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let heads = "allocator|res/req mean|worst|ns/op mean|calls|steady calls|driver time|\
        /ideal mean|waits|OOM";
    let heads: Vec<_> = heads.split('|').collect();
    let mut table = Table::new(&heads);
    let is_served = |report: &&TraceReport| !report.ran_out_of_memory();
    for (index, label) in first.runs.iter().map(Run::label).enumerate() {
        let run = |report: &'a TraceReport| report.runs.get(index);
        let served: Vec<&Run> = reports.iter().filter(is_served).filter_map(run).collect();
        let runs: Vec<&Run> = reports.iter().filter_map(run).collect();
        let of = |pick: fn(&Run) -> Option<f64>| -> Vec<f64> {
            served.iter().filter_map(|run| pick(run)).collect()
        };
        let ratios = of(|run| run.reserved_per_requested);
        let times = of(|run| run.metrics.cpu_ns_per_operation);
        let over_ideal = of(|run| run.makespan_over_ideal);
        let worst = ratios.iter().copied().reduce(f64::max);
        let sum = |pick: fn(&Run) -> u64| count(runs.iter().map(|run| pick(run)).sum());
        table.row(vec![
            label,
            geometric_mean(&ratios).map_or("-".into(), ratio),
            worst.map_or("-".into(), ratio),
            nanoseconds(geometric_mean(&times)),
            sum(|run| run.metrics.driver_calls),
            sum(|run| run.metrics.steady_driver_calls),
            duration_us(runs.iter().map(|run| run.metrics.driver_time_us).sum()),
            geometric_mean(&over_ideal).map_or("-".into(), ratio),
            sum(|run| run.metrics.device_time.map_or(0, |time| time.stream_waits)),
            sum(|run| run.metrics.out_of_memory_events),
        ]);
    }
    let served = match reports.iter().filter(is_served).count() {
        served if served == reports.len() => String::new(),
        served => format!(" over the {served} that every allocator served whole"),
    };
    let all = reports.len();
    format!(
        "all {all} traces: geometric means and worst{served}, else sums\n{}",
        table.render("  ")
    )
}

pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// `1 stream`, `3 streams`.
pub fn plural(number: u64, noun: &str) -> String {
    plural_of(number, noun, &format!("{noun}s"))
}

fn plural_of(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::{geometric_mean, plural};

    #[test]
    fn means_and_plurals() {
        assert_eq!(geometric_mean(&[]), None);
        assert!(geometric_mean(&[2.0, 8.0]).is_some_and(|mean| (mean - 4.0).abs() < 1e-12));
        assert_eq!(plural(1, "stream"), "1 stream");
        assert_eq!(plural(0, "iteration"), "0 iterations");
    }
}
