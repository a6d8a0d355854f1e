//! The invariants that hold alike for a heap and for the driver's pools, each of both as a function
//! of what it speaks of: counters (I8), and blocks that wait for fences (I9).

use std::fmt::Debug;

use crate::broken::{Broken, hold};
use crate::counters::Counters;
use crate::fence::Streams;
use crate::space::block::{BlockIndex, BlockState, NO_USES};
use crate::stats::{Gauge, Stats};

impl Counters {
    /// Counts a block that is live, or freed but still in use, in a walk over all.
    pub(crate) fn count(&mut self, class: usize, requested: u64, bytes: u64, state: BlockState) {
        self.allocate(class, requested, bytes);
        if state != BlockState::Live {
            self.free(class, bytes);
        }
        if state == BlockState::Quarantined {
            self.rare.quarantined_bytes += bytes;
        }
    }
}

/// The counters are those of a walk, and requested <= active, allocated <= active <= reserved, in
/// each class and in all.
pub(crate) fn check_i8_counters(stored: Stats, walked: Stats) -> Result<(), Broken> {
    let current = |of: Stats| {
        let each = [of.all, of.classes[0], of.classes[1]];
        each.map(|one| one.gauges().map(|gauge| gauge.current))
    };
    let (found, held) = (current(walked), current(stored));
    hold(8, found == held, || format!("walked {found:?}, stored {held:?}"))?;
    for [requested, allocated, active, reserved, ..] in held {
        let is_ordered = requested <= active && allocated <= active && active <= reserved;
        hold(8, is_ordered, || format!("not in order: {held:?}"))?;
    }
    let (found, held) = (walked.quarantined_bytes, stored.quarantined_bytes);
    hold(8, found == held, || format!("{found} bytes are quarantined, not {held}"))
}

/// A gauge says what a walk found, and no more than its peak.
pub(crate) fn check_i8_gauge(gauge: Gauge, walked: u64, of: impl Debug) -> Result<(), Broken> {
    let Gauge { current, peak, .. } = gauge;
    hold(8, walked == current && current <= peak, || {
        format!("{of:?}: walked {walked}, stored {current} of {peak}")
    })
}

/// A block is queued once for each of its uses if it is pending, and else not at all; and no fence
/// that is waited for has passed. Of each block: whether it is pending, and its uses.
pub(crate) fn check_i9_waiting(
    streams: &Streams,
    blocks: impl Iterator<Item = (BlockIndex, bool, u32)>,
) -> Result<(), Broken> {
    // How many fences each block waits for.
    let mut waits_of: Vec<usize> = Vec::new();
    for index in streams.indices() {
        let stream = streams.at(index);
        let mut last = 0;
        for (point, block) in stream.waiting() {
            hold(9, point > stream.passed && point >= last, || {
                format!("point {point} of {index:?} should have been served")
            })?;
            last = point;
            let at = block.0 as usize;
            waits_of.resize(waits_of.len().max(at + 1), 0);
            waits_of[at] += 1;
        }
    }
    let (mut waited, mut used) = (0, 0);
    for (index, is_pending, uses) in blocks {
        let waits = waits_of.get(index.0 as usize).copied().unwrap_or(0);
        let expected = if is_pending { streams.uses.get(uses).len() } else { 0 };
        hold(9, waits == expected && is_pending == (waits > 0), || {
            format!("{index:?} waits for {waits} fences, {expected} uses")
        })?;
        waited += waits;
        used += usize::from(uses != NO_USES);
    }
    let queued: usize = waits_of.iter().sum();
    hold(9, waited == queued, || format!("{queued} waits, of which {waited} are of blocks"))?;
    hold(9, used == streams.uses.len(), || {
        format!("{used} blocks have uses, {} are recorded", streams.uses.len())
    })
}
