//! Whole blocks: a library that asks the driver which allocation an address lies in takes what it
//! is told for one handle, which it maps elsewhere or exports. Of a block that several handles back
//! the driver tells of one of them.
//!
//! Such a block gets one handle of its granules, if nothing is in the way: all handles that it
//! touches move at once, and what lay beside it in the first and the last gets handles of its own.
//! A block that has a part of these granules and a part of others would come to lead to two, and
//! could never be one, so it goes along, where that is no large move. Every byte stays behind its
//! address, free ones too, and no block changes what it is. What the move takes is created first,
//! as for any other move, and what it leaves over goes back. A block stays as it is while it is
//! pinned, in the host's memory, of a private pool or in a window, while others have any of it,
//! where there is no room, or if it is too large to be copied in one hold.

use std::ops::Range;

use super::Heap;
use super::compact::Compaction;
use super::remap::plan_eviction_of;
use crate::error::FreeError;
use crate::plan::{Intent, Plan};
use crate::policy::{self, SegmentKind};
use crate::shared::SharedBy;
use crate::size::round_down;
use crate::space::Space;
use crate::space::block::{BlockIndex, BlockState};
use crate::vm::handles::HandleAt;
use crate::vm::moves::Sparse;

/// A heap of which a block is to be one handle.
#[derive(Debug)]
pub struct Whole<'a> {
    heap: &'a mut Heap,
}

impl<'a> Whole<'a> {
    /// Of a heap.
    pub const fn of(heap: &'a mut Heap) -> Self {
        Self { heap }
    }

    /// How many handles are behind the live block that an address lies in: none, if it is plain
    /// memory.
    ///
    /// # Errors
    /// There is no such block.
    pub fn handles(self, address: u64) -> Result<usize, FreeError> {
        let Heap { space, vm, .. } = &*self.heap;
        let block = &space.blocks[self.block(address)?];
        let is_mapped = space.segments[block.segment].kind == SegmentKind::Mapped;
        Ok(if is_mapped { vm.under(block).handles().len() } else { 0 })
    }

    /// As [`handles`](Self::handles). One alone stays where it is from now on, as memory that is
    /// shared: somebody is told of it.
    ///
    /// # Errors
    /// There is no such block.
    pub fn keep(self, address: u64) -> Result<usize, FreeError> {
        let Self { heap } = self;
        let handles = Whole::of(heap).handles(address)?;
        if handles == 1 {
            heap.share(address..address + 1, SharedBy::Range)?;
        }
        Ok(handles)
    }

    /// Whether the memory there is shared already.
    pub fn is_kept(self, address: u64) -> bool {
        let block = self.block(address).map(|index| self.heap.space.blocks[index].segment);
        block.is_ok_and(|segment| self.heap.vm.span(segment, address..address + 1).is_shared())
    }

    /// The device was looked at: so much of it is free.
    pub fn note_free(self, free_bytes: u64) {
        // Room is kept for what is in the host's memory.
        let free_bytes = free_bytes.saturating_sub(self.heap.vm.figures().on_host_bytes);
        self.heap.headroom.note_look(&mut self.heap.stats, free_bytes);
    }

    /// Plans the next step towards one handle for that block: the move, or what has to go before
    /// it. `None` if it is one, or cannot be.
    pub fn plan(self, address: u64) -> Option<Plan> {
        let room_bytes = Compaction::of(self.heap).room_bytes();
        let index = self.block(address).ok()?;
        let Heap { space, vm, pools, .. } = &*self.heap;
        let block = &space.blocks[index];
        let list = space.of_segment(block.segment);
        let is_open = list.kind == SegmentKind::Mapped && pools.is_open(list);
        if !self.heap.config().remaps || !is_open || block.is_window {
            return None;
        }
        let own = vm.under(block);
        if own.is_pinned() || block.bytes > policy::WHOLE_MAX_BYTES {
            return None;
        }
        let addresses = around(space, block.range(), vm.granule_bytes());
        let around = vm.span(block.segment, addresses.clone());
        let handles = around.handles();
        let is_torn = |edge| over(space, edge).is_some();
        let is_one = match handles[..] {
            [HandleAt { address, bytes, .. }] => !is_torn(address) && !is_torn(address + bytes),
            _ => false,
        };
        if is_one {
            return None;
        }
        let has_windows = around.has_windows();
        let is_small = handles.len() <= policy::TARGETS_OF_A_MOVE
            && addresses.end - addresses.start <= policy::WHOLE_MAX_BYTES;
        let is_apart = own.handles().len() > 1;
        let spans = [is_small.then_some(around), is_apart.then_some(own)];
        let has_room = |one: &Sparse| one.bytes_to_create(vm) <= room_bytes;
        let joined = spans.into_iter().flatten().filter_map(|span| span.joined()).find(has_room);
        let Self { heap } = self;
        match joined {
            Some(joined) => Compaction::of(heap).plan_sparse(&joined, index),
            None if has_windows => {
                plan_eviction_of(heap, |span| span.leads_to_any(std::slice::from_ref(&addresses)))
            }
            None => None,
        }
    }

    /// Plans to give back what a move left over.
    pub fn plan_release(self, bytes: u64) -> Option<Plan> {
        let mut steps = Vec::new();
        self.heap.vm.plan_idle_release(Some(bytes), &mut steps);
        let intent = Intent::Trim { releases: Vec::new() };
        (!steps.is_empty()).then_some(Plan { steps, intent })
    }

    fn block(&self, address: u64) -> Result<BlockIndex, FreeError> {
        let space = &self.heap.space;
        let blocks = space.within(&(address..address.saturating_add(1))).into_iter();
        let mut live = blocks.filter(|&index| space.blocks[index].state == BlockState::Live);
        live.next().ok_or(FreeError::Unknown { address })
    }
}

/// The addresses of the live block that has bytes on both sides of an edge.
fn over(space: &Space, edge: u64) -> Option<Range<u64>> {
    let block = &space.blocks[*space.within(&(edge..edge.saturating_add(1))).first()?];
    (block.state == BlockState::Live && block.address < edge).then(|| block.range())
}

/// A live block's addresses, with those of all that share a granule with it or with each other and
/// have a part of the next one, too.
fn around(space: &Space, own: Range<u64>, granule_bytes: u64) -> Range<u64> {
    let Range { mut start, mut end } = own;
    while let Some(before) = over(space, round_down(start, granule_bytes)) {
        start = before.start;
    }
    while let Some(after) = over(space, end.next_multiple_of(granule_bytes)) {
        end = after.end;
    }
    start..end
}
