//! Generational ids: an id that outlived its thing is told apart from the thing's successor.
//!
//! A stream is a key, never a handle: the device recycles handle values, keys are never reused.

/// Names a stream to the heap. Never reused: a retired stream's id stays invalid for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl StreamId {
    /// Position in tables that run parallel to the heap's streams. Reused after retirement.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// Names a pool of the heap. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl PoolId {
    /// The pool that serves every request that names no other.
    pub const DEFAULT: PoolId = PoolId { index: 0, generation: 0 };

    /// Position in a snapshot. Reused once the pool is released and has no memory left.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}
