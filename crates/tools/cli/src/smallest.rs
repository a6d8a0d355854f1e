//! The smallest device on which an allocator serves a whole trace.
//!
//! Found by halving, to one granule. An allocator need not be monotonic (more memory may in
//! principle hurt it), so the answer is a size that works next to one that does not. Larger sizes,
//! up to a little above the need, can be tried, too: then it is told from where on each of them
//! works.

use anyhow::Result;
use drystone_models::Candidate;
use drystone_trace::metrics::Summary;
use drystone_trace::model::Trace;
use drystone_trace::replay::{self, Options};

use crate::args::{Capacity, GRANULE_BYTES};
use crate::candidates::Device;

/// Larger sizes are tried up to this many hundredths of what a trace needs.
const SAMPLED_TO_PERCENT: u64 = 104;
/// So many of them, evenly apart.
const SAMPLES: u64 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smallest {
    /// The smallest device that works, in bytes; absent where even an ample one does not.
    pub capacity_bytes: Option<u64>,
    /// The smallest of the sizes tried from which all larger ones work, too, in bytes. Absent where
    /// none larger was tried, or the largest does not work.
    pub served_from_bytes: Option<u64>,
    /// How often the trace was replayed to find it.
    pub replays: u32,
}

/// Looks for it on devices that are like an ample one in all but their memory.
pub fn smallest(trace: &Trace, candidate: &Candidate, ample: &Device) -> Result<Smallest> {
    search(trace, candidate, ample, 0)
}

/// The same, and from where on all larger devices work.
pub fn smallest_of_all(trace: &Trace, candidate: &Candidate, ample: &Device) -> Result<Smallest> {
    search(trace, candidate, ample, SAMPLED_TO_PERCENT)
}

/// The same; larger sizes are tried up to so many hundredths of what the trace needs.
fn search(trace: &Trace, candidate: &Candidate, ample: &Device, percent: u64) -> Result<Smallest> {
    let mut replays = 1;
    let mut works = |granules: u64| -> Result<bool> {
        replays += 1;
        let device = Device { capacity_bytes: granules * GRANULE_BYTES, ..*ample };
        let mut allocator = device.build(candidate, trace)?;
        Ok(replay::completes(trace, allocator.as_mut()))
    };
    let Summary { peak_requested_bytes, needed_bytes, .. } = Summary::of(trace);
    let least = Capacity::Bytes(peak_requested_bytes).resolve(0) / GRANULE_BYTES;
    let unhindered = unhindered(trace, candidate, ample)?;
    let found = unhindered.map(|from| halve(least, from, &mut works)).transpose()?;
    let most = needed_bytes * percent / 100 / GRANULE_BYTES;
    let from = found.map(|found| served_from(found, most, &mut works)).transpose()?.flatten();
    let [capacity_bytes, served_from_bytes] =
        [found, from].map(|size| size.map(|granules| granules * GRANULE_BYTES));
    Ok(Smallest { capacity_bytes, served_from_bytes, replays })
}

/// The smallest size that works, in granules, by halving between the least there may be and the
/// first that works from `unhindered` on.
fn halve(least: u64, unhindered: u64, works: &mut impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let (mut low, mut high) = (least, unhindered.max(least));
    while !works(high)? {
        low = high + 1;
        high += high.div_ceil(16);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if works(middle)? { high = middle } else { low = middle + 1 }
    }
    Ok(high)
}

/// The smallest size, of `found` and some up to `most`, from which all of them work, in granules.
fn served_from(
    found: u64,
    most: u64,
    works: &mut impl FnMut(u64) -> Result<bool>,
) -> Result<Option<u64>> {
    let between = most.saturating_sub(found);
    let samples = SAMPLES.min(between);
    let mut from = None;
    // The largest first: below one that does not work nothing is asked.
    for at in (1..=samples).rev() {
        let size = found + between * at / samples;
        if !works(size)? {
            return Ok(from);
        }
        from = Some(size);
    }
    Ok(from.map(|_| found))
}

/// Granules that an allocator takes when nothing stops it: the first size to try. `None` where it
/// runs out of memory even so.
fn unhindered(trace: &Trace, candidate: &Candidate, ample: &Device) -> Result<Option<u64>> {
    let mut allocator = ample.build(candidate, trace)?;
    let options = Options { timed_passes: 0, curve_points: 1 };
    let metrics = replay::run(trace, allocator.as_mut(), &options).metrics;
    let granules = metrics.peak_reserved_bytes.div_ceil(GRANULE_BYTES).max(1);
    Ok((metrics.out_of_memory_events == 0).then_some(granules))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both answers where just these sizes work, and how many were tried.
    fn found(sizes: impl Fn(u64) -> bool, most: u64) -> (u64, Option<u64>, Vec<u64>) {
        let mut tried = Vec::new();
        let mut works = |size| {
            tried.push(size);
            Ok(sizes(size))
        };
        let found = halve(100, 120, &mut works).unwrap();
        let from = served_from(found, most, &mut works).unwrap();
        (found, from, tried)
    }

    #[test]
    fn where_every_larger_size_works_both_answers_are_the_same() {
        let (found, from, tried) = found(|size| size >= 107, 120);
        assert_eq!((found, from), (107, Some(107)));
        assert!((108..=120).all(|size| tried.contains(&size)));
    }

    #[test]
    fn a_larger_size_that_does_not_work_is_told() {
        let works = |size| size == 106 || size >= 113;
        assert_eq!(found(works, 120).0, 113);
        // What halving meets first is the smaller one.
        let works = |size| size == 105 || size == 110 || size >= 113;
        let (found, from, tried) = found(works, 120);
        assert_eq!((found, from), (105, Some(113)));
        assert!(tried.contains(&112) && !tried.contains(&107));
    }

    #[test]
    fn nothing_is_said_where_no_size_above_was_tried_or_the_largest_does_not_work() {
        assert_eq!(found(|size| size >= 110, 110).1, None);
        assert_eq!(found(|size| size >= 110, 104).1, None);
        assert_eq!(found(|size| size >= 105 && size != 120, 120).1, None);
    }

    #[test]
    fn of_a_wide_range_some_sizes_are_tried() {
        let (found, from, tried) = found(|size| size >= 101, 4000);
        assert_eq!((found, from), (101, Some(101)));
        assert!(tried.len() < 50 && tried.contains(&4000));
    }
}
