//! [`Recorder`]: what a generated program does, written down as a trace.
//!
//! Invariant: the requested bytes of live blocks never exceed the extent's; a block is freed once,
//! because its [`Block`] is given back; the smallest free number is always taken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use drystone_trace::model::{Event, Kind, Trace};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
/// Time from one call to the next: a host that launches a kernel with each request and runs ahead
/// of the device. 4 us is the launch time that the shipped traces assume, too.
const CALL_NS: u64 = 4_000;

/// How long a program runs, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The program begins no further step once there are so many events.
    pub events: u64,
    /// Requested bytes of live blocks, at most.
    pub live_bytes: u64,
}

/// A request that the program cannot do without does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds {live_bytes} bytes and asks for {bytes} more, which is over the limit of {limit}")]
pub struct NoRoom {
    /// Requested bytes of live blocks.
    pub live_bytes: u64,
    /// Bytes of the request.
    pub bytes: u64,
    /// The extent's `live_bytes`.
    pub limit: u64,
}

#[derive(Debug)]
pub(super) struct Block {
    number: u32,
}

/// A block's allocation; `bytes` is 0 once it is freed.
#[derive(Clone, Copy, Debug)]
struct Live {
    bytes: u64,
    stream: u16,
}

/// Writes down what a program does.
#[derive(Debug)]
pub(super) struct Recorder {
    extent: Extent,
    events: Vec<Event>,
    live: Vec<Live>,
    free: BinaryHeap<Reverse<u32>>,
    live_bytes: u64,
    now_ns: u64,
    streams: u16,
}

impl Recorder {
    pub(super) fn new(extent: Extent) -> Self {
        Self {
            extent,
            events: Vec::new(),
            live: Vec::new(),
            free: BinaryHeap::new(),
            live_bytes: 0,
            now_ns: 0,
            streams: 1,
        }
    }

    /// Whether the program has run for long enough.
    pub(super) fn is_over(&self) -> bool {
        self.events.len() as u64 >= self.extent.events
    }

    /// Bytes that may still be asked for.
    pub(super) fn room(&self) -> u64 {
        self.extent.live_bytes - self.live_bytes
    }

    fn push(&mut self, kind: Kind, number: u32, bytes: u64, stream: u16) {
        let time_ns = self.now_ns;
        self.events.push(Event { time_ns, bytes, block: number, stream, pool: 0, kind });
        self.now_ns += CALL_NS;
    }

    /// Asks for `bytes`, at least 1, on a stream.
    pub(super) fn allocate(&mut self, bytes: u64, stream: u16) -> Result<Block, NoRoom> {
        let bytes = bytes.max(1);
        if bytes > self.room() {
            let limit = self.extent.live_bytes;
            return Err(NoRoom { live_bytes: self.live_bytes, bytes, limit });
        }
        let live = Live { bytes, stream };
        let number = match self.free.pop() {
            Some(Reverse(number)) => {
                self.live[number as usize] = live;
                number
            }
            None => {
                self.live.push(live);
                // Cannot truncate: a host has no memory for as many events.
                self.live.len() as u32 - 1
            }
        };
        self.live_bytes += bytes;
        self.streams = self.streams.max(stream + 1);
        self.push(Kind::Allocate, number, bytes, stream);
        Ok(Block { number })
    }

    /// Asks for `bytes` and frees them right after the kernel that uses them is launched.
    pub(super) fn use_briefly(&mut self, bytes: u64, stream: u16) -> Result<(), NoRoom> {
        let block = self.allocate(bytes, stream)?;
        self.free(block);
        Ok(())
    }

    /// The block is also used on another stream than its own.
    pub(super) fn record_stream(&mut self, block: &Block, stream: u16) {
        self.streams = self.streams.max(stream + 1);
        let bytes = self.live[block.number as usize].bytes;
        self.push(Kind::RecordStream, block.number, bytes, stream);
    }

    pub(super) fn free(&mut self, block: Block) {
        self.free_number(block.number);
    }

    fn free_number(&mut self, number: u32) {
        let Live { bytes, stream } = self.live[number as usize];
        self.live[number as usize].bytes = 0;
        self.live_bytes -= bytes;
        self.free.push(Reverse(number));
        self.push(Kind::Free, number, bytes, stream);
    }

    pub(super) fn iteration(&mut self) {
        self.push(Kind::Iteration, 0, 0, 0);
    }

    pub(super) fn empty_cache(&mut self) {
        self.push(Kind::EmptyCache, 0, 0, 0);
    }

    /// The trace, with everything freed that is still live.
    pub(super) fn finish(mut self, name: String) -> Trace {
        for number in 0..self.live.len() {
            if self.live[number].bytes > 0 {
                self.free_number(number as u32);
            }
        }
        Trace {
            name,
            events: self.events,
            blocks: self.live.len() as u32,
            streams: self.streams,
            pools: 1,
            ..Trace::default()
        }
    }
}
