//! A trail: the blocks that one list has given since anything else happened to it (`unjoined`).

use super::block::BlockIndex;

/// How many blocks a trail has at most: to join as many takes some microseconds.
pub(super) const TRAIL_MAX: usize = 64;

/// The trail of one list.
#[derive(Debug)]
pub(crate) struct Trail {
    /// The live ones in the order in which they were given, then the unjoined ones, the one freed
    /// last first.
    pub(super) blocks: [BlockIndex; TRAIL_MAX],
    pub(crate) live: u32,
    pub(crate) len: u32,
    /// Whether the space knows of it.
    pub(crate) is_noted: bool,
}

impl Trail {
    pub(super) const fn new() -> Self {
        Self { blocks: [BlockIndex::NONE; TRAIL_MAX], live: 0, len: 0, is_noted: false }
    }

    /// The unjoined blocks, the one freed last first.
    pub(crate) fn unjoined(&self) -> &[BlockIndex] {
        self.blocks.get(self.live as usize..self.len as usize).unwrap_or_default()
    }

    /// The unjoined block that was freed first leaves it.
    pub(super) fn pop(&mut self) -> Option<BlockIndex> {
        let first = self.unjoined().last().copied()?;
        self.len -= 1;
        Some(first)
    }
}
