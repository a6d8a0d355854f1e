//! [`Streams`]: who the streams of an allocator are, and all that is known of each: key, handle,
//! the driver's identity, thread, whether its end will be told, whether a wait for the device is
//! for it.
//!
//! Invariant: a handle leads to a key only if the driver says so now (B2, B4); or is not asked,
//! since the stream is captured, and the key's was the last with that handle (I11); or need not be,
//! since that stream's end will be told, and none has ended since the thread met it. So none leads
//! to a stream that is over: that was retired; or whose thread is gone, or whose handle came with
//! another identity (B57). The handle of a stream whose end will be told is used with the table's
//! lock held: who retires it destroys it after that. That of any other, a *passing* one, is used by
//! calls alone that bring it.
//!
//! `thread_cache`: what threads remember. `table`: the entries. `seen`: streams of a whole process.

pub mod seen;
mod table;
mod thread_cache;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drystone_core::StreamId;
use drystone_driver::{Call, CaptureStatus, Driver, DriverError, ErrorCode, Stream, StreamUid};
use parking_lot::{Mutex, MutexGuard, RwLock};

use thread_cache::Time;

pub(crate) use table::{Table, identity};
pub use thread_cache::Served;

/// Whether the end of a stream will be told ([`retire_stream`](crate::Allocator::retire_stream)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// It will: until then the driver may be asked of the stream at any time.
    Told,
    /// Nobody tells it.
    Untold,
    /// As before, as far as is known now: at the stream's next use it is to be asked again.
    Unknown,
}

/// Calls what it is given with the streams that may use a device's memory beside those that were
/// added, also on other devices, of which none is destroyed before that returns; or does not call
/// it, where there may be others.
pub type OtherStreams = fn(u32, &mut dyn FnMut(Vec<Stream>));

/// The streams of an allocator.
#[derive(Debug)]
pub(crate) struct Streams {
    ordinal: u32,
    /// What threads remember was so then; by identity it is one later than by handle.
    time: Time,
    table: Mutex<Table>,
    /// A stream ended, and no fence tells when its work is over.
    pub(crate) has_lost: AtomicBool,
    /// Some stream may be asked by calls alone that bring it.
    has_passing: AtomicBool,
    /// The device was reset: nothing of what the backend has is there any more.
    is_gone: AtomicBool,
    /// Of whom a fence is wanted with their next call, and all that may be of another context: a
    /// bit for each 64th stream.
    wanted: AtomicU64,
    /// Who tells of streams that were not added; `None`: nobody, and there may be any.
    others: RwLock<Option<OtherStreams>>,
}

impl Streams {
    pub(crate) fn new(ordinal: u32) -> Self {
        Self {
            ordinal,
            time: Time::new(),
            table: Mutex::default(),
            has_lost: AtomicBool::new(false),
            has_passing: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            wanted: AtomicU64::new(0),
            others: RwLock::new(None),
        }
    }

    /// What is known, for as long as no stream may end.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// The key of a stream whose end will be told, if the thread has met it.
    #[inline]
    pub(crate) fn remembered(&self, stream: Stream) -> Option<StreamId> {
        thread_cache::find(self.time.now(), stream.0)
    }

    /// The key of a stream of which the driver has said who it is; or that is captured.
    pub(crate) fn known(&self, stream: Stream, uid: Option<StreamUid>) -> Option<StreamId> {
        match uid {
            Some(uid) => thread_cache::find(self.time.now() + 1, uid.0),
            None => Some(self.lock().find(stream, None)?.id),
        }
    }

    /// The calling thread remembers a stream of the table, so far as it may.
    pub(crate) fn remember(
        &self,
        table: &Table,
        (id, stream): (StreamId, Stream),
        uid: Option<StreamUid>,
    ) {
        let (time, served) = (self.time.now(), Served { ordinal: self.ordinal, id });
        if let Some(uid) = uid {
            thread_cache::remember(time + 1, 0, uid.0, served);
        }
        if !table.is_passing(id) {
            thread_cache::remember(time, 0, stream.0, served);
        }
    }

    /// The stream is retired, or gone.
    pub(crate) fn end(&self, table: &mut Table, id: StreamId) {
        table.end(id);
        self.time.go_on();
    }

    /// The handle of the stream of a call that brings it, if it is itself as far as that may be
    /// asked; and whether it is captured.
    pub(crate) fn look_up(
        &self,
        driver: &dyn Driver,
        call: Call,
        id: StreamId,
    ) -> Result<(Stream, CaptureStatus), DriverError> {
        let gone = || DriverError::new(call, ErrorCode::InvalidHandle);
        let stream = self.lock().of(id).ok_or_else(gone)?.stream;
        let status = driver.capture_status(stream)?;
        // In a capture a stream is not asked who it is: drivers refuse that.
        if status == CaptureStatus::None {
            let uid = identity(driver, stream)?;
            let found = self.lock().find(stream, uid).map(|known| known.id);
            found.filter(|&found| found == id).ok_or_else(gone)?;
        }
        Ok((stream, status))
    }

    /// From now on every stream that may use memory is known, or told of by this.
    pub(crate) fn know_all(&self, others: OtherStreams) {
        *self.others.write() = Some(others);
    }

    /// Whether every stream that may use memory can be held: each is known, and its handle is its
    /// own until it is retired.
    pub(crate) fn are_all_known(&self) -> bool {
        let mut are_known = false;
        let is_told = self.others.read().is_some();
        if is_told {
            self.with_others(&mut |_| self.with_own(&mut |_| are_known = true));
        }
        are_known
    }

    /// Runs something with the streams that were added, of which none is destroyed meanwhile; not
    /// if one may have been already.
    pub(crate) fn with_own(&self, run: &mut dyn FnMut(Vec<Stream>)) {
        let table = self.lock();
        if table.live().all(|known| !known.is_passing) {
            run(table.lasting().map(|known| known.stream).collect());
        }
    }

    /// Runs something with the streams that were not added, of which none is destroyed meanwhile.
    pub(crate) fn with_others(&self, run: &mut dyn FnMut(Vec<Stream>)) {
        match *self.others.read() {
            Some(tell) => tell(self.ordinal, run),
            None => run(Vec::new()),
        }
    }

    /// The device was reset. From now on every hit is looked at.
    pub(crate) fn note_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.wanted.store(u64::MAX, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// A request of this stream missed: what others freed may serve the next.
    pub(crate) fn want_others(&self, own: StreamId) {
        if self.has_passing.load(Ordering::Relaxed) {
            self.wanted.store(u64::MAX, Ordering::Relaxed);
            self.note_given(own);
        }
    }

    /// Some stream may be asked by calls alone that bring it.
    pub(crate) fn note_passing(&self) {
        self.has_passing.store(true, Ordering::Relaxed);
    }

    /// No wait for the device is known to cover the stream: until one is, each hit is looked at, as
    /// who inherits memory may hit with it.
    pub(crate) fn note_uncovered(&self, stream: StreamId) {
        self.wanted.fetch_or(bit_of(stream), Ordering::Relaxed);
    }

    /// Whether a fence of this stream may be wanted.
    #[inline]
    pub(crate) fn is_wanted(&self, stream: StreamId) -> bool {
        self.wanted.load(Ordering::Relaxed) & bit_of(stream) != 0
    }

    pub(crate) fn note_given(&self, stream: StreamId) {
        let table = self.lock();
        let stays = table.live().any(|one| !one.is_covered && bit_of(one.id) == bit_of(stream));
        if !stays {
            self.wanted.fetch_and(!bit_of(stream), Ordering::Relaxed);
        }
    }
}

/// Streams that share one give a fence too many, which is harmless.
#[inline]
const fn bit_of(stream: StreamId) -> u64 {
    1 << (stream.index() % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_core::{Config, Heap, SegmentKind, StateMachine as _};

    const HANDLE: Stream = Stream(0x7000);

    fn with_one(is_passing: bool) -> (Streams, StreamId) {
        let streams = Streams::new(0);
        let id = Heap::new(Config::new(SegmentKind::Mapped, 2 << 20, 1 << 30)).add_stream();
        let mut table = streams.lock();
        table.add(id, HANDLE, Some(StreamUid(12)), true);
        table.of_mut(id).unwrap().is_passing = is_passing;
        streams.remember(&table, (id, HANDLE), Some(StreamUid(12)));
        drop(table);
        (streams, id)
    }

    #[test]
    fn what_a_thread_remembers_of_one_allocator_says_nothing_of_another() {
        let (one, id) = with_one(false);
        let other = Streams::new(0);
        assert_eq!((one.remembered(HANDLE), other.remembered(HANDLE)), (Some(id), None));
        assert_eq!(other.known(HANDLE, Some(StreamUid(12))), None);
    }

    #[test]
    fn b2_a_passing_stream_is_remembered_by_its_identity_alone() {
        let (streams, id) = with_one(true);
        assert_eq!(streams.remembered(HANDLE), None);
        assert_eq!(streams.known(HANDLE, Some(StreamUid(12))), Some(id));
        assert_eq!(streams.known(HANDLE, Some(StreamUid(13))), None);
    }

    /// Whichever thread retires it: the handle may come back.
    #[test]
    fn b2_nothing_is_remembered_of_a_stream_that_another_thread_has_retired() {
        let (streams, id) = with_one(false);
        std::thread::scope(|scope| {
            scope.spawn(|| streams.end(&mut streams.lock(), id)).join().unwrap()
        });
        assert_eq!(streams.remembered(HANDLE), None);
        assert_eq!(streams.known(HANDLE, Some(StreamUid(12))), None);
        assert_eq!(streams.known(HANDLE, None), None);
    }
}
