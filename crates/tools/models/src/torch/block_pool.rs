//! [`BlockPool`]: the free blocks of one pool and size class, in the order best fit needs.
//!
//! Invariants: `free` holds exactly the pool's mapped blocks that are free, `unmapped` exactly the
//! unmapped ones; both are keyed by stream first, because a block serves its own stream only.

use std::collections::BTreeMap;

use super::block::{Block, BlockId, Blocks};

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

    pub(super) fn unmapped_of(&self, stream: u16) -> impl Iterator<Item = BlockId> {
        self.unmapped.range((stream, 0)..=(stream, u64::MAX)).map(|(_, id)| *id)
    }
}
