//! What captures forbid, from the rows of `captures`.
//!
//! Invariant: what lies between two kinds is the stricter, and only a call that every mode and
//! thread was seen to make, with its capture whole afterwards, is legal.

use serde_json::Value;

use super::rows::Rows;
use crate::legality::{Legality, Rule};

/// What is known of a call that is not about the captured stream itself.
#[derive(Clone, Copy, Default)]
struct Seen {
    rows: usize,
    breaks: bool,
    breaks_relaxed: bool,
}

/// Every row of the table that was measured in each mode.
pub(super) fn of(rows: &Rows<'_>) -> Vec<(&'static str, Legality)> {
    let mut found = Vec::new();
    for rule in Rule::table() {
        let mut seen = Seen::default();
        rows.of("captures").filter(|row| is_about(row, rule)).for_each(|row| seen.note(row));
        found.extend(seen.legality(rule).map(|legality| (rule.function, legality)));
    }
    found
}

/// `"cuEventRecord, other"` is about `cuEventRecord`; `"cuStreamGetId, captured"` about a rule of
/// its own.
fn is_about(row: &Value, rule: &Rule) -> bool {
    let name = row["call"].as_str().unwrap_or_default();
    let (function, of) = name.split_once(", ").unwrap_or((name, ""));
    function == rule.function && of != "captured"
}

impl Seen {
    /// A call that failed, though not for the capture's sake, says nothing.
    fn note(&mut self, row: &Value) {
        /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` and those after it.
        const OF_CAPTURES: std::ops::RangeInclusive<i64> = 900..=908;
        let returned = row["returned"].as_i64().unwrap_or(-1);
        let breaks = OF_CAPTURES.contains(&returned) || row["ended"] != 0;
        if returned != 0 && !breaks {
            return;
        }
        self.rows += 1;
        self.breaks |= breaks;
        self.breaks_relaxed |= breaks && row["mode"] == "relaxed";
    }

    fn legality(self, rule: &Rule) -> Option<Legality> {
        const MODES_AND_THREADS: usize = 6;
        if self.rows < MODES_AND_THREADS {
            return None;
        }
        Some(match (self.breaks, self.breaks_relaxed) {
            (false, _) if rule.legality == Legality::Captured => Legality::Captured,
            (false, _) => Legality::Always,
            (true, false) => Legality::Unsafe,
            (true, true) => Legality::Nobody,
        })
    }
}
