//! What the allocator held when the snapshot was taken, by what it is unused for.

use std::collections::BTreeMap;

use drystone_trace::snapshot::{BlockState, PoolId, Recording, Segment};

use super::refused::Refused;
use crate::args::GRANULE_BYTES;

/// Bytes of one device, from the segments of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Held {
    pub(super) reserved_bytes: u64,
    /// Of that, in the program's hands, after rounding.
    pub(super) allocated_bytes: u64,
    /// What rounding takes of it.
    pub(super) rounding_bytes: u64,
    /// Freed, but another stream may still use it.
    pub(super) pending_bytes: u64,
    pub(super) unused_bytes: u64,
    /// Free, in whole granules of 2 MiB.
    pub(super) unused_granules_bytes: u64,
    pub(super) largest_free_bytes: u64,
    /// Free, and of other streams than the one that matters: that of the refused request, else the
    /// one with most memory.
    pub(super) other_streams_bytes: u64,
    /// Segments of private pools: of CUDA graphs, or the program's own.
    pub(super) private_reserved_bytes: u64,
    /// Free in them.
    pub(super) private_unused_bytes: u64,
    /// How many such pools.
    pub(super) private_pools: usize,
    /// Whether any segment grows by mapping.
    pub(super) is_expandable: bool,
}

impl Held {
    pub(super) fn of(recording: &Recording, refused: Option<&Refused>) -> Self {
        let segments =
            || recording.snapshot.segments.iter().filter(|one| one.device == recording.device);
        let asking = refused.and_then(|refused| recording.streams.get(refused.stream).copied());
        let stream = asking.or_else(|| largest_stream(segments()));
        let mut held = Self::default();
        let mut pools = std::collections::BTreeSet::new();
        for segment in segments() {
            let unused_before = held.unused_bytes;
            held.add(segment);
            let unused = held.unused_bytes - unused_before;
            if Some(segment.stream) != stream {
                held.other_streams_bytes += unused;
            }
            if let Some(pool) = segment.pool.filter(|&pool| pool != PoolId::default()) {
                pools.insert(pool);
                held.private_reserved_bytes += segment.bytes;
                held.private_unused_bytes += unused;
            }
        }
        held.private_pools = pools.len();
        held
    }

    fn add(&mut self, segment: &Segment) {
        self.reserved_bytes += segment.bytes;
        self.is_expandable |= segment.is_expandable == Some(true);
        for block in &segment.blocks {
            match block.state {
                BlockState::Allocated => {
                    self.allocated_bytes += block.bytes;
                    self.rounding_bytes += block.bytes.saturating_sub(block.requested_bytes);
                }
                BlockState::PendingFree => self.pending_bytes += block.bytes,
                BlockState::Inactive => {
                    self.unused_bytes += block.bytes;
                    self.largest_free_bytes = self.largest_free_bytes.max(block.bytes);
                    let first = block.address.next_multiple_of(GRANULE_BYTES);
                    let end = (block.address + block.bytes) / GRANULE_BYTES * GRANULE_BYTES;
                    self.unused_granules_bytes += end.saturating_sub(first);
                }
            }
        }
    }
}

fn largest_stream<'a>(segments: impl Iterator<Item = &'a Segment>) -> Option<u64> {
    let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for segment in segments {
        *bytes.entry(segment.stream).or_default() += segment.bytes;
    }
    bytes.into_iter().max_by_key(|&(_, bytes)| bytes).map(|(stream, _)| stream)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drystone_trace::snapshot::{Block, BlockState, PoolId, Recording, Segment, Snapshot};

    use super::Held;

    const MIB: u64 = 1 << 20;

    fn block(address: u64, bytes: u64, state: BlockState) -> Block {
        Block { address, bytes, requested_bytes: bytes - 100, state, stack: None }
    }

    fn segment(address: u64, stream: u64, pool: u32, blocks: Vec<Block>) -> Segment {
        Segment {
            address,
            bytes: blocks.iter().map(|block| block.bytes).sum(),
            stream,
            pool: Some(PoolId(pool, 0)),
            is_expandable: Some(true),
            blocks,
            ..Segment::default()
        }
    }

    #[test]
    fn what_is_unused_is_told_by_what_it_is_good_for() {
        let base = 64 * MIB;
        let own = vec![
            block(base, MIB, BlockState::Allocated),
            // Of these 6 MiB the first and the last are parts of granules that others use.
            block(base + MIB, 6 * MIB, BlockState::Inactive),
            block(base + 7 * MIB, MIB, BlockState::PendingFree),
        ];
        let other = vec![block(2 * base, 3 * MIB, BlockState::Inactive)];
        let segments = vec![segment(base, 0, 0, own), segment(2 * base, 7, 4, other)];
        let recording = Recording {
            snapshot: Arc::new(Snapshot { segments, ..Snapshot::default() }),
            streams: vec![0, 7],
            ..Recording::default()
        };
        let expected = Held {
            reserved_bytes: 11 * MIB,
            allocated_bytes: MIB,
            rounding_bytes: 100,
            pending_bytes: MIB,
            unused_bytes: 9 * MIB,
            unused_granules_bytes: (4 + 2) * MIB,
            largest_free_bytes: 6 * MIB,
            other_streams_bytes: 3 * MIB,
            private_reserved_bytes: 3 * MIB,
            private_unused_bytes: 3 * MIB,
            private_pools: 1,
            is_expandable: true,
        };
        assert_eq!(Held::of(&recording, None), expected);
    }
}
