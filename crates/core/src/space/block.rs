//! A block: a contiguous piece of a segment, and what it is at this moment.
//!
//! Its state changes in one place, as [`BlockState`] allows. All blocks are in one table
//! (`blocks`).

use crate::id::{ListIx, SegmentIx};
use std::ops::Range;

/// Index of a block in the table of all; [`BlockIndex::NONE`] ends every chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockIndex(pub(crate) u32);

impl BlockIndex {
    pub(crate) const NONE: BlockIndex = BlockIndex(u32::MAX);

    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == u32::MAX
    }

    #[inline]
    pub(crate) const fn some(self) -> Option<BlockIndex> {
        if self.is_none() { None } else { Some(self) }
    }
}

/// What a block is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum BlockState {
    /// Filed in a bin of its list; usable in its stream's order.
    Free,
    /// In the program's hands.
    Live,
    /// Free, but not joined with the blocks around it yet. Views show it free, and joined.
    Unjoined,
    /// Freed by the program, but another stream may still be using it.
    Pending,
    /// Addresses without memory of their own.
    Unmapped,
    /// The home of granules that are mapped elsewhere to back a request, and will come back.
    Remapped,
    /// A window, or a part of one, that waits for its next use: its addresses still lead to
    /// granules that back others.
    IdleWindow,
    /// Memory of a granule that another page has, too, and that is that page's.
    Meshed,
    /// Part of a plan that is being carried out.
    Claimed,
    /// Freed, but its last use could not be recorded: not reused before the device was idle.
    Quarantined,
}

impl BlockState {
    /// Whether there is memory behind the block's addresses that is nobody else's.
    pub const fn is_backed(self) -> bool {
        !matches!(
            self,
            BlockState::Unmapped
                | BlockState::Remapped
                | BlockState::IdleWindow
                | BlockState::Meshed
        )
    }

    /// Whether nobody has the block, joined or not.
    pub(crate) const fn is_free(self) -> bool {
        matches!(self, BlockState::Free | BlockState::Unjoined)
    }

    /// Whether a block may go from this state to another at once. Every change of a block's state
    /// is one of these.
    #[inline]
    const fn may_become(self, next: BlockState) -> bool {
        use BlockState::{
            Claimed, Free, IdleWindow, Live, Meshed, Pending, Quarantined, Remapped, Unjoined,
            Unmapped,
        };
        match (self, next) {
            // The hit path: out of a bin and back.
            (Free, Live | Claimed | Free) | (Live, Free | Unjoined | Claimed) => true,
            (Unjoined, Live | Free) => true,
            // A plan takes memory, addresses or a window, and leaves it as anything it may be.
            (Unmapped | IdleWindow | Remapped, Claimed) | (Claimed, _) => true,
            // Uses elsewhere are over; memory comes home, or is no other page's any more.
            (Pending | Quarantined | Remapped | Meshed, Free) => true,
            _ => false,
        }
    }
}

/// `Block::uses` of a block that only its own stream uses.
pub(crate) const NO_USES: u32 = u32::MAX;

/// One block. 64 bytes: one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Live and pending blocks: what the program asked for, in bytes.
    pub(crate) requested: u64,
    /// Blocks the program gave back: the point of their stream that another stream must know to
    /// have passed, or wait for, before it uses them; 0 if never used.
    pub(crate) free_after: u64,
    pub(crate) segment: SegmentIx,
    /// The free list (pool, class and stream) this block belongs to.
    pub(crate) list: ListIx,
    pub(crate) previous: BlockIndex,
    pub(crate) next: BlockIndex,
    pub(crate) filed_previous: BlockIndex,
    pub(crate) filed_next: BlockIndex,
    /// Index of the recorded uses on other streams, or [`NO_USES`]. Of a free block, which has
    /// none: its place among its list's at borders.
    pub(crate) uses: u32,
    /// Free blocks: the bin they are filed in.
    pub(crate) bin: u16,
    pub(crate) state: BlockState,
    /// It stands in a segment of windows.
    pub(crate) is_window: bool,
}

const _: () = assert!(size_of::<Block>() == 64);

impl Block {
    /// A block of a new segment that stands nowhere yet.
    pub(crate) const fn claimed(
        address: u64,
        bytes: u64,
        segment: SegmentIx,
        list: ListIx,
        is_window: bool,
    ) -> Self {
        Self {
            address,
            bytes,
            requested: 0,
            free_after: 0,
            segment,
            list,
            previous: BlockIndex::NONE,
            next: BlockIndex::NONE,
            filed_previous: BlockIndex::NONE,
            filed_next: BlockIndex::NONE,
            uses: NO_USES,
            bin: 0,
            state: BlockState::Claimed,
            is_window,
        }
    }

    /// Changes its state: the only way there is.
    #[inline]
    pub(super) const fn set_state(&mut self, state: BlockState) {
        assert!(self.state.may_become(state), "a block cannot change its state so");
        self.state = state;
    }

    /// It serves a request of a list from now on.
    #[inline]
    pub(super) const fn occupy(&mut self, list: ListIx, requested: u64) {
        self.set_state(BlockState::Live);
        assert!(requested <= self.bytes, "a block is smaller than its request");
        (self.list, self.requested, self.uses) = (list, requested, NO_USES);
    }

    /// Its addresses.
    #[inline]
    pub(crate) const fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }

    #[inline]
    pub(crate) const fn end(&self) -> u64 {
        self.address + self.bytes
    }
}
