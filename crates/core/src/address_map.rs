//! Address map: from an address to the block that starts there. The only way in for a free.
//!
//! A hash table whose chains run through the blocks' home links, so that a hit path never
//! allocates: the table grows when the block table does. Holds exactly the blocks that are live,
//! pending, or quarantined, or claimed by a free in flight (I6).

use crate::block::{BlockIndex, Blocks};
use crate::size::QUANTUM;

/// Smallest number of buckets.
const BUCKETS_MIN: usize = 1024;

#[derive(Debug)]
pub(crate) struct AddressMap {
    /// A power of two of chains.
    heads: Vec<BlockIndex>,
    len: usize,
}

impl AddressMap {
    pub(crate) fn new() -> Self {
        Self { heads: vec![BlockIndex::NONE; BUCKETS_MIN], len: 0 }
    }

    #[inline]
    fn bucket(&self, address: u64) -> usize {
        // Fibonacci hashing: the multiplier is 2^64 divided by the golden ratio.
        let hash = (address / QUANTUM).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> (u64::BITS - self.heads.len().trailing_zeros())) as usize
    }

    #[inline]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, index: BlockIndex, address: u64) {
        if self.len >= self.heads.len() {
            self.grow(blocks);
        }
        let bucket = self.bucket(address);
        let head = self.heads[bucket];
        let block = &mut blocks[index];
        block.home_previous = BlockIndex::NONE;
        block.home_next = head;
        if let Some(head) = head.some() {
            blocks[head].home_previous = index;
        }
        self.heads[bucket] = index;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, index: BlockIndex) {
        let block = &blocks[index];
        let (address, previous, next) = (block.address, block.home_previous, block.home_next);
        if let Some(next) = next.some() {
            blocks[next].home_previous = previous;
        }
        if let Some(previous) = previous.some() {
            blocks[previous].home_next = next;
        } else {
            let bucket = self.bucket(address);
            self.heads[bucket] = next;
        }
        self.len -= 1;
    }

    #[inline]
    pub(crate) fn find(&self, blocks: &Blocks, address: u64) -> Option<BlockIndex> {
        let mut next = self.heads[self.bucket(address)];
        while let Some(index) = next.some() {
            let block = &blocks[index];
            if block.address == address {
                return Some(index);
            }
            next = block.home_next;
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Doubles the buckets: on average a chain has at most one block.
    #[cold]
    fn grow(&mut self, blocks: &mut Blocks) {
        let doubled = vec![BlockIndex::NONE; self.heads.len() * 2];
        let old = std::mem::replace(&mut self.heads, doubled);
        self.len = 0;
        for head in old {
            let mut next = head;
            while let Some(index) = next.some() {
                next = blocks[index].home_next;
                self.insert(blocks, index, blocks[index].address);
            }
        }
    }
}
