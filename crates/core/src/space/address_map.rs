//! Address map: from an address to the block that starts there. The only way in for a free.
//!
//! A hash table whose chains run through the blocks' filing links, so that a hit does not allocate:
//! only when more blocks are live than ever before do the heads double. Holds exactly the blocks
//! that are live, pending, or quarantined, or claimed by a free in flight (I6).

use super::block::{BlockIndex, Blocks};
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
        blocks.file_before(index, head);
        self.heads[bucket] = index;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, index: BlockIndex) {
        if let Some(head) = blocks.unfile(index) {
            let bucket = self.bucket(blocks[index].address);
            self.heads[bucket] = head;
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
            next = block.filed_next;
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
                next = blocks[index].filed_next;
                self.insert(blocks, index, blocks[index].address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::block::tests::unfiled;

    /// Grows several times over, with chains of every length, and forgets in another order.
    #[test]
    fn every_address_is_found_until_it_is_removed() {
        let (mut map, mut blocks) = (AddressMap::new(), Blocks::default());
        let count = 5 * BUCKETS_MIN as u64;
        let address = |n: u64| (1 << 40) + n * QUANTUM * (1 + n % 3 * 4096);
        let indices: Vec<BlockIndex> = (0..count)
            .map(|n| {
                let index = blocks.insert(unfiled(address(n), QUANTUM));
                map.insert(&mut blocks, index, address(n));
                index
            })
            .collect();
        assert_eq!((map.len(), map.heads.len()), (count as usize, 8 * BUCKETS_MIN));
        for n in 0..count {
            assert_eq!(map.find(&blocks, address(n)), Some(indices[n as usize]));
            assert_eq!(map.find(&blocks, address(n) + 1), None);
        }
        for n in (0..count).map(|n| n * 7 % count) {
            map.remove(&mut blocks, indices[n as usize]);
            assert_eq!(map.find(&blocks, address(n)), None);
        }
        assert_eq!(map.len(), 0);
        assert!(map.heads.iter().all(|head| head.is_none()));
    }
}
