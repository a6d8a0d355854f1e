//! `drystone inspect`: what is in a trace or a snapshot, before anything replays it.

use anyhow::Result;
use drystone_trace::metrics::{Holder, Share, SizeClass, Summary, holders};
use drystone_trace::model::{Kind, Trace};

use super::Ended;
use super::session::{self, Tables};
use crate::args::Files;
use crate::input::{self, Input};
use crate::jobs::Progress;
use crate::report::text::plural;
use crate::table::Table;
use crate::units::{self, bytes, count, duration_us, ratio};

/// Options of `inspect`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// Print JSON in place of the tables
    #[arg(long)]
    json: bool,
}

/// What is in one trace.
#[derive(Debug, serde::Serialize)]
struct Report {
    file: String,
    trace: String,
    summary: Summary,
    /// What the recording knows beyond the events; absent for traces that are no recordings.
    recorded: Option<Recorded>,
}

/// What a recording knows beyond its events.
#[derive(Debug, serde::Serialize)]
struct Recorded {
    peak_reserved_bytes: u64,
    live_at_start: u32,
    missed_frees: u32,
    /// Uses on other streams that outlived the free.
    late_completions: usize,
    out_of_memory: Vec<Refused>,
    /// Who holds the peak of the requested bytes, most bytes first.
    peak_holders: Vec<Holder>,
    /// The recorded allocator's memory: `[time_ns, bytes]`, whenever it changed.
    reserved: Vec<(u64, u64)>,
}

/// A request that failed when it was recorded.
#[derive(Debug, serde::Serialize)]
struct Refused {
    event: usize,
    time_ns: u64,
    bytes: u64,
    stream: u16,
}

/// Places shown in the table of holders.
const MOST_HOLDERS: usize = 12;
/// Failed requests shown.
const MOST_REFUSED: usize = 5;

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let work = |input: &Input, progress: &Progress| {
        let file = input.name();
        progress.show(&file);
        let inspect = |trace: &Trace| {
            let summary = Summary::of(trace);
            let recorded = recorded(trace, &summary);
            Report { file: file.clone(), trace: trace.name.clone(), summary, recorded }
        };
        let reports = input::read(input)?.iter().map(inspect).collect();
        progress.step(&file);
        Ok(reports)
    };
    let tables = Tables { command: "inspect", json: args.json, steps_per_file: 1 };
    let (_, errors) = tables.run(&args.files, work, text)?;
    Ok(session::ended(&errors, false))
}

fn text(report: &Report) -> String {
    let summary = &report.summary;
    let mut text = format!("{}\n", report.trace);
    for (head, line) in [
        ("events", events(summary)),
        ("memory", memory(summary)),
        ("lifetimes", lifetimes(summary)),
        ("iterations", iterations(summary)),
        ("recorded", recorded_line(report)),
        ("reserved", reserved_line(report)),
    ] {
        if !line.is_empty() {
            text.push_str(&format!("  {head:<11}{line}\n"));
        }
    }
    text.push('\n');
    text.push_str(&sizes(summary));
    text.push_str(&shares("stream", &summary.streams));
    text.push_str(&shares("pool", &summary.pools));
    if let Some(recorded) = &report.recorded {
        text.push_str(&refused_text(recorded));
        text.push_str(&holders_text(recorded));
    }
    text
}

fn recorded(trace: &Trace, summary: &Summary) -> Option<Recorded> {
    let recording = trace.recording.as_ref()?;
    let refused = trace.events.iter().enumerate().filter(|(_, e)| e.kind == Kind::OutOfMemory);
    Some(Recorded {
        peak_reserved_bytes: recording.peak_reserved_bytes(),
        live_at_start: recording.live_at_start,
        missed_frees: recording.missed_frees,
        late_completions: trace.completions.len(),
        out_of_memory: refused
            .map(|(event, e)| Refused {
                event,
                time_ns: e.time_ns,
                bytes: e.bytes,
                stream: e.stream,
            })
            .collect(),
        peak_holders: holders(trace, summary.peak_event),
        reserved: recording.reserved.iter().map(|point| (point.time_ns, point.bytes)).collect(),
    })
}

fn recorded_line(report: &Report) -> String {
    let Some(recorded) = &report.recorded else { return String::new() };
    let mut text = format!("peak reserved {}", bytes(recorded.peak_reserved_bytes));
    let requested = report.summary.peak_requested_bytes;
    if requested > 0 {
        let per_requested = recorded.peak_reserved_bytes as f64 / requested as f64;
        text.push_str(&format!(" ({} of requested)", ratio(per_requested)));
    }
    for (number, what) in [
        (u64::from(recorded.live_at_start), "live before recording"),
        (recorded.late_completions as u64, "freed while another stream used it"),
        (u64::from(recorded.missed_frees), "freed without a record"),
    ] {
        if number > 0 {
            text.push_str(&format!("; {} {what}", plural(number, "block")));
        }
    }
    text
}

/// The recorded curve of reserved memory as a row of bars, from 0 to its peak.
fn reserved_line(report: &Report) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const COLUMNS: u64 = 60;
    let Some(recorded) = &report.recorded else { return String::new() };
    let (peak, end_ns) = (recorded.peak_reserved_bytes, report.summary.duration_ns);
    if peak == 0 || end_ns == 0 {
        return String::new();
    }
    let mut points = recorded.reserved.iter().peekable();
    let mut now = 0;
    let bar = |column: u64| {
        // The highest value within the column, so that no peak is lost.
        let until_ns = (u128::from(end_ns) * u128::from(column + 1) / u128::from(COLUMNS)) as u64;
        let mut highest = now;
        while let Some(&(_, bytes)) = points.next_if(|point| point.0 <= until_ns) {
            now = bytes;
            highest = highest.max(now);
        }
        BARS[(highest as f64 / peak as f64 * 7.0).round().min(7.0) as usize]
    };
    (0..COLUMNS).map(bar).collect()
}

fn refused_text(recorded: &Recorded) -> String {
    let mut text = String::new();
    for refused in recorded.out_of_memory.iter().take(MOST_REFUSED) {
        text.push_str(&format!(
            "  out of memory at event {}, {}: {} on stream {}\n",
            refused.event,
            duration_us(refused.time_ns as f64 / 1e3),
            bytes(refused.bytes),
            refused.stream,
        ));
    }
    let more = recorded.out_of_memory.len().saturating_sub(MOST_REFUSED);
    if more > 0 {
        text.push_str(&format!("  and {} more\n", count(more as u64)));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn holders_text(recorded: &Recorded) -> String {
    if recorded.peak_holders.is_empty() {
        return String::new();
    }
    let mut text = String::from("  who holds the peak\n");
    for holder in recorded.peak_holders.iter().take(MOST_HOLDERS) {
        let place = holder.at.as_deref().unwrap_or("no frame recorded (backward pass or C++)");
        let from = holder.from.as_ref().map(|from| format!(", from {from}")).unwrap_or_default();
        let (bytes, blocks) = (bytes(holder.bytes), plural(holder.blocks, "block"));
        text.push_str(&format!("  {bytes:>10}  {blocks:>11}  {place}{from}\n"));
    }
    let rest = recorded.peak_holders.iter().skip(MOST_HOLDERS);
    let (places, rest) = rest.fold((0, 0), |sum, holder| (sum.0 + 1, sum.1 + holder.bytes));
    if places > 0 {
        text.push_str(&format!("  {:>10}  at {}\n", bytes(rest), plural(places, "other place")));
    }
    text + "\n"
}

fn events(summary: &Summary) -> String {
    let mut parts = vec![
        plural(summary.allocations, "allocation"),
        plural(summary.frees, "free"),
        plural(summary.iterations, "iteration"),
    ];
    for (number, noun) in [
        (summary.record_streams, "use on another stream"),
        (summary.empty_caches, "cache flush"),
        (summary.out_of_memory_events, "recorded out-of-memory event"),
    ] {
        if number > 0 {
            let many = noun.replace("use ", "uses ").replace("flush", "flushes");
            let noun = if number == 1 {
                noun.into()
            } else if many == noun {
                many + "s"
            } else {
                many
            };
            parts.push(format!("{} {noun}", count(number)));
        }
    }
    let duration = duration_us(summary.duration_ns as f64 / 1e3);
    format!("{} over {duration}: {}", count(summary.events), parts.join(", "))
}

fn memory(summary: &Summary) -> String {
    format!(
        "peak requested {} at event {} in {}; {} never freed ({})",
        bytes(summary.peak_requested_bytes),
        summary.peak_event,
        plural(summary.peak_blocks, "block"),
        plural(summary.lifetimes.never_freed, "block"),
        bytes(summary.left_bytes),
    )
}

fn lifetimes(summary: &Summary) -> String {
    let lifetimes = &summary.lifetimes;
    if summary.frees == 0 {
        return String::new();
    }
    let mut text = format!(
        "half of the freed blocks live at most {} events, 90 % {}, 99 % {}",
        count(lifetimes.median_events),
        count(lifetimes.p90_events),
        count(lifetimes.p99_events),
    );
    if summary.iterations > 0 {
        let share = 100.0 * lifetimes.within_iteration as f64 / summary.frees as f64;
        text.push_str(&format!("; {share:.1} % end in their own iteration"));
    }
    text
}

fn iterations(summary: &Summary) -> String {
    let mut peaks = summary.iteration_peak_bytes.clone();
    peaks.sort_unstable();
    let (Some(least), Some(most)) = (peaks.first(), peaks.last()) else { return String::new() };
    let median = peaks[peaks.len() / 2];
    let [least, median, most] = [*least, median, *most].map(bytes);
    format!("peak requested per iteration {least} to {most}, median {median}")
}

/// Sizes up to this are one class in the table: allocators round to it.
const SMALLEST_CLASS_BYTES: u64 = 512;

fn sizes(summary: &Summary) -> String {
    let mut classes: Vec<SizeClass> = Vec::new();
    for class in &summary.sizes {
        let upper_bytes = class.upper_bytes.max(SMALLEST_CLASS_BYTES);
        match classes.last_mut().filter(|last| last.upper_bytes == upper_bytes) {
            Some(last) => {
                last.allocations += class.allocations;
                last.bytes += class.bytes;
                last.peak_bytes += class.peak_bytes;
            }
            None => classes.push(SizeClass { upper_bytes, ..*class }),
        }
    }
    let most = classes.iter().map(|class| class.allocations).max().unwrap_or(1);
    let mut table = Table::new(&["size", "allocations", "bytes", "at the peak"]);
    for class in &classes {
        let bar = "#".repeat((class.allocations * 24).div_ceil(most) as usize);
        table.row(vec![
            format!("to {}", units::round_bytes(class.upper_bytes)),
            count(class.allocations),
            bytes(class.bytes),
            bytes(class.peak_bytes),
            format!("{bar:<24}"),
        ]);
    }
    format!("{}  {} different sizes\n\n", table.render("  "), count(summary.distinct_sizes))
}

/// The table of streams or pools; none where there is only one.
fn shares(noun: &str, shares: &[Share]) -> String {
    if shares.len() < 2 {
        return String::new();
    }
    let mut table = Table::new(&[noun, "allocations", "bytes", "peak requested"]);
    for (number, share) in shares.iter().enumerate() {
        table.row(vec![
            number.to_string(),
            count(share.allocations),
            bytes(share.bytes),
            bytes(share.peak_bytes),
        ]);
    }
    table.render("  ") + "\n"
}
