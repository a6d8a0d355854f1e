//! The heap: all pools of one device, and the operations on them.
//!
//! It joins what stands alone below it: the block space (`space`), the page table (`vm`), streams
//! and fences (`fence`), and what may be asked of the device (`headroom`). `alloc`: a request that
//! free memory serves. `grow` and `remap`: one that needs memory mapped; `growing`: in place;
//! `gather`: with what is free elsewhere. `search`: what there is for one. `free`: the way of a
//! free. `windows`: where memory of windows goes, idle or home. `commit`: what becomes of a plan.
//! `trim`: giving memory back; `giving`: so much and no more. `compact`: moving what is in the way;
//! `mesh`: and pages onto one granule; `whole`: a block into one handle.
//! `own_order`: what the program orders itself. `state_machine`: what it has in common with the
//! driver's pools.
//! Here: the state. Invariants are numbered I1.. and proved by
//! [`check`](crate::StateMachine::check).

mod alloc;
mod check;
mod commit;
mod compact;
mod free;
mod gather;
mod giving;
mod grow;
mod growing;
mod mesh;
mod own_order;
mod put_back;
mod remap;
mod search;
mod state_machine;
#[cfg(test)]
mod tests;
mod trim;
mod whole;
mod windows;

pub use alloc::Outcome;
pub use free::Freed;
pub use giving::Giving;
pub use whole::Whole;

use crate::config::Config;
use crate::counters::{Count, Counters, Meter};
use crate::error::{FreeError, RequestError};
use crate::fence::{Fence, Streams};
use crate::headroom::Headroom;
use crate::id::{ListIx, PoolId, StreamId};
use crate::plan::{Plan, Request};
use crate::policy::SegmentKind;
use crate::pool::{Pool, Pools};
use crate::shared::{Shared, SharedBy};
use crate::space::block::{BlockIndex, BlockState};
use crate::space::{Granted, Space};
use crate::vm::PageTable;
use crate::vm::handles::{self, HandleAt};
use crate::vm::pins::PinKey;
use search::{Run, Search};
use std::ops::Range;
use windows::Windows;

/// All pools of one device, as a state machine. See the [crate] documentation.
#[derive(Debug)]
pub struct Heap {
    space: Space,
    pub(crate) vm: PageTable,
    streams: Streams,
    pools: Pools<Pool>,
    quarantine: Vec<BlockIndex>,
    pub(crate) stats: Counters,
    pub(crate) headroom: Headroom,
}

impl Heap {
    /// An empty heap with its default pool and no stream.
    pub fn new(config: Config) -> Self {
        Self {
            space: Space::default(),
            vm: PageTable::new(config.granule_bytes),
            streams: Streams::default(),
            pools: Pools::new(Pool::new(config.kind, true)),
            quarantine: Vec::new(),
            stats: Counters::default(),
            headroom: Headroom::new(config),
        }
    }

    /// How the heap behaves.
    pub const fn config(&self) -> &Config {
        &self.headroom.config
    }

    // The two moves everything is made of.

    /// Files an unfiled block as free in its list, joined with the free blocks around it (I2).
    #[inline]
    fn file(&mut self, index: BlockIndex) {
        match self.space.blocks[index].is_window {
            false => drop(self.space.file(index)),
            true => self.windows().file(index),
        }
    }

    /// A free block serves a request.
    #[inline]
    fn occupy_free(&mut self, index: BlockIndex, request: Request) -> Granted {
        let Request { list, requested, bytes, .. } = request;
        let granted = self.space.occupy_free(index, list, requested, bytes);
        self.count_live(list, requested, granted);
        granted
    }

    /// An unfiled block serves a request. What it has too much is cut off and filed as free in the
    /// list the block belonged to.
    #[inline(never)]
    fn occupy(&mut self, index: BlockIndex, request: Request) -> Granted {
        let rest = self.space.cut_rest(index, request.list, request.bytes);
        let granted = self.space.make_live(index, request.list, request.requested);
        if let Some(rest) = rest {
            self.windows().file(rest);
        }
        self.count_live(request.list, request.requested, granted);
        granted
    }

    /// Serves a request with the front of a run whose blocks are all ordered before its stream.
    ///
    /// The rest stays free where it is, for its own stream and for any other: taken along, what is
    /// known to be over would count as used by this stream, and its owner would have to grow.
    fn take_run(&mut self, request: Request, run: Run) -> Granted {
        let start = self.space.blocks[run.first].address;
        let rest_bytes = self.space.blocks[run.last].end() - start - request.bytes;
        let kept = self.space.list(request.list).kept_rest_bytes;
        let bytes = request.bytes + if rest_bytes > kept { 0 } else { rest_bytes };
        let index = self.space.claim_range(run.first, start, start + bytes);
        self.space.give_to(index, request.list);
        self.stats.rare.cross_stream_reuses += 1;
        self.occupy(index, request)
    }

    #[inline]
    fn count_live(&mut self, list: ListIx, requested: u64, granted: Granted) {
        let list = self.space.list_mut(list);
        list.active_bytes.add(granted.bytes);
        self.stats.allocate(list.class as usize, requested, granted.bytes);
    }

    /// The blocks and the page table, to change both together.
    const fn windows(&mut self) -> Windows<'_> {
        Windows {
            space: &mut self.space,
            vm: &mut self.vm,
            streams: &self.streams,
            pools: &mut self.pools,
            stats: &mut self.stats,
        }
    }

    /// All of it, as one request sees it.
    fn search(&self, request: Request) -> Search<'_> {
        Search {
            space: &self.space,
            vm: &self.vm,
            streams: &self.streams,
            pools: &self.pools,
            config: self.config(),
            request,
            user: self.space.list(request.list).stream,
            granules: request.bytes.div_ceil(self.vm.granule_bytes()) as usize,
            is_roomy: self.headroom.is_roomy(&self.stats, request.bytes),
        }
    }

    // Streams and pools.

    /// Whether the host knows that all of some fences have passed.
    pub(crate) fn have_passed(&self, fences: &[Fence]) -> bool {
        fences.iter().all(|fence| self.streams.has_passed(fence.stream.index, fence.point))
    }

    /// Whether nobody says when the stream ends: then its fences are recorded by calls alone that
    /// bring it, which are its own misses, its retirement, and frees of blocks it is known to use.
    pub fn set_passing(&mut self, stream: StreamId, is_passing: bool) {
        if let Ok(state) = self.streams.live_mut(stream) {
            state.is_passing = is_passing;
        }
    }

    /// Plans a fence on a stream that a call brings: what was freed there has passed once it has.
    pub fn plan_mark(&mut self, stream: StreamId) -> Option<Plan> {
        self.streams.plan_mark(stream).ok()
    }

    /// Adds a private pool whose segments are of this kind. Plain ones need not be split: then no
    /// two blocks share one (I17).
    pub fn add_pool_of(&mut self, kind: SegmentKind, is_split: bool) -> PoolId {
        let is_split = is_split || kind == SegmentKind::Mapped;
        let space = &self.space;
        let has_segments =
            |pool| space.segments.iter().any(|(_, s)| space.list(s.list).pool == pool);
        let pool = self.pools.add(Pool::new(kind, is_split), |index, pool| {
            (pool.kind, pool.is_split) == (kind, is_split)
                && pool.planned_segments == 0
                && !has_segments(index)
        });
        let of = self.pools.at_mut(pool.index);
        (of.is_open, of.is_exclusive, of.room_bytes) = (false, true, 0);
        let inherited = self.space.lists_mut().iter_mut().filter(|list| list.pool == pool.index);
        inherited.for_each(|list| list.active_bytes = Meter::default());
        pool
    }

    /// Says whether the graphs that are captured in a private pool never run at the same time,
    /// which is so unless said otherwise. Then what one capture freed serves the next one.
    ///
    /// # Errors
    /// The pool is unknown or released.
    pub fn set_exclusive(&mut self, pool: PoolId, is_exclusive: bool) -> Result<(), RequestError> {
        self.pools.live(pool)?;
        self.pools.at_mut(pool.index).is_exclusive = is_exclusive;
        Ok(())
    }

    /// How segments of a pool are obtained.
    ///
    /// # Errors
    /// The pool is unknown or released.
    pub fn kind_of(&self, pool: PoolId) -> Result<SegmentKind, RequestError> {
        Ok(self.pools.live(pool)?.kind)
    }

    // What blocks are made of.

    /// The handles that addresses of one segment lead to, as a whole and in order, for others to
    /// have; `None` if it is plain memory, which has none. Blocks keep them, and they stay where
    /// they are (I13): for as long as a block is not freed nothing need be pinned.
    ///
    /// # Errors
    /// They are not those of one segment.
    pub fn share(
        &mut self,
        addresses: Range<u64>,
        by: SharedBy,
    ) -> Result<Option<Vec<HandleAt>>, FreeError> {
        let index = self.space.segments.holding(&addresses)?;
        let is_mapped = self.space.segments[index].kind == SegmentKind::Mapped;
        Ok(is_mapped.then(|| self.vm.share(index, addresses, by)))
    }

    /// What others have of the memory, by the calls that made it known. Looks through all of it.
    pub fn shared(&self) -> Vec<Shared> {
        handles::shared(&self.vm).collect()
    }

    // Pins.

    /// Pins the live block that starts at an address: its memory stays where it is (I16). Pins of
    /// one address add up.
    ///
    /// # Errors
    /// There is no such block.
    pub fn pin_mapping(&mut self, address: u64) -> Result<(), FreeError> {
        let index = self.space.find_live(address)?;
        let block = &self.space.blocks[index];
        self.vm.pin(PinKey::Block(address), block.segment, block.range());
        Ok(())
    }

    /// Pins what addresses of one segment lead to, whichever blocks lie there (I16). Pins of one
    /// range add up.
    ///
    /// # Errors
    /// They are none, or not those of one segment, or do not all lead to memory; or what they lead
    /// to is about to go.
    pub fn pin_range(&mut self, addresses: Range<u64>) -> Result<(), FreeError> {
        let unknown = FreeError::Unknown { address: addresses.start };
        if addresses.is_empty() {
            return Err(unknown);
        }
        let index = self.space.segments.holding(&addresses)?;
        let is_private = !self.pools.is_open(self.space.of_segment(index));
        let span = self.vm.span(index, addresses.clone());
        let is_backed =
            self.space.segments[index].kind == SegmentKind::Plain || span.stays(is_private);
        let blocks = self.space.within(&addresses);
        let goes = blocks.iter().any(|&at| self.space.blocks[at].state == BlockState::Claimed);
        if !is_backed || goes {
            return Err(unknown);
        }
        self.vm.pin(PinKey::Range(addresses.start, addresses.end), index, addresses);
        Ok(())
    }

    /// Takes a pin back, whatever lies there now. False if there is none.
    pub fn unpin(&mut self, key: PinKey) -> bool {
        let covered = self.vm.unpin(key);
        if let Some(Some(covered)) = &covered {
            self.windows().send_home_within(covered);
        }
        covered.is_some()
    }

    // Figures.

    /// The mapped ranges of every segment, in address order: start and size in bytes.
    pub fn mapped_ranges(&self) -> Vec<(u64, u64)> {
        let segments = self.space.segments.in_address_order();
        let mapped = segments.filter(|(_, segment)| segment.kind == SegmentKind::Mapped);
        let ranges = mapped.flat_map(|(ix, segment)| {
            self.vm.span(ix, segment.address..segment.address + segment.bytes).mapped_ranges()
        });
        ranges.map(|range| (range.start, range.end - range.start)).collect()
    }
}
