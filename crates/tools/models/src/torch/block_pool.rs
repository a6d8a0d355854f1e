//! [`BlockPool`]: the free blocks of one pool and size class, in the order best fit needs; and
//! [`PoolId`], which names it.
//!
//! Invariants: `free` holds exactly the pool's mapped blocks that are free, `unmapped` exactly the
//! unmapped ones; both are keyed by stream first, because a block serves its own stream only.

use super::block::{Block, BlockId, Blocks};
use std::collections::BTreeMap;

/// Order of free blocks: stream, size, address.
type FreeKey = (u16, u64, u64);

/// The free blocks of one pool and size class.
#[derive(Debug, Default)]
pub(super) struct BlockPool {
    pub(super) free: BTreeMap<FreeKey, BlockId>,
    /// By stream and address.
    pub(super) unmapped: BTreeMap<(u16, u64), BlockId>,
    /// Searches so far: the clock of garbage collection.
    pub(super) searches: u64,
}

impl BlockPool {
    /// Puts a block in, mapped or not; a free block's age starts here.
    pub(super) fn insert(&mut self, id: BlockId, blocks: &mut Blocks) {
        let block = &mut blocks[id];
        if block.is_mapped {
            block.age_base = self.searches;
            self.free.insert((block.stream, block.bytes, block.address), id);
        } else {
            self.unmapped.insert((block.stream, block.address), id);
        }
    }

    /// Takes a block out. Its size and address must be those it was put in with.
    pub(super) fn remove(&mut self, block: &Block) {
        if block.is_mapped {
            self.free.remove(&(block.stream, block.bytes, block.address));
        } else {
            self.unmapped.remove(&(block.stream, block.address));
        }
    }

    /// The stream's blocks of at least `bytes`, smallest first, lowest address among equals.
    pub(super) fn at_least(&self, stream: u16, bytes: u64) -> impl Iterator<Item = BlockId> {
        self.free.range((stream, bytes, 0)..=(stream, u64::MAX, u64::MAX)).map(|(_, id)| *id)
    }

    /// The stream's unmapped blocks by address.
    pub(super) fn unmapped_of(&self, stream: u16) -> impl Iterator<Item = BlockId> {
        self.unmapped.range((stream, 0)..=(stream, u64::MAX)).map(|(_, id)| *id)
    }
}

/// Names a pool: the dense pool number of the trace and one of its two size classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(u16);

impl PoolId {
    pub(super) fn new(pool: u8, is_small: bool) -> Self {
        Self(u16::from(pool) * 2 + u16::from(is_small))
    }

    pub(super) const fn is_small(self) -> bool {
        self.0 % 2 == 1
    }

    /// The dense pool number; 0 is the default pool.
    pub(super) const fn number(self) -> u8 {
        (self.0 / 2) as u8
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}
