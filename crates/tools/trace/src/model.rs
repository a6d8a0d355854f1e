//! The trace model: what a program asked of its allocator, in order.
//!
//! Invariants of a [`Trace`] (every codec establishes them, `Trace::check` proves them): a block
//! is allocated before it is used or freed, and its number is not given out again while it is
//! live; sizes are positive; time never goes back; streams and pools are numbered densely from 0,
//! with stream 0 the default stream and pool 0 the default pool. A capture begins on a stream that
//! is not captured, other than the default one, and ends on it.

use crate::snapshot::Recording;

/// What happened. See [`Event`] for the fields each kind uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Allocate `bytes` on `stream` in `pool` as `block`.
    Allocate,
    /// Free `block` (the request, in host order). `bytes` and `stream` are those of its allocation.
    Free,
    /// `block` is also used on `stream`, another one than its own.
    RecordStream,
    /// The program gave the cache back (`torch.cuda.empty_cache()`).
    EmptyCache,
    /// An iteration (step, request, trial) ended.
    Iteration,
    /// When recorded, an allocation of `bytes` on `stream` failed here. Not replayed.
    OutOfMemory,
    /// The host waited until the device was idle.
    HostWait,
    /// Work queued on `stream` is captured into a graph from here on; `pool` serves its requests.
    CaptureBegin,
    /// The capture that began on `stream` is over.
    CaptureEnd,
}

/// One event: 24 bytes, so that half a million events stay in a cache-friendly array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the first event.
    pub time_ns: u64,
    /// Requested bytes, before any rounding; 0 for kinds without a size.
    pub bytes: u64,
    /// Number of the block; the smallest free number is always taken. 0 for kinds without a block.
    pub block: u32,
    /// Dense stream number.
    pub stream: u16,
    /// Dense pool number (graph-private and user pools are 1, 2, ...).
    pub pool: u8,
    /// What happened.
    pub kind: Kind,
}

const _: () = assert!(size_of::<Event>() == 24);

impl Event {
    /// One without a block, on the default stream and of the default pool.
    pub const fn bare(time_ns: u64, kind: Kind) -> Self {
        Self { time_ns, bytes: 0, block: 0, stream: 0, pool: 0, kind }
    }
}

/// One device's trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Short name: the file's name without its endings, plus the device where a file has several.
    pub name: String,
    /// Events in program order.
    pub events: Vec<Event>,
    /// How many block numbers the events use: one more than the largest.
    pub blocks: u32,
    /// How many streams the events use, at least 1.
    pub streams: u16,
    /// How many pools the events use, at least 1.
    pub pools: u8,
    /// Frees that were not complete at once because of use on other streams, ascending by
    /// [`Completion::event`]. Recordings have them; most traces have none.
    pub completions: Vec<Completion>,
    /// What a recorded trace knows beyond its events; replaying needs none of it.
    pub recording: Option<Box<Recording>>,
}

/// When the recording allocator saw a free complete: every other stream's use was over.
///
/// It says how long a use lasted that the trace otherwise shows only as a
/// [`Kind::RecordStream`] before the free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Index of the [`Kind::Free`] event.
    pub event: u32,
    /// Nanoseconds since the first event, not before the free. A free not seen complete by the end
    /// has the time of the last event.
    pub time_ns: u64,
}
