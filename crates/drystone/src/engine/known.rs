//! [`Streams`]: the streams that the program told of: by identity, by handle, and by thread.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
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

    /// A stream that must have ended, now that this one is there.
    pub(super) fn ended(&self, stream: Stream) -> Option<(StreamId, u64)> {
        if stream != Stream::PER_THREAD {
            return self.by_handle.get(&stream.0).copied();
        }
        let gone = self.of_threads.iter().find(|(_, _, thread)| thread.strong_count() == 0);
        gone.map(|&(id, uid, _)| (id, uid))
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
