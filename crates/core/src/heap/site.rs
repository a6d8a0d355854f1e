//! Sites: where memory grows at home, and the hollow blocks that it grows in.
//!
//! A site is the front of a hollow block, together with the free blocks around it when a request is
//! to be served there. A hollow block stands in the chain of the list its segment was made for.

use super::Heap;
use crate::block::{BlockIndex, BlockState};
use crate::plan::{Site, Wanted};

/// A place to grow, before it is claimed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    pub(super) site: Site,
    /// How many granules it takes, from the front of the hollow block on.
    pub(super) granules: usize,
}

impl Heap {
    /// Where a request can be served by growth in handles of so many granules: the fewest granules,
    /// then the lowest address.
    pub(super) fn best_growth(&self, wanted: Wanted, handle: u16) -> Option<Growth> {
        let hollows = self.hollow_blocks(wanted.list);
        let growths = hollows.filter_map(|hollow| self.growth_at(hollow, wanted, handle));
        growths.min_by_key(|growth| (growth.granules, self.blocks[growth.site.hollow].address))
    }

    /// Where there is room for so many bytes, in handles of so many granules: the lowest address.
    pub(super) fn room_for(&self, bytes: u64, handle: u16, list: u32) -> Option<Growth> {
        let hollows = self.hollow_blocks(list).filter(|&index| self.blocks[index].bytes >= bytes);
        let hollow = hollows.min_by_key(|&index| self.blocks[index].address)?;
        let room = (self.blocks[hollow].bytes / self.config.granule_bytes) as usize;
        let site = Site { before: BlockIndex::NONE, hollow, after: BlockIndex::NONE };
        Some(Growth { site, granules: self.whole_growth(bytes, handle).min(room) })
    }

    /// How many granules hold so many bytes, in whole handles.
    pub(super) fn whole_growth(&self, bytes: u64, handle: u16) -> usize {
        let handle_bytes = u64::from(handle) * self.config.granule_bytes;
        bytes.div_ceil(handle_bytes) as usize * usize::from(handle)
    }

    fn hollow_blocks(&self, list: u32) -> impl Iterator<Item = BlockIndex> + '_ {
        self.blocks.filed_from(self.list(list).hollow[0])
    }

    /// The site at a hollow block; `None` if it cannot hold the request.
    fn growth_at(&self, index: BlockIndex, wanted: Wanted, handle: u16) -> Option<Growth> {
        let hollow = &self.blocks[index];
        let granule_bytes = self.config.granule_bytes;
        let before_bytes = self.free_bytes(hollow.previous, wanted.list);
        let missing = wanted.bytes.saturating_sub(before_bytes).max(1);
        let room = (hollow.bytes / granule_bytes) as usize;
        let mut after = BlockIndex::NONE;
        if missing > hollow.bytes {
            let after_bytes = self.free_bytes(hollow.next, wanted.list);
            if before_bytes + hollow.bytes + after_bytes < wanted.bytes {
                return None;
            }
            after = hollow.next;
        }
        let before = if before_bytes > 0 { hollow.previous } else { BlockIndex::NONE };
        let granules = self.whole_growth(missing, handle).min(room);
        Some(Growth { site: Site { before, hollow: index, after }, granules })
    }

    /// Size of a block if it is free in this list, else 0.
    fn free_bytes(&self, index: BlockIndex, list: u32) -> u64 {
        match index.some().map(|index| &self.blocks[index]) {
            Some(block) if block.state == BlockState::Free && block.list == list => block.bytes,
            _ => 0,
        }
    }

    /// Claims a site: the free blocks around it, and as much of the hollow block as it takes.
    pub(super) fn claim_site(&mut self, Growth { site, granules }: Growth) {
        for free in [site.before, site.after].into_iter().filter_map(BlockIndex::some) {
            self.remove_free(free);
            self.blocks[free].state = BlockState::Claimed;
        }
        self.claim_hollow(site.hollow, granules as u64 * self.config.granule_bytes);
    }

    /// Claims the front of a hollow block.
    pub(super) fn claim_hollow(&mut self, index: BlockIndex, bytes: u64) {
        self.unlink_hollow(index);
        if self.blocks[index].bytes > bytes {
            let rest = self.blocks.cut(index, bytes);
            self.link_hollow(rest);
        }
        self.blocks[index].state = BlockState::Claimed;
    }

    /// Makes an unfiled block hollow, joined with the hollow blocks around it.
    pub(super) fn hollow_out(&mut self, index: BlockIndex) {
        let mut index = index;
        let Some(segment) = self.segments.get(self.blocks[index].segment) else {
            return;
        };
        let list = segment.list;
        if self.is_hollow(self.blocks[index].next) {
            self.unlink_hollow(self.blocks[index].next);
            self.blocks.absorb_next(index);
        }
        let previous = self.blocks[index].previous;
        if self.is_hollow(previous) {
            self.unlink_hollow(previous);
            self.blocks.absorb_next(previous);
            index = previous;
        }
        self.blocks[index].list = list;
        self.blocks[index].free_after = 0;
        self.link_hollow(index);
    }

    fn is_hollow(&self, index: BlockIndex) -> bool {
        index.some().is_some_and(|index| self.blocks[index].state == BlockState::Hollow)
    }

    /// Adds a block to the chain of hollow blocks of its list.
    fn link_hollow(&mut self, index: BlockIndex) {
        let block = &mut self.blocks[index];
        let chain = &mut self.lists[block.list as usize].hollow[usize::from(block.is_loan)];
        let head = std::mem::replace(chain, index);
        block.state = BlockState::Hollow;
        self.blocks.file_before(index, head);
    }

    pub(super) fn unlink_hollow(&mut self, index: BlockIndex) {
        let block = self.blocks[index];
        if let Some(head) = self.blocks.unfile(index) {
            self.lists[block.list as usize].hollow[usize::from(block.is_loan)] = head;
        }
    }
}
