//! What a recorded trace knows beyond its events.
//!
//! Invariant: `addresses` and `stacks` run parallel to the trace's events.

use std::sync::Arc;

use super::parts::{PoolId, Snapshot};
use super::stacks::StackId;

/// The recording that a trace was made from, for one device.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The whole snapshot, shared by the traces of all its devices. Turning the trace back into
    /// a snapshot means writing this.
    pub snapshot: Arc<Snapshot>,
    /// Index of the device.
    pub device: u32,
    /// Time 0 of the trace, in microseconds since 1970.
    pub base_us: i64,
    /// By event: the recorded address of its block, 0 for kinds without a block.
    pub addresses: Vec<u64>,
    /// By event: who asked, if stacks were recorded.
    pub stacks: Vec<Option<StackId>>,
    /// By dense stream number: the stream's handle. The stream that stands for unknown other
    /// streams, if there is one, has the number after these.
    pub streams: Vec<u64>,
    /// By dense pool number: the pool.
    pub pools: Vec<PoolId>,
    /// How much memory the recording allocator held, whenever that changed; starts at time 0.
    pub reserved: Vec<ReservedPoint>,
    /// Blocks that were live before recording began: the first events of the trace.
    pub live_at_start: u32,
    /// Frees that the recording missed, as an address was given out again without one. They are
    /// put in right before that.
    pub missed_frees: u32,
}

/// A point of the recording allocator's reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedPoint {
    /// Nanoseconds since the first event.
    pub time_ns: u64,
    /// Reserved memory from here on, in bytes.
    pub bytes: u64,
}

impl Recording {
    /// The most memory that the recording allocator held, in bytes.
    pub fn peak_reserved_bytes(&self) -> u64 {
        self.reserved.iter().map(|point| point.bytes).max().unwrap_or(0)
    }
}
