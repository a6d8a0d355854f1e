//! Streams: queues of work, each with the time until which it is busy.
//!
//! Invariant: a stream's times never go back, and events of one stream become ready in the order
//! in which they were recorded. Indexes are given out once; handle values are reused at once. Work
//! of a destroyed stream runs on until it is done, as on a real device. Streams are ordered only
//! by what the program asks for: the default stream does not wait for others by itself. A stream is
//! of one context for good, and whoever waits for a context waits for its streams alone.

use crate::clock::Clock;
use crate::handle_table::HandleTable;
use crate::happens_before::VectorClock;
use crate::refuse::refuse;
use drystone_driver::{ErrorCode, Stream, StreamUid};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A context of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Context(pub u64);

impl Context {
    /// The one that all users of the device share, and that the `Driver` calls of a device mean.
    pub const PRIMARY: Self = Self(0);
}

#[derive(Debug, Default)]
pub(crate) struct StreamState {
    pub(crate) index: u32,
    pub(crate) context: Context,
    /// Whether it is its context's legacy default stream.
    pub(crate) is_legacy: bool,
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
    /// By context.
    orphans: BTreeMap<Context, Orphans>,
}

/// What streams of a context that were destroyed have left.
#[derive(Debug, Default)]
struct Orphans {
    /// When the last of their work is done.
    until_ns: u64,
    /// Those whose end the host has not seen.
    unseen: Vec<u32>,
}

impl Streams {
    pub(crate) fn new(ordinal: u32, clock: Arc<Clock>) -> Self {
        // The first handle value is that of the default stream.
        let table = HandleTable::new(Stream::DEFAULT.0);
        let mut streams = Self { table, ordinal, clock, orphans: BTreeMap::new() };
        streams.create(Context::PRIMARY, true);
        streams
    }

    /// A stream of a context, perhaps its legacy default one.
    pub(crate) fn create(&mut self, context: Context, is_legacy: bool) -> Stream {
        let index = self.clock.next_stream();
        let state = StreamState { index, context, is_legacy, ..StreamState::default() };
        Stream(self.table.insert(state))
    }

    pub(crate) fn destroy(&mut self, stream: Stream) -> Result<(), ErrorCode> {
        let state = self.get(stream)?;
        refuse(ErrorCode::InvalidHandle, state.is_legacy)?;
        refuse(ErrorCode::CaptureUnsupported, state.capture.is_some())?;
        self.remove(stream);
        Ok(())
    }

    /// Ends all streams of a context, and says which captures each index took part in.
    pub(crate) fn destroy_all_of(&mut self, context: Context) -> Vec<(u64, u32)> {
        let is_own = |&value: &u64| self.table.get(value).is_some_and(|one| one.context == context);
        let gone: Vec<u64> = self.table.values().filter(is_own).collect();
        let ended = gone.into_iter().filter_map(|value| self.remove(Stream(value)));
        ended.filter_map(|state| Some((state.capture?.capture, state.index))).collect()
    }

    fn remove(&mut self, stream: Stream) -> Option<StreamState> {
        let gone = self.table.remove(stream.0)?;
        let orphans = self.orphans.entry(gone.context).or_default();
        orphans.until_ns = orphans.until_ns.max(gone.busy_until_ns).max(gone.marked_until_ns);
        orphans.unseen.push(gone.index);
        Some(gone)
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
        let left = self.orphans.values().map(|orphans| orphans.until_ns);
        ends.chain(left).max().unwrap_or(0)
    }

    /// When a context is idle if nothing more is queued.
    pub(crate) fn idle_ns(&self, context: Context) -> u64 {
        let own = self.table.iter().filter(|one| one.context == context);
        let ends = own.map(|one| one.busy_until_ns.max(one.marked_until_ns));
        let left = self.orphans.get(&context).map(|orphans| orphans.until_ns);
        ends.chain(left).max().unwrap_or(0)
    }

    /// The indexes of a context's streams, and of those gone since it was last asked.
    pub(crate) fn take_indexes(&mut self, context: Context) -> Vec<u32> {
        let gone =
            self.orphans.get_mut(&context).map(|orphans| std::mem::take(&mut orphans.unseen));
        let mut indexes = gone.unwrap_or_default();
        let own = self.table.iter().filter(|one| one.context == context);
        indexes.extend(own.map(|one| one.index));
        indexes
    }
}

/// The identity of the stream with this index on this device.
pub(crate) fn uid(ordinal: u32, index: u32) -> StreamUid {
    StreamUid((u64::from(ordinal) << 32) + u64::from(index) + 1)
}
