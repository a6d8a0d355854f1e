//! [`Table`]: one entry for each stream of an allocator.

use std::sync::{Arc, Weak};

use drystone_core::StreamId;
use drystone_driver::{Driver, DriverError, ErrorCode, Relaxed, Stream, StreamUid};

thread_local! {
    /// Gone with the thread, and so with its own default stream.
    static OF_THREAD: Arc<()> = Arc::new(());
}

/// Who a stream is; `None`: it is captured, and nobody may ask. Another's capture may forbid the
/// question to a restricted thread, also one that nobody told of.
pub(crate) fn identity(
    driver: &dyn Driver,
    stream: Stream,
) -> Result<Option<StreamUid>, DriverError> {
    let _relaxed = Relaxed::enter(driver)?;
    match driver.stream_uid(stream) {
        Err(error) if error.code == ErrorCode::CaptureUnsupported => Ok(None),
        asked => asked.map(Some),
    }
}

/// What is known of a stream.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: StreamId,
    /// Its handle, of which the driver is asked only as `Streams` says.
    pub(crate) stream: Stream,
    /// The driver's answer; `None` while it was captured whenever it came.
    pub(crate) uid: Option<StreamUid>,
    /// What lives as long as the thread that it is the own stream of.
    thread: Option<Weak<()>>,
    /// Nobody says when it ends.
    pub(crate) is_passing: bool,
    /// A wait for the device is known to be one for it, too.
    pub(crate) is_covered: bool,
    /// Retired or gone: its handle may be anybody's.
    is_over: bool,
}

impl Known {
    /// Whether it is the stream behind a handle of which the driver says this now; `None`: nothing,
    /// since that is captured. Then who had the handle last is taken to have it still, and so is
    /// who has always been captured so far.
    fn is(&self, stream: Stream, uid: Option<StreamUid>) -> bool {
        match (self.uid, uid) {
            (Some(own), Some(now)) => own == now,
            _ => self.stream == stream && self.is_reached_here(),
        }
    }

    /// Whether its handle means this stream in the calling thread.
    fn is_reached_here(&self) -> bool {
        let is_own = |thread: &Weak<()>| {
            OF_THREAD.try_with(|own| thread.as_ptr() == Arc::as_ptr(own)).unwrap_or(false)
        };
        self.thread.as_ref().is_none_or(is_own)
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.strong_count() == 0)
    }

    /// Whether its handle still leads to it, as far as the driver may be asked.
    pub(crate) fn is_itself(&mut self, driver: &dyn Driver) -> Result<bool, DriverError> {
        let uid = identity(driver, self.stream)?;
        let is_itself = self.is(self.stream, uid);
        if is_itself {
            self.uid = self.uid.or(uid);
        }
        Ok(is_itself)
    }
}

/// The streams of an allocator.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By the position of the stream's id.
    streams: Vec<Option<Known>>,
}

impl Table {
    /// Takes a stream in. One that it succeeds is forgotten.
    pub(crate) fn add(
        &mut self,
        id: StreamId,
        stream: Stream,
        uid: Option<StreamUid>,
        is_covered: bool,
    ) {
        if self.streams.len() <= id.index() {
            self.streams.resize_with(id.index() + 1, || None);
        }
        // Of a thread that is ending, what it has left is not waited for.
        let own = || OF_THREAD.try_with(Arc::downgrade).unwrap_or_default();
        self.streams[id.index()] = Some(Known {
            id,
            stream,
            uid,
            thread: (stream == Stream::PER_THREAD).then(own),
            is_passing: false,
            is_covered,
            is_over: false,
        });
    }

    /// The stream behind a handle, of which the driver says this now. In a capture it says nothing.
    pub(crate) fn find(&mut self, stream: Stream, uid: Option<StreamUid>) -> Option<&mut Known> {
        let known = self.live_mut().find(|known| known.is(stream, uid))?;
        known.uid = known.uid.or(uid);
        Some(known)
    }

    /// The stream that was added last with a handle of its own.
    pub(crate) fn with_handle(&self, stream: Stream) -> Option<StreamId> {
        let known = self.live().find(|known| known.stream == stream && known.thread.is_none());
        known.map(|known| known.id)
    }

    /// A stream that must have ended: its thread is gone, or its handle is a newcomer's.
    pub(crate) fn ended(&self, newcomer: Option<Stream>) -> Option<StreamId> {
        let with_handle = newcomer.and_then(|newcomer| self.with_handle(newcomer));
        with_handle.or_else(|| Some(self.live().find(|known| known.has_ended())?.id))
    }

    /// The stream is retired, or gone.
    pub(super) fn end(&mut self, id: StreamId) {
        if let Some(known) = self.of_mut(id) {
            known.is_over = true;
        }
    }

    /// A stream that is not over.
    pub(crate) fn of(&self, id: StreamId) -> Option<&Known> {
        self.streams.get(id.index())?.as_ref().filter(|known| known.id == id && !known.is_over)
    }

    pub(crate) fn of_mut(&mut self, id: StreamId) -> Option<&mut Known> {
        let known = self.streams.get_mut(id.index())?.as_mut();
        known.filter(|known| known.id == id && !known.is_over)
    }

    /// The handle of the last stream at a position, over or not.
    pub(crate) fn handle_at(&self, index: usize) -> Option<Stream> {
        Some(self.streams.get(index)?.as_ref()?.stream)
    }

    /// Whether a stream is known of which nobody says when it ends.
    pub(crate) fn is_passing(&self, id: StreamId) -> bool {
        self.of(id).is_some_and(|known| known.is_passing)
    }

    /// Streams that are not over.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Known> {
        self.streams.iter().flatten().filter(|known| !known.is_over)
    }

    fn live_mut(&mut self) -> impl Iterator<Item = &mut Known> {
        self.streams.iter_mut().flatten().filter(|known| !known.is_over)
    }

    /// Streams whose end will be told: the driver may be asked of them at any time. The handle of a
    /// thread's own is that of the thread which asks.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = &Known> {
        self.live().filter(|known| !known.is_passing)
    }

    /// The calling thread's own stream, if that is one whose end will be told.
    pub(crate) fn own_of_thread(&self) -> Option<StreamId> {
        let is_own = |known: &&Known| known.thread.is_some() && known.is_reached_here();
        self.lasting().find(is_own).map(|known| known.id)
    }

    /// Any stream may have ended by now.
    pub(crate) fn let_all_pass(&mut self) {
        self.live_mut().for_each(|known| known.is_passing = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_core::{Config, Heap, SegmentKind, StateMachine as _};

    const HANDLE: Stream = Stream(0x7000);

    struct Bench {
        heap: Heap,
        table: Table,
    }

    impl Bench {
        fn new() -> Self {
            let heap = Heap::new(Config::new(SegmentKind::Mapped, 2 << 20, 1 << 30));
            Self { heap, table: Table::default() }
        }

        /// The key of a stream of which the driver says this; `None`: it is being captured.
        fn meet(&mut self, stream: Stream, uid: Option<u64>) -> StreamId {
            let uid = uid.map(StreamUid);
            if let Some(known) = self.table.find(stream, uid) {
                return known.id;
            }
            let id = self.heap.add_stream();
            self.table.add(id, stream, uid, true);
            id
        }
    }

    #[test]
    fn b2_a_recycled_handle_is_another_stream_and_the_one_before_has_ended() {
        let mut bench = Bench::new();
        let first = bench.meet(HANDLE, Some(12));
        assert_eq!(bench.meet(HANDLE, Some(12)), first);
        assert!(bench.table.find(HANDLE, Some(StreamUid(13))).is_none());
        assert_eq!(bench.table.ended(Some(HANDLE)), Some(first));
        assert_eq!(bench.table.ended(None), None);
        bench.table.end(first);
        let second = bench.meet(HANDLE, Some(13));
        assert_ne!(second, first);
        assert_eq!(bench.table.with_handle(HANDLE), Some(second));
        assert!(bench.table.of(first).is_none(), "its handle is another's");
    }

    #[test]
    fn i11_a_stream_keeps_its_key_while_it_is_captured() {
        let mut bench = Bench::new();
        let before = bench.meet(HANDLE, Some(12));
        assert_eq!(bench.meet(HANDLE, None), before);
        assert_eq!(bench.meet(HANDLE, Some(12)), before);
    }

    #[test]
    fn i11_a_stream_first_met_in_a_capture_keeps_the_key_it_got_there() {
        let mut bench = Bench::new();
        let first = bench.meet(HANDLE, None);
        assert_ne!(bench.meet(Stream(0x8000), None), first);
        assert_eq!(bench.meet(HANDLE, None), first);
        assert_eq!(bench.meet(HANDLE, Some(12)), first);
        assert_eq!(bench.meet(HANDLE, Some(12)), first);
        // The handle's next stream is another.
        assert_ne!(bench.meet(HANDLE, Some(13)), first);
    }

    #[test]
    fn b4_the_per_thread_stream_is_another_in_every_thread_also_in_a_capture() {
        let mut bench = Bench::new();
        let here = bench.meet(Stream::PER_THREAD, None);
        let there = std::thread::scope(|scope| {
            let meet = || {
                let there = bench.meet(Stream::PER_THREAD, None);
                assert_eq!(bench.meet(Stream::PER_THREAD, Some(7)), there);
                there
            };
            scope.spawn(meet).join().unwrap()
        });
        assert_ne!(here, there);
        assert_eq!(bench.meet(Stream::PER_THREAD, Some(6)), here);
        // B57: that thread is gone, and its stream with it.
        assert_eq!(bench.table.ended(None), Some(there));
    }
}
