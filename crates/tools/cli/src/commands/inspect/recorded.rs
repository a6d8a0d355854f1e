//! What a recording knows beyond its events: the memory its allocator held, what it refused, and
//! who in the program held the peak.

use drystone_trace::metrics::{Holder, Summary, holders};
use drystone_trace::model::{Kind, Trace};

use crate::output::printable;
use crate::report::text::plural;
use crate::units::{bytes, count, duration_us, ratio};

/// Places shown in the table of holders.
const MOST_HOLDERS: usize = 12;
/// Failed requests shown.
const MOST_REFUSED: usize = 5;
/// Bars in the row that shows the recorded memory.
const COLUMNS: u64 = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What a recording knows beyond its events.
#[derive(Debug, serde::Serialize)]
pub(super) struct Recorded {
    peak_reserved_bytes: u64,
    live_at_start: u32,
    missed_frees: u32,
    /// Of actions that are not known.
    unknown_entries: u64,
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

impl Recorded {
    /// `None` for a trace that is no recording.
    pub(super) fn of(trace: &Trace, summary: &Summary) -> Option<Self> {
        let recording = trace.recording.as_ref()?;
        let refused = trace.events.iter().enumerate().filter(|(_, e)| e.kind == Kind::OutOfMemory);
        let refused = refused.map(|(event, e)| Refused {
            event,
            time_ns: e.time_ns,
            bytes: e.bytes,
            stream: e.stream,
        });
        Some(Self {
            peak_reserved_bytes: recording.peak_reserved_bytes(),
            live_at_start: recording.live_at_start,
            missed_frees: recording.missed_frees,
            unknown_entries: recording.snapshot.unknown_entries,
            late_completions: trace.completions.len(),
            out_of_memory: refused.collect(),
            peak_holders: holders(trace, summary.peak_event),
            reserved: recording.reserved.iter().map(|point| (point.time_ns, point.bytes)).collect(),
        })
    }

    /// One line of figures.
    pub(super) fn line(&self, summary: &Summary) -> String {
        let mut text = format!("peak reserved {}", bytes(self.peak_reserved_bytes));
        let requested = summary.peak_requested_bytes;
        if requested > 0 {
            let per_requested = self.peak_reserved_bytes as f64 / requested as f64;
            text.push_str(&format!(" ({} of requested)", ratio(per_requested)));
        }
        for (number, what) in [
            (u64::from(self.live_at_start), "live before recording"),
            (self.late_completions as u64, "freed while another stream used it"),
            (u64::from(self.missed_frees), "freed without a record"),
        ] {
            if number > 0 {
                text.push_str(&format!("; {} {what}", plural(number, "block")));
            }
        }
        if self.unknown_entries > 0 {
            let entries = count(self.unknown_entries);
            text.push_str(&format!("; left out: {entries} entries of unknown kinds"));
        }
        text
    }

    /// The recorded curve of reserved memory as a row of bars, from 0 to its peak.
    pub(super) fn reserved_bars(&self, summary: &Summary) -> String {
        let (peak, end_ns) = (self.peak_reserved_bytes, summary.duration_ns);
        if peak == 0 || end_ns == 0 {
            return String::new();
        }
        let mut points = self.reserved.iter().peekable();
        let mut now = 0;
        let bar = |column: u64| {
            // The highest value within the column, so that no peak is lost.
            let part = u128::from(end_ns) * u128::from(column + 1) / u128::from(COLUMNS);
            let mut highest = now;
            while let Some(&(_, bytes)) = points.next_if(|point| u128::from(point.0) <= part) {
                now = bytes;
                highest = highest.max(now);
            }
            BARS[(highest as f64 / peak as f64 * 7.0).round().min(7.0) as usize]
        };
        (0..COLUMNS).map(bar).collect()
    }

    /// The first requests that failed, a line each.
    pub(super) fn refused(&self) -> String {
        let mut text = String::new();
        for refused in self.out_of_memory.iter().take(MOST_REFUSED) {
            text.push_str(&format!(
                "  out of memory at event {}, {}: {} on stream {}\n",
                refused.event,
                duration_us(refused.time_ns as f64 / 1e3),
                bytes(refused.bytes),
                refused.stream,
            ));
        }
        let more = self.out_of_memory.len().saturating_sub(MOST_REFUSED);
        if more > 0 {
            text.push_str(&format!("  and {} more\n", count(more as u64)));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Who holds the peak, a line per place in the program.
    pub(super) fn holders(&self) -> String {
        if self.peak_holders.is_empty() {
            return String::new();
        }
        let mut text = String::from("  who holds the peak\n");
        for holder in self.peak_holders.iter().take(MOST_HOLDERS) {
            let place = holder.at.as_deref().unwrap_or("no frame recorded");
            let from = holder.from.as_ref().map(|from| format!(", from {from}"));
            let (bytes, blocks) = (bytes(holder.bytes), plural(holder.blocks, "block"));
            let from = from.unwrap_or_default();
            // Names in files that others have made may hold anything.
            let place = printable(&format!("{place}{from}"));
            text.push_str(&format!("  {bytes:>10}  {blocks:>11}  {place}\n"));
        }
        let rest = self.peak_holders.iter().skip(MOST_HOLDERS);
        let (places, rest) = rest.fold((0, 0), |sum, holder| (sum.0 + 1, sum.1 + holder.bytes));
        if places > 0 {
            let places = plural(places, "other place");
            text.push_str(&format!("  {:>10}  at {places}\n", bytes(rest)));
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::{Recorded, Refused};
    use drystone_trace::metrics::Summary;

    fn recorded() -> Recorded {
        let refused = |event| Refused { event, time_ns: 2_000_000, bytes: 1 << 30, stream: 1 };
        Recorded {
            peak_reserved_bytes: 700,
            live_at_start: 2,
            missed_frees: 0,
            unknown_entries: 0,
            late_completions: 1,
            out_of_memory: (0..7).map(refused).collect(),
            peak_holders: Vec::new(),
            reserved: vec![(0, 100), (50, 700), (51, 300)],
        }
    }

    #[test]
    fn bars_keep_the_peak_of_each_column() {
        let summary = Summary { duration_ns: 60, ..Summary::default() };
        let bars = recorded().reserved_bars(&summary);
        assert_eq!(bars, format!("{}██{}", "▂".repeat(49), "▄".repeat(9)));
    }

    #[test]
    fn lines_say_what_is_unusual() {
        let summary = Summary { peak_requested_bytes: 350, ..Summary::default() };
        let expected = "peak reserved 700 B (2.0000 of requested); 2 blocks live before \
                        recording; 1 block freed while another stream used it";
        assert_eq!(recorded().line(&summary), expected);
        let refused = recorded().refused();
        assert!(refused.starts_with("  out of memory at event 0, 2.000 ms: 1.000 GiB on stream 1"));
        assert!(refused.ends_with("  and 2 more\n\n"), "{refused}");
    }
}
