//! Streams that are seen to come and go, by whoever stands before the driver: which device's
//! allocator serves them, in a whole process.
//!
//! Invariant: what is known of a stream is kept from its creation to its destruction, both seen; of
//! a default stream as long as its context, or its thread. About any other stream nothing is: its
//! handle may be another's by then. The lock is held for no call, neither of the driver nor of an
//! allocator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use drystone_core::StreamId;
use drystone_driver::Stream;
use parking_lot::RwLock;

use super::thread_cache::{self, Served, Time};
use crate::address_calls;

/// The context that created streams are looked up with: they need none.
pub const CREATED: u64 = 0;

/// By context and handle: the device, and the key there; `None` until the stream is first used.
type Seen = BTreeMap<(u64, u64), (u32, Option<StreamId>)>;

static SEEN: RwLock<Seen> = RwLock::new(Seen::new());
static TIME: Time = Time::of_process();
static MISSES_SOME: AtomicBool = AtomicBool::new(false);

/// A stream of a device was created: its end will be seen, too. Before that returns nobody uses it:
/// it would not stand still while memory moves.
pub fn created(stream: Stream, ordinal: u32) {
    let new = |seen: &mut Seen| seen.insert((CREATED, stream.0), (ordinal, None)).is_some();
    address_calls::run(|| change(new));
}

/// A stream is about to be destroyed.
pub fn destroyed(stream: Stream) {
    change(|seen| seen.remove(&(CREATED, stream.0)).is_some());
}

/// Whether the end of a stream will be seen.
pub fn is_seen(stream: Stream) -> bool {
    SEEN.read().contains_key(&(CREATED, stream.0))
}

/// Who serves a stream, the thread's own one too.
#[inline]
pub fn served(context: u64, stream: Stream) -> Option<Served> {
    if stream == Stream::PER_THREAD {
        return thread_cache::own(context);
    }
    thread_cache::find_in(TIME.now(), context, stream.0).or_else(|| look_up(context, stream))
}

/// The same, to be remembered by the thread.
#[inline(never)]
fn look_up(context: u64, stream: Stream) -> Option<Served> {
    let seen = SEEN.read();
    let (time, (ordinal, id)) = (TIME.now(), *seen.get(&(context, stream.0))?);
    drop(seen);
    let served = Served { ordinal, id: id? };
    thread_cache::remember(time, context, stream.0, served);
    Some(served)
}

/// An allocator serves a stream that was seen, or a default one, from now on.
pub fn serve(context: u64, stream: Stream, served: Served) {
    if stream == Stream::PER_THREAD {
        return thread_cache::remember_own(Some((context, served)));
    }
    let now = (served.ordinal, Some(served.id));
    change(|seen| seen.insert((context, stream.0), now).is_some_and(|before| before.1.is_some()));
}

/// The key is no more: who serves the stream is found anew.
pub fn forget(stream: Stream) {
    if stream == Stream::PER_THREAD {
        thread_cache::remember_own(None);
    } else {
        let id = |seen: &mut Seen| seen.get_mut(&(CREATED, stream.0))?.1.take();
        change(|seen| id(seen).is_some());
    }
}

/// A device was reset: its streams are no more.
pub fn forget_device(ordinal: u32) {
    change(|seen| {
        seen.retain(|_, of| of.0 != ordinal);
        true
    });
}

/// Streams may come that are not seen: of a context that the program made, say. None is used before
/// that returns.
pub fn may_miss_some() {
    address_calls::run(|| MISSES_SOME.store(true, Ordering::Relaxed));
}

/// Calls back with the streams that were seen, of all devices: each can copy from and to the memory
/// of each. None of them is destroyed meanwhile. Not where there may be others
/// ([`OtherStreams`](super::OtherStreams)).
pub fn others(run: &mut dyn FnMut(Vec<Stream>)) {
    // Held: who destroys one says so first.
    let seen = SEEN.read();
    if !MISSES_SOME.load(Ordering::Relaxed) {
        let created = seen.range((CREATED, 0)..=(CREATED, u64::MAX));
        run(created.map(|(&(_, handle), _)| Stream(handle)).collect());
    }
}

/// Changes the table. What was there and is no more, threads may remember.
fn change(how: impl FnOnce(&mut Seen) -> bool) {
    let mut seen = SEEN.write();
    if how(&mut seen) {
        TIME.go_on();
    }
}
