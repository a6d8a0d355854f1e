//! Joins that are put off, for a program that frees what it was given last and asks for it again.
//!
//! Each list keeps a *trail*: the blocks that it has given since anything else happened to it, in
//! order. A free of the last one leads back to where the list was before that was given, so that
//! the same request would be served by the same memory. Until then the block stays as it is,
//! *unjoined*, and so do those given before it that are freed in turn.
//!
//! Invariant (I18): an unjoined block is free to everybody who asks, but in no bin. The address map
//! leads to it, and the trail of its list. A request of just its size takes the one freed last
//! back. Whatever else happens to the list joins all of them first, and whoever looks at other
//! lists than his own joins those of all. So every decision is as if nothing had been put off, but
//! that free memory keeps its own last use while a block beside it comes and goes.

use super::block::{Block, BlockIndex, BlockState};
use super::free_list::FreeList;
use super::trail::TRAIL_MAX;
use super::{Granted, Space};
use crate::id::ListIx;

impl Space {
    /// A list has given a block, with none unjoined.
    #[inline]
    pub(super) fn note_given(&mut self, list: ListIx, index: BlockIndex) {
        let trail = &mut self.lists[list.index()].trail;
        // One that is too long begins anew.
        let at = trail.live as usize % TRAIL_MAX;
        trail.blocks[at] = index;
        (trail.live, trail.len) = (at as u32 + 1, at as u32 + 1);
        if !trail.is_noted {
            trail.is_noted = true;
            self.with_trails.push(list);
        }
    }

    /// A live block is freed and stays unjoined, if it is the last that its list has given. It was
    /// used by its own stream alone.
    #[inline]
    pub(crate) fn put_off(&mut self, index: BlockIndex) -> bool {
        let block = &mut self.blocks[index];
        let list = &mut self.lists[block.list.index()];
        let trail = &mut list.trail;
        let at = trail.live.wrapping_sub(1);
        let is_last = trail.blocks.get(at as usize) == Some(&index);
        if is_last {
            trail.live = at;
            block.set_state(BlockState::Unjoined);
            list.free_bytes += block.bytes;
        }
        is_last
    }

    /// A request of a list is served by the block that was freed last, if that is unjoined and has
    /// just its size. If not, none is unjoined any more.
    #[inline]
    pub(crate) fn take_back(
        &mut self,
        list: ListIx,
        requested: u64,
        bytes: u64,
    ) -> Option<Granted> {
        let of = &mut self.lists[list.index()];
        let trail = &mut of.trail;
        if trail.live == trail.len {
            return None;
        }
        let index = *trail.blocks.get(trail.live as usize)?;
        let block = &mut self.blocks[index];
        if block.bytes != bytes {
            self.join_list(list);
            return None;
        }
        trail.live += 1;
        of.free_bytes -= bytes;
        block.occupy(list, requested);
        Some(Granted::of(block))
    }

    /// Joins the unjoined blocks of a list, in the order in which they were freed. The list is then
    /// as it was before they were given.
    #[inline(never)]
    fn join_list(&mut self, list: ListIx) {
        while let Some(index) = self.lists[list.index()].trail.pop() {
            self.map.remove(&mut self.blocks, index);
            self.lists[list.index()].free_bytes -= self.blocks[index].bytes;
            self.file_joined(index);
        }
    }

    /// Something else happens to a list than to give a block, or to take the last one back.
    #[inline]
    pub(super) fn end_trail(&mut self, list: ListIx) {
        let trail = &mut self.lists[list.index()].trail;
        if trail.live != trail.len {
            self.join_list(list);
        }
        let trail = &mut self.lists[list.index()].trail;
        (trail.live, trail.len) = (0, 0);
    }

    /// Ends all trails: before anybody looks at other lists than his own.
    #[inline]
    pub(crate) fn end_trails(&mut self) {
        while let Some(list) = self.with_trails.pop() {
            self.end_trail(list);
            self.lists[list.index()].trail.is_noted = false;
        }
    }

    /// Whether the trail of a list will end with all others: for checks.
    pub(super) fn knows_trail_of(&self, list: ListIx) -> bool {
        let trail = &self.list(list).trail;
        trail.len == 0 || (trail.is_noted && self.with_trails.contains(&list))
    }

    /// The free block that a part of it will be once it is joined.
    fn joined(&self, part: BlockIndex) -> Block {
        let list = self.blocks[part].list;
        let is_part = |&index: &BlockIndex| {
            let block = &self.blocks[index];
            block.state.is_free() && block.list == list
        };
        let before = |&index: &BlockIndex| self.blocks[index].previous.some().filter(is_part);
        let first = std::iter::successors(Some(part), before).last().unwrap_or(part);
        let parts = self.blocks.onward(first).take_while(is_part);
        let bytes = parts.map(|index| self.blocks[index].bytes).sum();
        Block { bytes, ..self.blocks[first] }
    }

    /// The free blocks of a list that may have so many bytes, as they are once joined.
    pub(crate) fn free_of<'a>(
        &'a self,
        list: &'a FreeList,
        bytes: u64,
    ) -> impl Iterator<Item = Block> + 'a {
        let unjoined = list.trail.unjoined();
        // Joined, a smaller one may have as many.
        let least_bytes = if unjoined.is_empty() { bytes } else { 0 };
        let parts = list.filed_from(&self.blocks, least_bytes).chain(unjoined.iter().copied());
        parts.filter_map(|part| {
            let whole = self.joined(part);
            (whole.address == self.blocks[part].address).then_some(whole)
        })
    }

    /// The largest free block of a list, in bytes, as exactly as `FreeList::largest_bytes`.
    pub(crate) fn largest_of(&self, list: &FreeList) -> u64 {
        let joined = list.trail.unjoined().iter().map(|&part| self.joined(part).bytes);
        joined.max().unwrap_or(0).max(list.largest_bytes(&self.blocks))
    }
}
