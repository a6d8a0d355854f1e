//! Snapshot: what is held, as plain data. Segments in address order, tiled by their blocks.

use crate::policy::{SegmentKind, SizeClass};
use crate::space::Space;
use crate::space::block::{BlockIndex, BlockState};
use crate::space::segment::Segment;

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

impl Space {
    /// What it holds.
    pub(crate) fn snapshot(&self) -> Vec<SegmentView> {
        let view = |segment: &Segment| {
            let list = self.list(segment.list);
            let blocks = self.blocks.onward(segment.first);
            SegmentView {
                address: segment.address,
                bytes: segment.bytes,
                kind: segment.kind,
                class: list.class,
                pool: list.pool.index(),
                stream: list.stream.index(),
                blocks: blocks.map(|index| self.view(index)).collect(),
            }
        };
        self.segments.in_address_order().map(|(_, segment)| view(segment)).collect()
    }

    /// A block.
    pub(crate) fn view(&self, index: BlockIndex) -> BlockView {
        let block = &self.blocks[index];
        let is_requested = matches!(block.state, BlockState::Live | BlockState::Pending);
        BlockView {
            address: block.address,
            bytes: block.bytes,
            requested_bytes: if is_requested { block.requested } else { 0 },
            state: block.state,
            stream: self.list_of(index).stream.index(),
        }
    }
}
