//! Snapshot: what is held, as plain data. Segments in address order, tiled by their blocks.
//!
//! All of it is of one moment, so the state is copied with its lock held: the tables as they are,
//! into memory that is there already ([`SnapshotBuffer`]). To tell what they say
//! ([`SnapshotCopy::views`]) takes several times as long, and no lock.

use crate::id::{ListIx, PoolIx, SegmentIx, StreamIx};
use crate::policy::{SegmentKind, SizeClass};
use crate::space::Space;
use crate::space::block::{Block, BlockIndex, BlockState};
use crate::space::free_list::FreeList;
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

impl BlockView {
    /// Whether it is one free block together with the one after it.
    fn is_joined_with(&self, next: &Self) -> bool {
        let is_free = |view: &Self| view.state == BlockState::Free;
        is_free(self) && is_free(next) && self.stream == next.stream
    }
}

/// Memory for a copy of what is held, asked for and touched before the copy is made.
#[derive(Debug)]
pub struct SnapshotBuffer(Vec<Block>);

impl SnapshotBuffer {
    /// For so many blocks, and some that are made meanwhile.
    pub fn for_blocks(blocks: usize) -> Self {
        let claimed = Block::claimed(0, 0, SegmentIx(0), ListIx(0), false);
        Self(vec![claimed; blocks + blocks / 16 + 64])
    }
}

/// What is held at one moment, copied.
#[derive(Debug)]
pub struct SnapshotCopy(Inner);

#[derive(Debug)]
enum Inner {
    Tables {
        blocks: Vec<Block>,
        /// In address order.
        segments: Vec<Segment>,
        lists: Vec<Owner>,
    },
    Views(Vec<SegmentView>),
}

/// Whose blocks a list has.
type Owner = (PoolIx, SizeClass, StreamIx);

impl SnapshotCopy {
    /// Of a state machine with few blocks.
    pub(crate) const fn of_views(views: Vec<SegmentView>) -> Self {
        Self(Inner::Views(views))
    }

    /// What it is.
    pub fn views(self) -> Vec<SegmentView> {
        let (blocks, segments, lists) = match self.0 {
            Inner::Views(views) => return views,
            Inner::Tables { blocks, segments, lists } => (blocks, segments, lists),
        };
        let block = |index: BlockIndex| &blocks[index.0 as usize];
        let view = |segment: Segment| {
            let (pool, class, stream) = lists[segment.list.index()];
            let chain = std::iter::successors(segment.first.some(), |&ix| block(ix).next.some());
            let mut blocks: Vec<BlockView> = Vec::new();
            for view in chain.map(block).map(|b| b.view(lists[b.list.index()].2)) {
                match blocks.last_mut() {
                    // Joins that are put off are not seen.
                    Some(last) if last.is_joined_with(&view) => last.bytes += view.bytes,
                    _ => blocks.push(view),
                }
            }
            SegmentView {
                address: segment.address,
                bytes: segment.bytes,
                kind: segment.kind,
                class,
                pool: pool.index(),
                stream: stream.index(),
                blocks,
            }
        };
        segments.into_iter().map(view).collect()
    }
}

impl Space {
    /// Copies what it holds. The error says for how many blocks the buffer is too small.
    pub(crate) fn copy(&self, buffer: SnapshotBuffer) -> Result<SnapshotCopy, usize> {
        let SnapshotBuffer(mut blocks) = buffer;
        if blocks.len() < self.blocks.capacity() {
            return Err(self.blocks.capacity());
        }
        self.blocks.copy_to(&mut blocks);
        let owner = |list: &FreeList| (list.pool, list.class, list.stream);
        Ok(SnapshotCopy(Inner::Tables {
            blocks,
            segments: self.segments.in_address_order().map(|(_, segment)| *segment).collect(),
            lists: self.lists().iter().map(owner).collect(),
        }))
    }
}

impl Block {
    /// The block, as used on a stream.
    pub(crate) fn view(&self, stream: StreamIx) -> BlockView {
        let is_requested = matches!(self.state, BlockState::Live | BlockState::Pending);
        BlockView {
            address: self.address,
            bytes: self.bytes,
            requested_bytes: if is_requested { self.requested } else { 0 },
            state: if self.state.is_free() { BlockState::Free } else { self.state },
            stream: stream.index(),
        }
    }
}
