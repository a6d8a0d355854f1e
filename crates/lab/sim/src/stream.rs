//! Streams: queues of work, each with the time until which it is busy.
//!
//! Invariant: a stream's times never go back, and events of one stream become ready in the order
//! in which they were recorded. Indexes are given out once; handle values are reused at once. Work
//! of a destroyed stream runs on until it is done, as on a real device. Streams are ordered only
//! by what the program asks for: the default stream does not wait for others by itself.

use crate::clock::Clock;
use crate::handle_table::HandleTable;
use crate::happens_before::VectorClock;
use drystone_driver::{ErrorCode, Stream, StreamUid};
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct StreamState {
    pub(crate) index: u32,
    /// When the work queued so far is done.
    pub(crate) busy_until_ns: u64,
    /// When the event recorded last becomes ready, which may be later.
    pub(crate) marked_until_ns: u64,
    /// When each kernel queued last is done, oldest first; kept only where a queue has an end.
    pub(crate) queued: VecDeque<u64>,
    pub(crate) capture: Option<Membership>,
}

/// A stream's part in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) capture: u64,
    /// Which captured work of each stream lies before this point.
    pub(crate) order: VectorClock,
    /// How long the captured work up to this point takes when replayed.
    pub(crate) path_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Streams {
    table: HandleTable<StreamState>,
    ordinal: u32,
    clock: Arc<Clock>,
    /// When the last work of the streams destroyed so far is done.
    orphans_until_ns: u64,
}

impl Streams {
    pub(crate) fn new(ordinal: u32, clock: Arc<Clock>) -> Self {
        // The first handle value is that of the default stream.
        let table = HandleTable::new(Stream::DEFAULT.0);
        let mut streams = Self { table, ordinal, clock, orphans_until_ns: 0 };
        streams.create();
        streams
    }

    pub(crate) fn create(&mut self) -> Stream {
        let index = self.clock.next_stream();
        Stream(self.table.insert(StreamState { index, ..StreamState::default() }))
    }

    pub(crate) fn destroy(&mut self, stream: Stream) -> Result<(), ErrorCode> {
        if stream == Stream::DEFAULT {
            return Err(ErrorCode::InvalidHandle);
        }
        if self.get(stream)?.capture.is_some() {
            return Err(ErrorCode::CaptureUnsupported);
        }
        let gone = self.table.remove(stream.0).ok_or(ErrorCode::InvalidHandle)?;
        let until_ns = gone.busy_until_ns.max(gone.marked_until_ns);
        self.orphans_until_ns = self.orphans_until_ns.max(until_ns);
        Ok(())
    }

    pub(crate) fn get(&self, stream: Stream) -> Result<&StreamState, ErrorCode> {
        self.table.get(stream.0).ok_or(ErrorCode::InvalidHandle)
    }

    pub(crate) fn get_mut(&mut self, stream: Stream) -> Result<&mut StreamState, ErrorCode> {
        self.table.get_mut(stream.0).ok_or(ErrorCode::InvalidHandle)
    }

    pub(crate) fn uid(&self, stream: Stream) -> Result<StreamUid, ErrorCode> {
        Ok(uid(self.ordinal, self.get(stream)?.index))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamState> {
        self.table.iter_mut()
    }

    /// When the work queued so far is done, events not counted.
    pub(crate) fn work_end_ns(&self) -> u64 {
        let ends = self.table.iter().map(|one| one.busy_until_ns);
        ends.max().unwrap_or(0).max(self.orphans_until_ns)
    }

    /// When the device is idle if nothing more is queued.
    pub(crate) fn idle_ns(&self) -> u64 {
        let ends = self.table.iter().map(|one| one.busy_until_ns.max(one.marked_until_ns));
        ends.max().unwrap_or(0).max(self.orphans_until_ns)
    }
}

/// The identity of the stream with this index on this device.
pub(crate) fn uid(ordinal: u32, index: u32) -> StreamUid {
    StreamUid((u64::from(ordinal) << 32) + u64::from(index) + 1)
}
