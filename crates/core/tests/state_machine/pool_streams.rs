//! What the slow reference knows of each pool, size class and stream (I8).

use std::collections::BTreeMap;

use drystone_core::{Gauge, PoolStreamStats, SegmentView};

use crate::reference::{Block, add};

/// Positions of a pool and a stream in the heap, and a size class.
type Key = (usize, usize, usize);

/// What is in use, by pool, stream and size class.
#[derive(Debug, Default)]
pub struct PoolStreams {
    gauges: BTreeMap<Key, Gauge>,
    /// The position of each of the program's pools.
    pools: Vec<usize>,
}

impl PoolStreams {
    fn key(&self, block: &Block) -> Key {
        (self.pools[block.pool], block.stream.index(), block.class as usize)
    }

    pub fn grant(&mut self, block: &Block) {
        add(self.gauges.entry(self.key(block)).or_default(), block.bytes);
    }

    pub fn complete(&mut self, block: &Block) {
        let key = self.key(block);
        self.gauges.get_mut(&key).expect("it was granted").current -= block.bytes;
    }

    /// A pool takes the place of one that has ended, or a new one.
    pub fn add_pool(&mut self, position: usize) {
        self.gauges.retain(|key, _| key.0 != position);
        self.pools.push(position);
    }

    /// A stream takes the place of one that has ended, or a new one.
    pub fn add_stream(&mut self, position: usize) {
        let inherited = self.gauges.iter_mut().filter(|(key, _)| key.1 == position);
        inherited.for_each(|(_, gauge)| gauge.peak = gauge.current);
    }

    pub fn reset_peaks(&mut self) {
        self.gauges.values_mut().for_each(|gauge| gauge.peak = gauge.current);
    }

    /// The heap's statistics are these, and have the live blocks and the free memory there is.
    pub fn verify<'a>(
        &self,
        found: &[PoolStreamStats],
        live: impl Iterator<Item = &'a Block>,
        segments: &[SegmentView],
    ) {
        let mut expected = self.gauges.clone();
        let mut allocated = BTreeMap::<Key, u64>::new();
        for block in live {
            *allocated.entry(self.key(block)).or_default() += block.bytes;
        }
        let mut free = free_bytes(segments);
        for stats in found {
            let key = (stats.pool, stats.stream, stats.class as usize);
            assert_eq!(stats.active_bytes, expected.remove(&key).unwrap_or_default(), "{key:?}");
            assert_eq!(stats.allocated_bytes, allocated.remove(&key).unwrap_or(0), "{key:?}");
            let (bytes, largest) = (stats.free_bytes, stats.largest_free_bytes);
            assert_eq!((bytes, largest), free.remove(&key).unwrap_or((0, 0)), "{key:?}");
        }
        assert!(expected.values().all(|gauge| gauge.peak == 0), "left out: {expected:?}");
        assert!(allocated.is_empty() && free.is_empty(), "left out: {allocated:?}, {free:?}");
    }
}

/// The bytes of free blocks in all and of the largest, by stats.
fn free_bytes(segments: &[SegmentView]) -> BTreeMap<Key, (u64, u64)> {
    let mut free = BTreeMap::<Key, (u64, u64)>::new();
    for segment in segments {
        let blocks = segment.blocks.iter();
        for block in blocks.filter(|block| block.state == drystone_core::BlockState::Free) {
            let key = (segment.pool, block.stream, segment.class as usize);
            let (bytes, largest) = free.entry(key).or_default();
            *bytes += block.bytes;
            *largest = block.bytes.max(*largest);
        }
    }
    free
}
