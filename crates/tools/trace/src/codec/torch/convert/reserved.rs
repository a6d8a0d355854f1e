//! How much memory the recording allocator held over time.
//!
//! Invariant: the curve ends at the sum of the segments, so what was held before recording began
//! is in it; its steps are those of the segment entries, none left out.

use crate::snapshot::{Action, Entry, ReservedPoint, Segment};

pub(super) fn curve(entries: &[Entry], segments: &[&Segment], base_us: i64) -> Vec<ReservedPoint> {
    let delta = |entry: &Entry| match entry.action {
        Action::SegmentAlloc | Action::SegmentMap => i128::from(entry.bytes),
        Action::SegmentFree | Action::SegmentUnmap => -i128::from(entry.bytes),
        _ => 0,
    };
    let end: i128 = segments.iter().map(|segment| i128::from(segment.bytes)).sum();
    let mut held = end - entries.iter().map(delta).sum::<i128>();
    // A recording with holes could begin below nothing, or rise above all addresses.
    let bytes = |held: i128| u64::try_from(held.max(0)).unwrap_or(u64::MAX);
    let mut curve = vec![ReservedPoint { time_ns: 0, bytes: bytes(held) }];
    let mut now_ns = 0;
    for entry in entries {
        let us = u64::try_from(entry.time_us.saturating_sub(base_us)).unwrap_or(0);
        now_ns = us.saturating_mul(1000).max(now_ns);
        if delta(entry) != 0 {
            held += delta(entry);
            curve.push(ReservedPoint { time_ns: now_ns, bytes: bytes(held) });
        }
    }
    curve
}
