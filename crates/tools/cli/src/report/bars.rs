//! Bars: the memory that each allocator needs for a program, against what the device has.
//!
//! Invariant: a bar is as long as the smallest device is larger than what the program uses at most;
//! the line through the bars is where the device ends.

use crate::output::printable;
use crate::report::text::{geometric_mean, plural};
use crate::runs::{Run, TraceReport};
use crate::units::{bytes, count, duration_us};

const COLUMNS: usize = 40;
/// What people call them, by their names.
const CALLED: [(&str, &str); 3] = [
    ("torch-native", "PyTorch"),
    ("torch-expandable", "PyTorch, expandable segments"),
    ("drystone-vmm", "Drystone"),
];

/// One trace: its replays on the device, and the smallest device for each allocator.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    pub replays: TraceReport,
    /// In the order of the runs, in bytes; absent where nothing was enough.
    pub needs: Vec<Option<u64>>,
}

impl Report {
    /// Bytes beyond what the program uses at most.
    fn beyond(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.replays.summary.peak_requested_bytes)
    }
}

/// The bars of one trace, and what they cost.
pub fn one(report: &Report) -> String {
    let TraceReport { trace, summary, capacity_bytes, runs, .. } = &report.replays;
    let peak = summary.peak_requested_bytes;
    let mut text = format!(
        "{}: {} on {}, recorded and replayed\n",
        printable(trace),
        plural(summary.allocations, "request"),
        plural(summary.streams.len() as u64, "stream"),
    );
    text.push_str(&format!(
        "It uses {} at most. The simulated GPU has {}, {:.3} times as much.\n\n\
         GPU memory that it needs beyond that, by allocator\n",
        bytes(peak),
        bytes(*capacity_bytes),
        *capacity_bytes as f64 / peak.max(1) as f64,
    ));
    let limit = report.beyond(*capacity_bytes);
    let most = report.needs.iter().flatten().map(|&need| report.beyond(need)).max().unwrap_or(0);
    let columns = |bytes: u64| {
        (bytes as u128 * COLUMNS as u128).div_ceil(u128::from(most.max(limit).max(1))) as usize
    };
    let end = columns(limit).min(COLUMNS - 2);
    let names = width();
    text.push_str(&format!(
        "  {:names$}  {}│ the GPU ends here: {}\n",
        "",
        " ".repeat(end),
        more(limit)
    ));
    for (run, need) in runs.iter().zip(&report.needs) {
        let length = need.map_or(COLUMNS, |need| {
            let is_beyond = need > *capacity_bytes;
            // However little is missing, the bar ends behind the line.
            columns(report.beyond(need)).max(if is_beyond { end + 2 } else { 1 })
        });
        let bar: String = (0..COLUMNS)
            .map(|column| match column {
                _ if column == end => '│',
                _ if column < length => '█',
                _ => ' ',
            })
            .collect();
        let need = need.map_or("nothing is enough".into(), |need| more(report.beyond(need)));
        text.push_str(&format!("  {:names$}  {bar} {need:>10}  {}\n", called(run), outcome(run)));
    }
    text + "\n" + &price(runs)
}

fn more(bytes_more: u64) -> String {
    format!("+{}", bytes(bytes_more))
}

fn outcome(run: &Run) -> String {
    match run.metrics.out_of_memory_events {
        0 => "runs".into(),
        refused => format!("OUT OF MEMORY: {} refused", plural(refused, "request")),
    }
}

/// What it cost on that device, whoever ran out of memory or not.
fn price(runs: &[Run]) -> String {
    let mut text = String::from("What that costs on this GPU\n");
    let names = width();
    for run in runs {
        let remaps = &run.metrics.remaps;
        let waits = run.metrics.device_time.map_or((0, 0), |t| (t.stream_waits, t.host_waits));
        text.push_str(&format!(
            "  {:names$}  {:>9} in {} driver calls; {} between streams, {} of the host",
            called(run),
            duration_us(run.metrics.driver_time_us),
            count(run.metrics.driver_calls),
            plural(waits.0, "wait"),
            count(waits.1),
        ));
        if remaps.moves > 0 {
            text.push_str(&format!("; {} of live memory moved", bytes(remaps.moved_bytes)));
        }
        text.push('\n');
    }
    text + "\n"
}

/// All traces in a line for each allocator, where there are several; and where to go from here.
pub fn end(reports: &[Report]) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let mut text = String::new();
    if reports.len() > 1 {
        text.push_str(&format!("All {} programs, each on such a GPU\n", reports.len()));
        let names = width();
        for (index, run) in first.replays.runs.iter().enumerate() {
            let served = reports.iter().filter(|report| served(report, index)).count();
            let needs: Vec<f64> =
                reports.iter().filter_map(|report| need_over_peak(report, index)).collect();
            let mean = geometric_mean(&needs).map_or("-".into(), |mean| format!("{mean:.3}"));
            let worst = needs.iter().copied().fold(1.0, f64::max);
            text.push_str(&format!(
                "  {:names$}  runs {served:>2}; needs {mean} times what a program uses, at worst \
                 {worst:.3}\n",
                called(run),
            ));
        }
        text.push('\n');
    }
    text.push_str(
        "Driver calls have published prices (--costs has three tables); Drystone has not run on a \
         real GPU yet.\n",
    );
    if reports.len() == 1 {
        text.push_str(
            "One program of 20; all:  drystone demo traces/*.csv.zst\n\
             Of your own program:     drystone why SNAPSHOT.pickle, of \
             torch.cuda.memory._dump_snapshot\n",
        );
    }
    text
}

fn served(report: &Report, index: usize) -> bool {
    report.replays.runs.get(index).is_some_and(|run| run.metrics.out_of_memory_events == 0)
}

fn need_over_peak(report: &Report, index: usize) -> Option<f64> {
    let need = report.needs.get(index).copied().flatten()?;
    let peak = report.replays.summary.peak_requested_bytes;
    (peak > 0).then(|| need as f64 / peak as f64)
}

fn called(run: &Run) -> &str {
    CALLED
        .iter()
        .find(|(name, _)| *name == run.allocator)
        .map_or(&run.allocator, |(_, called)| called)
}

fn width() -> usize {
    CALLED.iter().map(|(_, called)| called.len()).max().unwrap_or(0)
}
