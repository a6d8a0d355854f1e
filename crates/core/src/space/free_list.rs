//! Free lists: the bins of one pool, class and stream.
//!
//! Keeps I5 (bitmap and lists agree). Within a bin the block freed last comes first; a search looks
//! at the first few blocks only, so that it stays O(1).

use super::bin::{BINS, Bin, Bitmap};
use super::block::BlockIndex;
use super::blocks::Blocks;
use super::trail::Trail;
use crate::counters::Meter;
use crate::id::{PoolIx, StreamIx};
use crate::policy::{self, SegmentKind, SizeClass};

/// How many blocks of one bin a search looks at. The bins are at most 1/64 wide, so what a longer
/// search could gain is small; the worst case of a hit grows with it.
const LOOK: usize = 8;

/// How many blocks of the last bin are looked at for the largest one, with the lock of the heap
/// held.
const LARGEST_LOOK: usize = 1024;

/// The blocks of one list that lie beside free blocks of others (`borders`).
#[derive(Debug, Default)]
pub(crate) struct Borders {
    blocks: Vec<BlockIndex>,
    bytes: u64,
}

impl Borders {
    /// The blocks, in no order.
    pub(crate) fn blocks(&self) -> &[BlockIndex] {
        &self.blocks
    }

    /// What they have together.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a block. Returns its place.
    pub(super) fn add(&mut self, index: BlockIndex, bytes: u64) -> u32 {
        self.blocks.push(index);
        self.bytes += bytes;
        self.blocks.len() as u32 - 1
    }

    /// Removes the block at a place. Returns the one that stands there now, if any.
    pub(super) fn remove(&mut self, at: u32, bytes: u64) -> Option<BlockIndex> {
        self.bytes -= bytes;
        self.blocks.swap_remove(at as usize);
        self.blocks.get(at as usize).copied()
    }
}

/// The free blocks of one pool, class and stream.
#[derive(Debug)]
pub(crate) struct FreeList {
    /// Index of the pool.
    pub(crate) pool: PoolIx,
    /// How the segments of its pool are obtained.
    pub(crate) kind: SegmentKind,
    pub(crate) class: SizeClass,
    /// How much a block that serves a request may have too much without being split.
    pub(crate) kept_rest_bytes: u64,
    /// Index of the stream in whose order the blocks are free.
    pub(crate) stream: StreamIx,
    /// Of the live and pending blocks that were requested for this list.
    pub(crate) active_bytes: Meter,
    /// Of these, what was freed and is in use still, or may be.
    pub(crate) leaving_bytes: u64,
    /// Of its free blocks.
    pub(crate) free_bytes: u64,
    /// It is among the lists that have memory of others.
    pub(crate) has_others: bool,
    /// First unmapped block of the segments obtained for this list: of homes, and of windows.
    pub(crate) unmapped: [BlockIndex; 2],
    /// Its blocks beside free blocks of other lists.
    pub(crate) borders: Borders,
    pub(crate) trail: Trail,
    pub(crate) bitmap: Bitmap,
    heads: Box<[BlockIndex; BINS]>,
}

impl FreeList {
    pub(crate) fn new(pool: PoolIx, kind: SegmentKind, class: SizeClass, stream: StreamIx) -> Self {
        Self {
            pool,
            kind,
            class,
            kept_rest_bytes: policy::kept_rest_bytes(kind, class, true),
            stream,
            active_bytes: Meter::default(),
            leaving_bytes: 0,
            free_bytes: 0,
            has_others: false,
            unmapped: [BlockIndex::NONE; 2],
            borders: Borders::default(),
            trail: Trail::new(),
            bitmap: Bitmap::new(),
            heads: Box::new([BlockIndex::NONE; BINS]),
        }
    }

    /// Files a free block.
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, index: BlockIndex) {
        let bin = Bin::of_block(blocks[index].bytes);
        self.file(blocks, index, bin);
    }

    #[inline]
    fn file(&mut self, blocks: &mut Blocks, index: BlockIndex, bin: Bin) {
        blocks[index].bin = bin.0;
        let head = std::mem::replace(&mut self.heads[bin.index()], index);
        if head.is_none() {
            self.bitmap.set(bin);
        }
        blocks.file_before(index, head);
    }

    /// A filed block has got another size: it stands first in the bin of that.
    #[inline(never)]
    pub(crate) fn refile(&mut self, blocks: &mut Blocks, index: BlockIndex) {
        let block = &blocks[index];
        let bin = Bin::of_block(block.bytes);
        if block.bin != bin.0 || !block.filed_previous.is_none() {
            self.remove(blocks, index);
            self.file(blocks, index, bin);
        }
    }

    /// Takes a filed block out of its bin.
    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, index: BlockIndex) {
        let bin = Bin(blocks[index].bin);
        if let Some(head) = blocks.unfile(index) {
            self.heads[bin.index()] = head;
            if head.is_none() {
                self.bitmap.clear(bin);
            }
        }
    }

    /// The block that serves a request of this many bytes best; it stays filed.
    ///
    /// Looks in the bin that the size itself falls into, where some blocks may fit, then in the
    /// next bin that has a block, where all do.
    #[inline]
    pub(crate) fn find(&self, blocks: &Blocks, bytes: u64) -> Option<BlockIndex> {
        let (floor, ceiling) = Bin::around(bytes);
        let bin = self.bitmap.first_from(floor)?;
        let first = self.heads[bin.index()];
        let block = &blocks[first];
        if block.filed_next.is_none() && block.bytes >= bytes {
            return Some(first);
        }
        self.find_among(blocks, bin, ceiling, bytes)
    }

    /// The same where the first bin to look at has several blocks, or none that fits.
    #[inline(never)]
    fn find_among(
        &self,
        blocks: &Blocks,
        mut bin: Bin,
        ceiling: Bin,
        bytes: u64,
    ) -> Option<BlockIndex> {
        loop {
            let found = self.best_of(blocks, bin, bytes);
            if found.is_some() || bin >= ceiling {
                return found;
            }
            bin = self.bitmap.first_from(ceiling)?;
        }
    }

    /// As [`find`](Self::find), but looks at every block that may fit, however many do not: for
    /// a request that would have to grow otherwise.
    #[cold]
    #[inline(never)]
    pub(crate) fn search(&self, blocks: &Blocks, bytes: u64) -> Option<BlockIndex> {
        self.find(blocks, bytes).or_else(|| self.overlooked(blocks, bytes))
    }

    /// What a [`find`](Self::find) that found nothing did not look at, but would have served.
    #[cold]
    pub(crate) fn overlooked(&self, blocks: &Blocks, bytes: u64) -> Option<BlockIndex> {
        Self::smallest(blocks, self.bin(blocks, Bin::of_block(bytes)), bytes)
    }

    /// The smallest block that fits among the first few of a bin, at the lowest address if equal.
    #[inline]
    fn best_of(&self, blocks: &Blocks, bin: Bin, bytes: u64) -> Option<BlockIndex> {
        let few = self.bin(blocks, bin).take(LOOK);
        Self::smallest(blocks, few, bytes)
    }

    /// The smallest of these blocks that fits, at the lowest address if equal.
    #[inline]
    fn smallest(
        blocks: &Blocks,
        among: impl Iterator<Item = BlockIndex>,
        bytes: u64,
    ) -> Option<BlockIndex> {
        let fitting = among.filter(|&index| blocks[index].bytes >= bytes);
        fitting.min_by_key(|&index| (blocks[index].bytes, blocks[index].address))
    }

    /// The largest block, in bytes; 0 if there is none. Where the last bin has more than
    /// [`LARGEST_LOOK`], the largest of so many: at most a 64th less.
    pub(crate) fn largest_bytes(&self, blocks: &Blocks) -> u64 {
        let last = self.bitmap.last().map(|bin| self.bin(blocks, bin).take(LARGEST_LOOK));
        last.into_iter().flatten().map(|index| blocks[index].bytes).max().unwrap_or(0)
    }

    /// Every filed block, by ascending bin. Skips empty bins.
    #[inline]
    pub(crate) const fn filed<'a>(&'a self, blocks: &'a Blocks) -> Filed<'a> {
        self.filed_from(blocks, 0)
    }

    /// Every filed block that may have so many bytes, by ascending bin.
    #[inline]
    pub(crate) const fn filed_from<'a>(&'a self, blocks: &'a Blocks, bytes: u64) -> Filed<'a> {
        Filed { list: self, blocks, bin: Bin::of_block(bytes), next: BlockIndex::NONE }
    }

    /// The bins with blocks that may have so many bytes, by descending size.
    pub(crate) fn bins_down_to(&self, bytes: u64) -> impl Iterator<Item = Bin> + '_ {
        let least = Bin::of_block(bytes);
        let below = |bin: &Bin| self.bitmap.last_to(Bin(bin.0.checked_sub(1)?));
        std::iter::successors(self.bitmap.last(), below).take_while(move |&bin| bin >= least)
    }

    /// The blocks of every bin with the bin, found without the bitmap: for checks.
    pub(crate) fn bins<'a>(
        &'a self,
        blocks: &'a Blocks,
    ) -> impl Iterator<Item = (Bin, BlockIndex)> + 'a {
        (0..BINS as u16)
            .flat_map(move |bin| self.bin(blocks, Bin(bin)).map(move |index| (Bin(bin), index)))
    }

    /// The blocks of one bin, those filed last first.
    pub(crate) fn bin<'a>(
        &self,
        blocks: &'a Blocks,
        bin: Bin,
    ) -> impl Iterator<Item = BlockIndex> + use<'a> {
        blocks.filed_from(self.heads[bin.index()])
    }
}

/// A walk over filed blocks.
#[derive(Debug)]
pub(crate) struct Filed<'a> {
    list: &'a FreeList,
    blocks: &'a Blocks,
    /// Where the walk goes on after the chain it is in.
    bin: Bin,
    next: BlockIndex,
}

impl Iterator for Filed<'_> {
    type Item = BlockIndex;

    #[inline]
    fn next(&mut self) -> Option<BlockIndex> {
        if self.next.is_none() {
            let bin = self.list.bitmap.first_from(self.bin)?;
            self.bin = Bin(bin.0 + 1);
            self.next = self.list.heads[bin.index()];
        }
        let index = self.next.some()?;
        self.next = self.blocks[index].filed_next;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::blocks::tests::unfiled;

    fn list_of(sizes: &[u64]) -> (FreeList, Blocks, Vec<BlockIndex>) {
        let (mut list, mut blocks) = (
            FreeList::new(PoolIx(0), SegmentKind::Mapped, SizeClass::Large, StreamIx(0)),
            Blocks::default(),
        );
        let mut indices = Vec::new();
        for (at, &bytes) in sizes.iter().enumerate() {
            let index = blocks.insert(unfiled((at as u64 + 1) << 30, bytes));
            list.insert(&mut blocks, index);
            indices.push(index);
        }
        (list, blocks, indices)
    }

    #[test]
    fn the_smallest_block_that_fits_is_found_at_the_lowest_address() {
        let (list, blocks, indices) = list_of(&[4096, 512, 2048, 1024, 1024, 1 << 20]);
        for (bytes, expected) in
            [(512, Some(1)), (1024, Some(3)), (1536, Some(2)), (4608, Some(5)), (2 << 20, None)]
        {
            assert_eq!(list.find(&blocks, bytes), expected.map(|at| indices[at]), "{bytes}");
        }
    }

    /// Sizes that share a bin: the first serves 1 MiB + 512, the second does not.
    #[test]
    fn a_block_of_the_bin_below_serves_if_it_is_large_enough() {
        let (large, small) = ((1 << 20) + 1024, (1 << 20) + 512);
        let (list, blocks, indices) = list_of(&[large, small]);
        assert_eq!(Bin::of_block(large), Bin::of_block(small));
        assert_eq!(list.find(&blocks, large), Some(indices[0]));
        assert_eq!(list.find(&blocks, large + 512), None);
    }

    #[test]
    fn b28_a_search_looks_further_than_a_find() {
        let (large, small) = ((1 << 20) + 1024, (1 << 20) + 512);
        let mut sizes = vec![small; LOOK + 1];
        sizes[0] = large;
        let (list, blocks, indices) = list_of(&sizes);
        assert_eq!(list.find(&blocks, large), None);
        assert_eq!(list.search(&blocks, large), Some(indices[0]));
        assert_eq!(list.search(&blocks, large + 512), None);
    }

    #[test]
    fn the_largest_block_is_known_to_a_64th() {
        let (list, blocks, _) = list_of(&[4096, 5 << 20, 512, 3 << 20]);
        assert_eq!(list.largest_bytes(&blocks), 5 << 20);
        assert_eq!(list_of(&[]).0.largest_bytes(&blocks), 0);
        // The largest was filed first, behind many of its bin.
        let mut sizes = vec![1 << 20; LARGEST_LOOK + 1];
        sizes[0] += 512;
        let (list, blocks, _) = list_of(&sizes);
        assert_eq!(list.largest_bytes(&blocks), 1 << 20);
    }

    /// I5, for blocks taken from the front, the middle and the end of a bin.
    #[test]
    fn the_bitmap_follows_the_last_block_of_a_bin() {
        for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
            let (mut list, mut blocks, indices) = list_of(&[1024; 3]);
            let bin = Bin::of_block(1024);
            for (left, at) in order.into_iter().enumerate().map(|(n, at)| (2 - n, at)) {
                assert!(list.bitmap.contains(bin));
                list.remove(&mut blocks, indices[at]);
                assert_eq!(list.bins(&blocks).count(), left);
            }
            assert!(!list.bitmap.contains(bin) && list.bitmap.levels_agree());
        }
    }
}
