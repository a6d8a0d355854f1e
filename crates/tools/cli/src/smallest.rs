//! The smallest device on which an allocator serves a whole trace.
//!
//! Found by halving, to one granule. An allocator need not be monotonic (more memory may in
//! principle hurt it), so the answer is a size that works next to one that does not.

use anyhow::Result;
use drystone_models::Candidate;
use drystone_trace::metrics::Summary;
use drystone_trace::model::Trace;
use drystone_trace::replay::{self, Options};

use crate::args::{Capacity, GRANULE_BYTES};
use crate::candidates::Device;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smallest {
    /// The smallest device that works, in bytes; absent where even an ample one does not.
    pub capacity_bytes: Option<u64>,
    /// How often the trace was replayed to find it.
    pub replays: u32,
}

/// Looks for it on devices that are like an ample one in all but their memory.
pub fn smallest(trace: &Trace, candidate: &Candidate, ample: &Device) -> Result<Smallest> {
    let mut replays = 1;
    let mut works = |granules: u64| -> Result<bool> {
        replays += 1;
        let device = Device { capacity_bytes: granules * GRANULE_BYTES, ..*ample };
        let mut allocator = device.build(candidate, trace)?;
        Ok(replay::completes(trace, allocator.as_mut()))
    };
    let peak_requested_bytes = Summary::of(trace).peak_requested_bytes;
    let capacity_bytes = match unhindered(trace, candidate, ample)? {
        None => None,
        Some(unhindered) => {
            let mut low = Capacity::Bytes(peak_requested_bytes).resolve(0) / GRANULE_BYTES;
            let mut high = unhindered.max(low);
            while !works(high)? {
                low = high + 1;
                high += high.div_ceil(16);
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if works(middle)? { high = middle } else { low = middle + 1 }
            }
            Some(high * GRANULE_BYTES)
        }
    };
    Ok(Smallest { capacity_bytes, replays })
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
