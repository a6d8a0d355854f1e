//! A snapshot and what it is made of: segments with their blocks, entries of what happened.

use serde_json::{Map, Value};

use super::stacks::{StackId, Stacks};

/// A snapshot: the state of the allocator on every device, and what led to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// All devices' segments, as the allocator holds them at the end of the trace.
    pub segments: Vec<Segment>,
    /// Per device, what happened, oldest first. Empty where history was off.
    pub device_traces: Vec<Vec<Entry>>,
    /// `allocator_settings`, a dictionary; null where the file has none.
    pub settings: Value,
    /// `external_annotations`: dictionaries with `device`, `time_us`, `name`, `stage`.
    pub annotations: Vec<Value>,
    /// Entries left out, since what they tell of is not known here: newer PyTorches add actions.
    pub unknown_entries: u64,
    /// Every stack that segments, blocks and entries refer to.
    pub stacks: Stacks,
    /// Further keys of entries, shared by all entries that have the same ones.
    pub notes: Vec<Map<String, Value>>,
}

/// A pool of PyTorch's: (0, 0) is the default, (n, 0) a graph's own, (0, n) the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32, pub u32);

/// A segment, or for expandable segments one contiguous mapped part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Index of the device.
    pub device: u32,
    /// First address.
    pub address: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// Bytes of blocks that the program holds, after rounding.
    pub allocated_bytes: u64,
    /// The same with blocks that other streams may still use.
    pub active_bytes: u64,
    /// Bytes the program asked for, of the active blocks.
    pub requested_bytes: u64,
    /// Stream, as its handle's value.
    pub stream: u64,
    /// Whether requests of up to 1 MiB share it.
    pub is_small: bool,
    /// Pool; `None` in files older than pool ids.
    pub pool: Option<PoolId>,
    /// Whether it grows by mapping; `None` in files older than expandable segments.
    pub is_expandable: Option<bool>,
    /// Who made it grow, if stacks were recorded.
    pub stack: Option<StackId>,
    /// Its blocks, which tile it.
    pub blocks: Vec<Block>,
}

impl Segment {
    /// Sums up the blocks: allocated, active and requested bytes.
    pub fn sum_blocks(&mut self) {
        let sum = |of: fn(&Block) -> u64| {
            self.blocks.iter().fold(0_u64, |sum, block| sum.saturating_add(of(block)))
        };
        (self.allocated_bytes, self.active_bytes, self.requested_bytes) = (
            sum(|b| if b.state == BlockState::Allocated { b.bytes } else { 0 }),
            sum(|b| if b.state == BlockState::Inactive { 0 } else { b.bytes }),
            sum(|b| if b.state == BlockState::Inactive { 0 } else { b.requested_bytes }),
        );
    }
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// `active_allocated`: the program holds it.
    Allocated,
    /// `active_pending_free`: freed, but another stream may still use it.
    PendingFree,
    /// `inactive`: free.
    Inactive,
}

impl BlockState {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocated => "active_allocated",
            Self::PendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// What the program asked for, in bytes; of a free block, the last time it was in use.
    pub requested_bytes: u64,
    /// What it is.
    pub state: BlockState,
    /// Who allocated it, if stacks were recorded.
    pub stack: Option<StackId>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `alloc`: a request was served. Sizes of the first three are as requested.
    Alloc,
    /// `free_requested`: the program freed it.
    FreeRequested,
    /// `free_completed`: it may be used again.
    FreeCompleted,
    /// `segment_alloc`: a segment was taken from the device.
    SegmentAlloc,
    /// `segment_free`: a segment was given back.
    SegmentFree,
    /// `segment_map`: an expandable segment grew.
    SegmentMap,
    /// `segment_unmap`: an expandable segment shrank.
    SegmentUnmap,
    /// `snapshot`: a snapshot was taken; its size is all that was active.
    Snapshot,
    /// `oom`: a request failed; its size is as rounded.
    OutOfMemory,
    /// `annotate`: the program left a note.
    Annotate,
}

impl Action {
    /// All there are.
    pub const ALL: [Self; 10] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::OutOfMemory,
        Self::Annotate,
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::OutOfMemory => "oom",
            Self::Annotate => "annotate",
        }
    }
}

/// An entry of a device's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// To which address; for [`Action::OutOfMemory`] the device's free memory, in bytes.
    pub address: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// Stream, as its handle's value.
    pub stream: u64,
    /// Microseconds since 1970.
    pub time_us: i64,
    /// Pool; `None` in files older than pool ids.
    pub pool: Option<PoolId>,
    /// By whom, if stacks were recorded.
    pub stack: Option<StackId>,
    /// Index in [`Snapshot::notes`] of its further keys.
    pub note: Option<u32>,
}

impl Snapshot {
    /// The snapshot without the segments and entries of every device but one.
    #[must_use]
    pub fn of_device(&self, device: u32) -> Snapshot {
        let mut own = self.clone();
        own.segments.retain(|segment| segment.device == device);
        for (index, entries) in own.device_traces.iter_mut().enumerate() {
            if index as u32 != device {
                entries.clear();
            }
        }
        own
    }
}
