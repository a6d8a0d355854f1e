//! [`Streams`]: the streams that the program told of: by identity, by handle, and by thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use drystone_core::StreamId;
use drystone_driver::Stream;
use parking_lot::Mutex;

thread_local! {
    /// Gone with the thread, and so with its own default stream.
    static OF_THREAD: Arc<()> = Arc::new(());
}

/// Who is known.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) known: Mutex<Known>,
    /// A stream ended, and no fence tells when its work is over.
    pub(super) has_lost: AtomicBool,
    /// Some stream may be asked by calls alone that bring it.
    pub(super) has_passing: AtomicBool,
    /// The device was reset: nothing of what the backend has is there any more.
    is_gone: AtomicBool,
    /// Of whom a fence is wanted with their next call, and all that may be of another context: a
    /// bit for each 64th stream.
    wanted: AtomicU64,
    /// Streams that no wait for the device is known to cover. Who inherits memory may hit with it.
    uncovered: Mutex<Vec<StreamId>>,
}

impl Streams {
    /// The device was reset. From now on every hit is looked at.
    pub(super) fn note_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.wanted.store(u64::MAX, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// A request of this stream missed: what others freed may serve the next.
    pub(super) fn want_others(&self, own: StreamId) {
        if self.has_passing.load(Ordering::Relaxed) {
            self.wanted.store(u64::MAX, Ordering::Relaxed);
            self.note_given(own);
        }
    }

    /// Notes whether a wait for the device covers the stream. Until it does, each hit is looked at.
    pub(super) fn note_covered(&self, stream: StreamId, is_covered: bool) {
        let mut uncovered = self.uncovered.lock();
        uncovered.retain(|&one| one != stream);
        if !is_covered {
            uncovered.push(stream);
            self.wanted.fetch_or(bit_of(stream), Ordering::Relaxed);
        }
    }

    pub(super) fn is_covered(&self, stream: StreamId) -> bool {
        !self.uncovered.lock().contains(&stream)
    }

    /// Whether a fence of this stream may be wanted.
    #[inline]
    pub(super) fn is_wanted(&self, stream: StreamId) -> bool {
        self.wanted.load(Ordering::Relaxed) & bit_of(stream) != 0
    }

    pub(super) fn note_given(&self, stream: StreamId) {
        let uncovered = self.uncovered.lock();
        if !uncovered.iter().any(|&one| bit_of(one) == bit_of(stream)) {
            self.wanted.fetch_and(!bit_of(stream), Ordering::Relaxed);
        }
    }
}

/// Streams that share one give a fence too many, which is harmless.
#[inline]
const fn bit_of(stream: StreamId) -> u64 {
    1 << (stream.index() % 64)
}

#[derive(Default)]
pub(super) struct Known {
    /// By identity, with the handle.
    pub(super) by_uid: BTreeMap<u64, (StreamId, u64)>,
    /// By handle, with the identity; but for streams of threads, which share one.
    by_handle: BTreeMap<u64, (StreamId, u64)>,
    /// Streams of threads, with the identity and what lives as long as the thread.
    of_threads: Vec<(StreamId, u64, Weak<()>)>,
}

impl Known {
    pub(super) fn forget(&mut self, uid: u64) {
        let Some((id, handle)) = self.by_uid.remove(&uid) else { return };
        if self.by_handle.get(&handle).is_some_and(|known| known.0 == id) {
            self.by_handle.remove(&handle);
        }
        self.of_threads.retain(|known| known.0 != id);
    }

    /// The stream that was added last with a handle of its own.
    pub(super) fn with_handle(&self, stream: Stream) -> Option<StreamId> {
        self.by_handle.get(&stream.0).map(|known| known.0)
    }

    /// A stream that must have ended: that of a thread which is gone, or whose handle is another's,
    /// if one comes by now.
    pub(super) fn ended(&self, newcomer: Option<Stream>) -> Option<(StreamId, u64)> {
        let by_handle = newcomer.and_then(|newcomer| self.by_handle.get(&newcomer.0).copied());
        by_handle.or_else(|| {
            let gone = self.of_threads.iter().find(|(_, _, thread)| thread.strong_count() == 0);
            gone.map(|&(id, uid, _)| (id, uid))
        })
    }

    pub(super) fn add(&mut self, id: StreamId, stream: Stream, uid: u64) {
        self.by_uid.insert(uid, (id, stream.0));
        if stream == Stream::PER_THREAD {
            // Of a thread that is ending, what it has left is not waited for.
            let thread = OF_THREAD.try_with(Arc::downgrade).unwrap_or_default();
            self.of_threads.push((id, uid, thread));
        } else {
            self.by_handle.insert(stream.0, (id, uid));
        }
    }
}
