//! The answer in about ten lines, each with a figure, and with the command that shows more.
//!
//! Invariant: a line of which nothing is known, or whose figure is nothing, is left out.

use drystone_trace::metrics::Holder;

use super::answer::Answer;
use super::held::Held;
use super::refused::Refused;
use super::replayed::Replayed;
use crate::output::printable;
use crate::report::text::plural;
use crate::units::{bytes, duration_us};

/// Places in the program that are named.
const MOST_HOLDERS: usize = 3;
/// A share below this is not worth a line.
const LEAST_SHARE: f64 = 0.01;
/// Iterations before this one warm up: their peaks may grow.
const WARM: usize = 3;
/// So many after them tell.
const LEAST_ITERATIONS: usize = 5;

pub(super) fn text(report: &Answer) -> String {
    let mut lines = Vec::new();
    lines.extend(verdict(report));
    lines.push(in_use(report));
    lines.extend(by_whom(report));
    lines.extend(growth(report));
    if let Some(held) = &report.held {
        lines.extend(held_lines(held, report));
    }
    lines.extend(elsewhere(report));
    lines.extend(advice(report));
    let mut text = format!("{}\n", printable(&report.trace));
    for line in lines {
        let head = if line.starts_with(' ') { "  " } else { "- " };
        text.push_str(&format!("{head}{}\n", printable(&line)));
    }
    text + "\n"
}

/// Why memory ran out, or that it did not.
fn verdict(report: &Answer) -> Vec<String> {
    let Some(refused) = &report.refused else {
        let held = match report.peak_reserved_bytes {
            0 => String::new(),
            held => format!(
                " The allocator held {} at most, {:.2} times what was in use at most.",
                bytes(held),
                held as f64 / report.summary.peak_requested_bytes.max(1) as f64,
            ),
        };
        return vec![format!("No request was refused while this was recorded.{held}")];
    };
    let mut lines = vec![ran_out(refused)];
    let Some(is_beyond) = refused.is_beyond_device() else { return lines };
    let device = bytes(refused.device_bytes.unwrap_or(0));
    let needed = bytes(refused.needed_bytes());
    lines.push(if is_beyond {
        format!(
            "The program needs more than there is: {} in use and {} more make {needed}, and it \
             could have {device} of the GPU. No allocator helps; use less.",
            bytes(refused.live_bytes),
            bytes(refused.bytes),
        )
    } else {
        format!(
            "The memory was there, in pieces: {needed} with this request, of {device} that the \
             program could have. This is fragmentation.",
        )
    });
    lines
}

fn ran_out(refused: &Refused) -> String {
    let known = refused.free_bytes.filter(|&bytes| bytes > 0);
    let free = known.map(|free| format!("; the GPU had {} free", bytes(free)));
    let more = match refused.count {
        1 => String::new(),
        count => format!(" It is the last of {count} refused requests."),
    };
    format!(
        "Memory ran out {} after the start: {} were asked for, with {} in use{}.{more}",
        duration_us(refused.time_ns as f64 / 1e3),
        bytes(refused.bytes),
        bytes(refused.live_bytes),
        free.unwrap_or_default(),
    )
}

fn in_use(report: &Answer) -> String {
    let summary = &report.summary;
    let large = summary.sizes.iter().max_by_key(|class| class.peak_bytes);
    let sizes = large.filter(|class| class.peak_bytes > 0).map(|class| {
        format!(
            "; {} of it in blocks of {} to {}",
            bytes(class.peak_bytes),
            bytes(class.upper_bytes / 2),
            bytes(class.upper_bytes)
        )
    });
    format!(
        "In use: {} at most, in {}{}. More: drystone inspect {}",
        bytes(summary.peak_requested_bytes),
        plural(summary.peak_blocks, "block"),
        sizes.unwrap_or_default(),
        report.file,
    )
}

fn by_whom(report: &Answer) -> Vec<String> {
    let total: u64 = report.holders.iter().map(|holder| holder.bytes).sum();
    let when = if report.refused.is_some() { "then" } else { "of that" };
    let line = |holder: &Holder, place: &str| {
        let share = 100.0 * holder.bytes as f64 / total.max(1) as f64;
        let from = holder.from.as_ref().map(|from| format!(", from {from}")).unwrap_or_default();
        format!("  {share:.0} % {when}, {}: {place}{from}", bytes(holder.bytes))
    };
    let named = report.holders.iter().filter_map(|h| Some(line(h, h.at.as_deref()?)));
    let mut lines: Vec<String> = named.take(MOST_HOLDERS).collect();
    let unknown: u64 =
        report.holders.iter().filter(|holder| holder.at.is_none()).map(|h| h.bytes).sum();
    if unknown as f64 >= LEAST_SHARE * total as f64 && unknown > 0 {
        let how = if report.live_at_start > 0 {
            "was there before recording began: call _record_memory_history first"
        } else {
            "has no stack: _record_memory_history(stacks=\"python\") records them"
        };
        lines.push(format!("  {} of it {how}", bytes(unknown)));
    }
    lines
}

/// Peaks of iterations that grow: something is kept.
fn growth(report: &Answer) -> Option<String> {
    let peaks = report.summary.iteration_peak_bytes.get(WARM..)?;
    let (&first, &last) = (peaks.first()?, peaks.last()?);
    let grows = peaks.len() >= LEAST_ITERATIONS && peaks.windows(2).all(|pair| pair[0] < pair[1]);
    let is_much = last.saturating_sub(first) as f64 >= LEAST_SHARE * first as f64;
    (grows && is_much).then(|| {
        format!(
            "Every iteration uses more than the one before: {} in the {}th, {} in the last. \
             Something keeps tensors.",
            bytes(first),
            WARM + 1,
            bytes(last),
        )
    })
}

fn held_lines(held: &Held, report: &Answer) -> Vec<String> {
    let mut lines = vec![format!(
        "Held when the snapshot was taken: {}, of which {} in use and {} unused.",
        bytes(held.reserved_bytes),
        bytes(held.allocated_bytes),
        bytes(held.unused_bytes),
    )];
    let is_worth = |part: u64| part as f64 >= LEAST_SHARE * held.reserved_bytes as f64 && part > 0;
    if is_worth(held.unused_bytes) {
        let (whole, all) = (held.unused_granules_bytes, held.unused_bytes);
        let fits = report.refused.as_ref().map(|refused| {
            let is_large = held.largest_free_bytes >= refused.bytes;
            if is_large { "; the request fits in it" } else { "; the request does not fit in it" }
        });
        lines.push(format!(
            "  The unused: {} in whole pieces of 2 MiB, which can be remapped; {} in smaller ones. \
             The largest free block has {}{}.",
            bytes(whole),
            bytes(all - whole),
            bytes(held.largest_free_bytes),
            fits.unwrap_or_default(),
        ));
    }
    let also = [
        (held.other_streams_bytes, "unused on other streams; PyTorch keeps it for those"),
        (
            held.private_unused_bytes,
            "unused in private pools: of CUDA graphs, or the program's own",
        ),
        (held.pending_bytes, "freed, but another stream may still use it (record_stream)"),
        (held.rounding_bytes, "lost to rounding of sizes"),
    ];
    for (part, what) in also.into_iter().filter(|&(part, _)| is_worth(part)) {
        lines.push(format!("  {} {what}.", bytes(part)));
    }
    lines
}

/// The same program through each allocator.
fn elsewhere(report: &Answer) -> Vec<String> {
    if report.summary.allocations == 0 {
        return vec![
            "No history was recorded, so nothing can be replayed: call \
                     torch.cuda.memory._record_memory_history() first."
                .into(),
        ];
    }
    let held =
        report.replayed.iter().map(|one| format!("{} {}", one.allocator, bytes(one.held_bytes)));
    let mut lines = vec![format!(
        "Replayed with ample memory, they hold: {}. More: drystone compare {}",
        held.collect::<Vec<_>>().join(", "),
        report.file,
    )];
    let on_device = |one: &Replayed| {
        let outcome = if one.is_served? { "serves all of it" } else { "runs out" };
        Some(format!("{} {outcome}", one.allocator))
    };
    let outcomes: Vec<String> = report.replayed.iter().filter_map(on_device).collect();
    if !outcomes.is_empty() {
        lines.push(format!(
            "Replayed on this GPU, the refused request included: {}. The smallest GPU for each: \
             drystone fit {}",
            outcomes.join(", "),
            report.file,
        ));
    }
    lines
}

fn advice(report: &Answer) -> Option<String> {
    if report.refused.as_ref().and_then(Refused::is_beyond_device) == Some(true) {
        let largest = report.holders.first().and_then(|holder| holder.at.as_deref());
        let place = largest.map(|at| format!(" Begin at {at}.")).unwrap_or_default();
        return Some(format!(
            "To change it: smaller batches, checkpointing, a sharded or 8-bit optimizer.{place}"
        ));
    }
    let served = |one: &&Replayed| one.is_served == Some(true);
    if let Some(first) = report.replayed.iter().find(served) {
        return Some(format!("To change it: {}", how(first.allocator)));
    }
    let own = report.peak_reserved_bytes;
    let best = report.replayed.iter().min_by_key(|one| one.held_bytes)?;
    let saved = own.saturating_sub(best.held_bytes);
    if own == 0 || (saved as f64) < LEAST_SHARE * own as f64 {
        let none = "To change it, use less: another allocator would hold as much.";
        return (own > 0).then(|| none.into());
    }
    Some(format!("To change it: {}; {} less than was held.", how(best.allocator), bytes(saved)))
}

fn how(allocator: &str) -> &'static str {
    match allocator {
        "Drystone" => "python -m drystone SCRIPT",
        "expandable segments" => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        _ => "PyTorch's allocator as it is by default",
    }
}
