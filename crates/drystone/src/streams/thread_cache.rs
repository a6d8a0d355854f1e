//! What each thread remembers of streams, so that most calls that bring one neither ask the driver
//! nor wait for another thread.
//!
//! Invariant: what is remembered was so at the time that it is stamped with, and is believed by
//! whoever has the same time still. The one exception is a thread's own stream, for who bears that
//! its key is no more: no other thread can name it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use drystone_core::StreamId;

/// How many streams a thread remembers; those it meets beyond cost a lock and a look-up.
const REMEMBERED: usize = 16;

/// A stream, and the device whose allocator has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The device's ordinal.
    pub ordinal: u32,
    /// The stream's key.
    pub id: StreamId,
}

/// The time of those who know streams together: it goes on whenever a name may lead elsewhere. Who
/// is told of a name by another thread is told of this, too.
#[derive(Debug)]
pub(super) struct Time(AtomicU64);

impl Time {
    /// That of what is seen in the whole process.
    pub(super) const fn of_process() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One that is no other's: there is room for 10^12 ends in each.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(AtomicU64::new(NEXT.fetch_add(1, Ordering::Relaxed) << 40))
    }

    /// Now. For what is remembered it is read before that is looked up, or with the lock held under
    /// which the time goes on.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn go_on(&self) {
        self.0.fetch_add(2, Ordering::Relaxed);
    }
}

/// A stream that the thread remembers. Aligned so that it is found by a shift.
#[repr(align(64))]
struct Entry {
    time: Cell<u64>,
    name: Cell<u64>,
    context: Cell<u64>,
    ordinal: Cell<u32>,
    id: Cell<Option<StreamId>>,
}

impl Entry {
    const fn none() -> Self {
        let (time, name, context) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Self { time, name, context, ordinal: Cell::new(0), id: Cell::new(None) }
    }

    #[inline]
    fn is(&self, time: u64, name: u64) -> bool {
        self.name.get() == name && self.time.get() == time
    }
}

thread_local! {
    /// Has no destructor, so that it serves until the thread's very end.
    static CACHE: [Entry; REMEMBERED] = const { [const { Entry::none() }; REMEMBERED] };
    /// The thread's own default stream, and the context it is of.
    static OWN: Cell<Option<(u64, Served)>> = const { Cell::new(None) };
}

/// Where a thread remembers a name.
#[inline]
const fn place_of(name: u64) -> usize {
    // The product's highest bits depend on all of a handle's.
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % REMEMBERED
}

/// The key that the calling thread remembers.
#[inline]
pub(super) fn find(time: u64, name: u64) -> Option<StreamId> {
    CACHE.with(|cache| {
        let entry = &cache[place_of(name)];
        if entry.is(time, name) { entry.id.get() } else { None }
    })
}

/// The same in a context, with the device.
#[inline]
pub(super) fn find_in(time: u64, context: u64, name: u64) -> Option<Served> {
    CACHE.with(|cache| {
        let entry = &cache[place_of(name)];
        if !entry.is(time, name) || entry.context.get() != context {
            return None;
        }
        entry.id.get().map(|id| Served { ordinal: entry.ordinal.get(), id })
    })
}

/// The calling thread remembers what it found at that time.
pub(super) fn remember(time: u64, context: u64, name: u64, served: Served) {
    CACHE.with(|cache| {
        let entry = &cache[place_of(name)];
        entry.time.set(time);
        entry.name.set(name);
        entry.context.set(context);
        entry.ordinal.set(served.ordinal);
        entry.id.set(Some(served.id));
    });
}

/// The calling thread's own stream of a context.
#[inline]
pub(super) fn own(context: u64) -> Option<Served> {
    OWN.get().filter(|own| own.0 == context).map(|own| own.1)
}

/// The calling thread remembers its own stream; or forgets it.
pub(super) fn remember_own(own: Option<(u64, Served)>) {
    OWN.set(own);
}
