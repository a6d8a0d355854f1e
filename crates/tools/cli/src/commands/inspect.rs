//! `drystone inspect`: what is in a trace or a snapshot, before anything replays it.

use anyhow::Result;
use drystone_trace::metrics::{Share, SizeClass, Summary};
use drystone_trace::model::Trace;

use super::each_file::{self, Ended, Tables};
use crate::args::Files;
use crate::jobs::Progress;
use crate::output::printable;
use crate::report::text::plural;
use crate::table::Table;
use crate::units::{self, bytes, count, duration_us};

mod recorded;

use recorded::Recorded;

/// Options of `inspect`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// Print JSON in place of the tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, serde::Serialize)]
struct Report {
    file: String,
    trace: String,
    summary: Summary,
    /// What the recording knows beyond the events; absent for traces that are no recordings.
    recorded: Option<Recorded>,
}

pub fn run(args: &Args) -> Result<Ended> {
    let work = |file: &str, trace: Trace, _: &Progress| {
        let summary = Summary::of(&trace);
        let recorded = Recorded::of(&trace, &summary);
        Ok(Report { file: file.to_owned(), trace: trace.name, summary, recorded })
    };
    let tables = Tables { command: "inspect", json: args.json, replays: 0 };
    let (_, errors) = tables.run(&args.files, work, text)?;
    Ok(each_file::ended(&errors, false))
}

fn text(report: &Report) -> String {
    let summary = &report.summary;
    let of_recording = |line: &dyn Fn(&Recorded, &Summary) -> String| {
        report.recorded.as_ref().map(|recorded| line(recorded, summary)).unwrap_or_default()
    };
    let mut text = format!("{}\n", printable(&report.trace));
    for (head, line) in [
        ("events", events(summary)),
        ("memory", memory(summary)),
        ("lifetimes", lifetimes(summary)),
        ("iterations", iterations(summary)),
        ("recorded", of_recording(&Recorded::line)),
        ("reserved", of_recording(&Recorded::reserved_bars)),
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
        text.push_str(&recorded.refused());
        text.push_str(&recorded.holders());
    }
    text
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
        (summary.host_waits, "wait for the device"),
        (summary.captures, "capture"),
    ] {
        if number > 0 {
            let many = noun.replace("use ", "uses ").replace("flush", "flushes");
            let many = many.replace("wait ", "waits ");
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
        "half of the freed blocks live at most {}, 90 % {}, 99 % {}",
        plural(lifetimes.median_events, "event"),
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
    let different = plural(summary.distinct_sizes, "different size");
    format!("{}  {different}\n\n", table.render("  "))
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
