//! Address map: from an address to the block that starts there. The only way in for a free.
//!
//! A hash table whose chains run through the blocks' filing links, so that a hit does not allocate:
//! only when more blocks are live than ever before does a chain more begin. It takes the blocks of
//! one other chain that belong to it (linear hashing), so that no insertion moves all of them.
//! Holds exactly the blocks that are live, pending, or quarantined, or claimed by a free in flight
//! (I6).

use super::block::BlockIndex;
use super::blocks::Blocks;
use crate::size::QUANTUM;

/// Smallest number of buckets.
const BUCKETS_MIN: usize = 1024;
/// The first bit of a hash that counts. Tried on blocks in strides of up to 512 MiB, where a find
/// passes 1.3 blocks with it; with 30, up to 9.
const HASH_SHIFT: u32 = 20;

#[derive(Debug)]
pub(crate) struct AddressMap {
    /// Of the chains: more than half as many as hashes are told apart, and at most as many.
    heads: Vec<BlockIndex>,
    /// One less than that many, which is a power of two.
    mask: usize,
    len: usize,
}

impl Default for AddressMap {
    fn default() -> Self {
        Self { heads: vec![BlockIndex::NONE; BUCKETS_MIN], mask: BUCKETS_MIN - 1, len: 0 }
    }
}

impl AddressMap {
    #[inline]
    fn bucket(&self, address: u64) -> usize {
        // Fibonacci hashing: the multiplier is 2^64 divided by the golden ratio. Bits from the
        // middle of the product depend on the address below and above them.
        let hash = (address / QUANTUM).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> HASH_SHIFT;
        let bucket = hash as usize & self.mask;
        // A chain that is not begun is part of the one whose number lacks the highest bit.
        if bucket < self.heads.len() { bucket } else { bucket & (self.mask >> 1) }
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

    /// Begins one more chain, so that on average a chain has at most one block.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, blocks: &mut Blocks) {
        let begun = self.heads.len();
        if begun > self.mask {
            self.mask = 2 * self.mask + 1;
        }
        let split = begun & (self.mask >> 1);
        let mut next = std::mem::replace(&mut self.heads[split], BlockIndex::NONE);
        self.heads.push(BlockIndex::NONE);
        while let Some(index) = next.some() {
            next = blocks[index].filed_next;
            let bucket = self.bucket(blocks[index].address);
            blocks.file_before(index, self.heads[bucket]);
            self.heads[bucket] = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::blocks::tests::unfiled;

    /// Grows several times over, with chains of every length, and forgets in another order.
    #[test]
    fn every_address_is_found_until_it_is_removed() {
        let (mut map, mut blocks) = (AddressMap::default(), Blocks::default());
        let count = 5 * BUCKETS_MIN as u64;
        let address = |n: u64| (1 << 40) + n * QUANTUM * (1 + n % 3 * 4096);
        let indices: Vec<BlockIndex> = (0..count)
            .map(|n| {
                let index = blocks.insert(unfiled(address(n), QUANTUM));
                map.insert(&mut blocks, index, address(n));
                index
            })
            .collect();
        assert_eq!((map.len(), map.heads.len()), (count as usize, count as usize));
        assert_eq!(map.mask + 1, 8 * BUCKETS_MIN);
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

    /// Blocks that stand side by side and such that are far apart: also when they become twice as
    /// many, no insertion moves more than a chain, and a lookup passes few others.
    #[test]
    fn chains_stay_short_while_they_become_more() {
        for stride in [1, 2, 3, 4096, 8192, 12_289] {
            let (mut map, mut blocks) = (AddressMap::default(), Blocks::default());
            for n in 0..40_000 {
                let address = (2 << 40) + n * stride * QUANTUM;
                let index = blocks.insert(unfiled(address, QUANTUM));
                map.insert(&mut blocks, index, address);
            }
            let lengths = map.heads.iter().map(|&head| blocks.filed_from(head).count());
            let (longest, passed) =
                lengths.fold((0, 0), |(most, sum), n| (n.max(most), sum + n * (n + 1) / 2));
            assert!(longest <= 16, "stride {stride}: {longest} blocks are in one chain");
            assert!(passed <= 2 * 40_000, "stride {stride}: lookups pass {passed} blocks");
        }
    }
}
