//! Generational ids: an id that outlived its thing is told apart from the thing's successor, and
//! one of another heap from all of this one's.
//!
//! A stream is a key, never a handle: the device recycles handle values, keys are never reused.

use std::sync::atomic::{AtomicU64, Ordering};

/// Position of a stream in tables. Reused after retirement: [`StreamId`] tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StreamIx(pub(crate) u32);

/// Position of a pool in tables. Reused after its release: [`PoolId`] tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolIx(pub(crate) u32);

/// Names a free list. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ListIx(pub(crate) u32);

/// Names a segment. Reused once it was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentIx(pub(crate) u32);

macro_rules! position {
    ($($name:ident)*) => {$(
        impl $name {
            #[inline]
            pub(crate) const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

position!(StreamIx PoolIx ListIx SegmentIx);

/// Tells things apart that have a position one after another. Counted over all heaps of the
/// process, so that no id of one heap means a thing of another.
pub(crate) fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Names a stream to the heap. Never reused, by no other heap either: a retired stream's id stays
/// invalid forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub(crate) index: StreamIx,
    pub(crate) generation: u64,
}

impl StreamId {
    /// Position in tables that run parallel to the heap's streams. Reused after retirement.
    pub const fn index(self) -> usize {
        self.index.index()
    }
}

/// Names a pool of the heap. Never reused, by no other heap either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId {
    pub(crate) index: PoolIx,
    pub(crate) generation: u64,
}

impl PoolId {
    /// The pool that serves every request that names no other: each heap has one.
    pub const DEFAULT: PoolId = PoolId { index: PoolIx(0), generation: 0 };

    /// Position in a snapshot. Reused once the pool is released and has no memory left.
    pub const fn index(self) -> usize {
        self.index.index()
    }
}

/// Names a granule, and the handle that begins with it. Reused, by a handle of as many granules,
/// after its own was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GranuleId(pub(crate) u32);

impl GranuleId {
    /// Position in a table of handles that runs parallel to the heap's granules.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
