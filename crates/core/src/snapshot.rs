//! Snapshot: what the heap holds, as plain data. Segments in address order, tiled by their blocks.

use crate::error::FreeError;
use crate::heap::Heap;
use crate::policy::{SegmentKind, SizeClass};
use crate::space::block::{BlockIndex, BlockState};
use crate::space::segment::Segment;

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentView {
    /// Start.
    pub address: u64,
    /// Size of its addresses; mapped segments are backed only in part.
    pub bytes: u64,
    /// How it was obtained.
    pub kind: SegmentKind,
    /// Small or large blocks.
    pub class: SizeClass,
    /// Position of its pool; 0 is the default pool.
    pub pool: usize,
    /// Position of the stream it was obtained for.
    pub stream: usize,
    /// Its blocks in address order.
    pub blocks: Vec<BlockView>,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockView {
    /// Start.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// What the program asked for; 0 unless live or pending.
    pub requested_bytes: u64,
    /// What it is.
    pub state: BlockState,
    /// Position of the stream in whose order it is used.
    pub stream: usize,
}

impl Heap {
    /// The live block that starts at an address.
    ///
    /// # Errors
    /// There is none.
    pub fn block_at(&self, address: u64) -> Result<BlockView, FreeError> {
        self.space.find_live(address).map(|index| view(self, index))
    }

    /// What the heap holds.
    pub fn snapshot(&self) -> Vec<SegmentView> {
        let segments = self.space.segments.in_address_order();
        let view = |segment: &Segment| {
            let list = self.space.list(segment.list);
            let blocks = self.space.blocks.onward(segment.first);
            SegmentView {
                address: segment.address,
                bytes: segment.bytes,
                kind: segment.kind,
                class: list.class,
                pool: list.pool.index(),
                stream: list.stream.index(),
                blocks: blocks.map(|index| view(self, index)).collect(),
            }
        };
        segments.map(|(_, segment)| view(segment)).collect()
    }
}

fn view(heap: &Heap, index: BlockIndex) -> BlockView {
    let block = &heap.space.blocks[index];
    let is_requested = matches!(block.state, BlockState::Live | BlockState::Pending);
    BlockView {
        address: block.address,
        bytes: block.bytes,
        requested_bytes: if is_requested { block.requested } else { 0 },
        state: block.state,
        stream: heap.space.list(block.list).stream.index(),
    }
}
