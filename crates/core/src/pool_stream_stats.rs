//! Pool-stream statistics: what one pool, class and stream have of a device's memory, with the peak
//! of what they had in use (I8).
//!
//! A block counts for the pool and stream that it was requested for, free memory for those whose
//! requests it serves first.

use crate::id::{PoolIx, StreamIx};
use crate::policy::SizeClass;
use crate::space::Space;
use crate::space::free_list::FreeList;
use crate::stats::Gauge;

/// What one pool, class and stream have, in bytes. Peaks are of their own: those of several need
/// not fall together, and do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PoolStreamStats {
    /// Position of the pool; 0 is the default pool.
    pub pool: usize,
    /// Small or large blocks.
    pub class: SizeClass,
    /// Position of the stream.
    pub stream: usize,
    /// Of a block that grows in place, which alone keeps what is free there.
    pub is_growing: bool,
    /// Live and pending blocks. Its `total` counts from the start, whatever was reset.
    pub active_bytes: Gauge,
    /// Live blocks.
    pub allocated_bytes: u64,
    /// Free blocks.
    pub free_bytes: u64,
    /// The largest free block.
    pub largest_free_bytes: u64,
}

impl PoolStreamStats {
    pub(crate) const fn new(
        pool: PoolIx,
        class: SizeClass,
        stream: StreamIx,
        active_bytes: Gauge,
    ) -> Self {
        Self {
            pool: pool.index(),
            class,
            stream: stream.index(),
            is_growing: false,
            active_bytes,
            allocated_bytes: 0,
            free_bytes: 0,
            largest_free_bytes: 0,
        }
    }

    /// Whether there is anything to tell: something in use since the peaks were reset, or free.
    pub(crate) const fn is_used(&self) -> bool {
        self.active_bytes.peak > 0 || self.free_bytes > 0
    }
}

impl Space {
    /// What each pool, class and stream has that has anything, or had since the peaks were reset.
    /// Looks at no blocks but the largest free ones.
    pub(crate) fn pool_stream_stats(&self) -> Vec<PoolStreamStats> {
        let of = |list: &FreeList| {
            let active_bytes = list.active_bytes.read();
            PoolStreamStats {
                allocated_bytes: active_bytes.current - list.leaving_bytes,
                free_bytes: list.free_bytes,
                largest_free_bytes: self.largest_of(list),
                ..PoolStreamStats::new(list.pool, list.class, list.stream, active_bytes)
            }
        };
        self.lists().iter().map(of).filter(PoolStreamStats::is_used).collect()
    }
}
