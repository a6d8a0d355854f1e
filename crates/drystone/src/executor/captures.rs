//! [`Captures`]: the captures that are known of without asking a stream.
//!
//! A stream that may be gone is asked by those calls alone that bring it, and a thread's own by
//! that thread alone, so what it said last is kept here: with the pool that the request was for,
//! since who captures into a pool knows when that is over. Invariant: what is kept of such a stream
//! errs on one side only. A capture may be over and still be kept, until its stream comes again, is
//! retired or found gone, or the captures of its pool are said to be over; one that is under way,
//! and was brought or expected, is not dropped. What is kept of a stream that may be asked is a
//! hint, which saves questions.

use std::sync::atomic::{AtomicBool, Ordering};

use drystone_core::{PoolId, StreamId};
use parking_lot::Mutex;

/// Captures under way, as far as was told.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    table: Mutex<Table>,
    /// Whether the table has anything.
    is_any: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// Streams that were being captured when they were last brought.
    noted: Vec<Noted>,
    /// Pools whose requests come from a capture for all that is known.
    expected: Vec<PoolId>,
}

#[derive(Debug)]
struct Noted {
    stream: StreamId,
    /// That was asked then.
    pool: PoolId,
    /// Whether the stream may be asked at any time, by any thread.
    is_lasting: bool,
}

impl Captures {
    /// Whether a capture may be under way.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// A request for a pool came from this stream, which is being captured or not, and may be asked
    /// again at any time, by any thread, or not.
    pub(crate) fn note(&self, stream: StreamId, pool: PoolId, is_captured: bool, is_lasting: bool) {
        // Most requests come while nothing is captured.
        if is_captured || self.is_any() {
            self.change(|table| {
                table.noted.retain(|noted| noted.stream != stream);
                table.noted.extend(is_captured.then_some(Noted { stream, pool, is_lasting }));
                table.expected.retain(|&expected| expected != pool);
            });
        }
    }

    /// A stream that was retired, is gone, or says so itself is captured no more.
    pub(crate) fn forget(&self, stream: StreamId) {
        if self.is_any() {
            self.change(|table| table.noted.retain(|noted| noted.stream != stream));
        }
    }

    /// All streams that may be asked said that they are not captured.
    pub(crate) fn forget_lasting(&self) {
        if self.is_any() {
            self.change(|table| table.noted.retain(|noted| !noted.is_lasting));
        }
    }

    /// A capture whose requests the pool serves may begin at any time. The first request for the
    /// pool tells whether it has.
    pub(crate) fn expect(&self, pool: PoolId) {
        self.change(|table| table.expected.push(pool));
    }

    /// The pool serves no more requests: none will tell of a capture.
    pub(crate) fn expect_no_more(&self, pool: PoolId) {
        if self.is_any() {
            self.change(|table| table.expected.retain(|&expected| expected != pool));
        }
    }

    /// Every capture whose requests the pool served is over. Returns the streams it was told of.
    pub(crate) fn end(&self, pool: PoolId) -> Vec<StreamId> {
        self.change(|table| {
            table.expected.retain(|&expected| expected != pool);
            let ended = table.noted.extract_if(.., |noted| noted.pool == pool);
            ended.map(|noted| noted.stream).collect()
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let changed = change(&mut table);
        let is_any = !table.noted.is_empty() || !table.expected.is_empty();
        self.is_any.store(is_any, Ordering::Release);
        changed
    }
}
