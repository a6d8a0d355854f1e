//! Blocks that grow in place: each has a pool of its own, with one segment of addresses, its room,
//! and is the one live block there, from the start on.
//!
//! Invariant: memory behind it is at home and never remapped, so that its addresses lead where they
//! led from when they were first given. It takes handles that are free before any are created:
//! those are gathered, which is to unmap them where they are at home, once their last use is
//! complete. What it gives up stays mapped behind it for its next growth, until others gather it or
//! a trim gives it back.

use super::gather::Gather;
use super::trim::Whose;
use super::{Heap, Outcome};
use crate::error::{FreeError, RequestError};
use crate::headroom::Look;
use crate::id::{PoolId, StreamId};
use crate::plan::{Plan, Request, Reuse};
use crate::policy::{self, SegmentKind, SizeClass};
use crate::size::{BYTES_MAX, SizeError, round_up};
use crate::space::Granted;
use crate::space::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::space::unmapped::GrowthPoint;

impl Heap {
    /// Adds a pool for one block that grows in place, up to so many bytes: whole granules of them.
    ///
    /// # Errors
    /// No block can be as large.
    pub fn add_growing_pool(&mut self, room_bytes: u64) -> Result<PoolId, SizeError> {
        let too_large = SizeError::TooLarge { bytes: room_bytes };
        let whole_bytes = round_up(room_bytes.max(1), self.vm.granule_bytes());
        let whole_bytes = whole_bytes.filter(|&bytes| bytes <= BYTES_MAX).ok_or(too_large)?;
        let pool = self.add_pool_of(SegmentKind::Mapped, true);
        self.pools.at_mut(pool.index).room_bytes = whole_bytes;
        Ok(pool)
    }

    /// Plans to reserve the addresses of a growing pool, on whose stream the block will be.
    ///
    /// # Errors
    /// The pool or the stream is unknown.
    pub fn plan_room(&mut self, pool: PoolId, stream: StreamId) -> Result<Plan, RequestError> {
        let list = self.pools.growing_list(&mut self.space, &self.streams, pool, stream)?;
        Ok(self.plan_addresses(list, self.pools.live(pool)?.room_bytes, false))
    }

    /// The addresses of a growing pool, once they are reserved.
    ///
    /// # Errors
    /// There are none: the pool is unknown, or none of this kind.
    pub fn room_of(&self, pool: PoolId) -> Result<Granted, RequestError> {
        let of = self.pools.live(pool)?;
        let segment =
            of.lists(SizeClass::Large).find_map(|(_, list)| self.space.segments.of_list(list));
        let segment = segment.filter(|_| of.room_bytes > 0).map(|ix| self.space.segments[ix]);
        let unknown = RequestError::UnknownPool { pool };
        segment.map(|s| Granted { address: s.address, bytes: s.bytes }).ok_or(unknown)
    }

    /// Joins what a growth of a growing pool was given with the live block before it.
    ///
    /// # Errors
    /// Either is no live block, or they are not beside each other: somebody else has freed the
    /// first. Nothing has changed.
    pub fn join_live(&mut self, address: u64, given: u64) -> Result<(), FreeError> {
        self.space.end_trails();
        let (index, rest) = (self.space.find_live(address)?, self.space.find_live(given)?);
        if self.space.blocks[index].next != rest {
            return Err(FreeError::AlreadyFree { address });
        }
        let Block { requested, mut uses, list, .. } = self.space.blocks[rest];
        // Its address is the program's, which may have told of a use already.
        for stream in self.streams.uses.get(uses).to_vec() {
            self.streams.uses.add(&mut self.space.blocks[index].uses, stream);
        }
        self.streams.uses.clear(&mut uses);
        self.space.map.remove(&mut self.space.blocks, rest);
        self.space.blocks.absorb_next(index);
        self.space.blocks[index].requested += requested;
        self.stats.join(self.space.list(list).class as usize);
        Ok(())
    }

    /// Cuts a live block: it keeps so many bytes, whole granules, and the rest is a live block of
    /// its own, used where the whole was. Returns where that starts, to be freed.
    ///
    /// # Errors
    /// There is no such block, or it is no larger: somebody else has freed it.
    pub fn cut_live(&mut self, address: u64, bytes: u64) -> Result<u64, FreeError> {
        let index = self.space.find_live(address)?;
        if bytes == 0 || bytes >= self.space.blocks[index].bytes {
            return Err(FreeError::AlreadyFree { address });
        }
        self.space.end_trails();
        let rest = self.space.blocks.cut(index, bytes);
        let start = self.space.blocks[rest].address;
        let Block { list, uses, .. } = self.space.blocks[index];
        self.space.blocks[index].requested = bytes;
        let mut own = NO_USES;
        for stream in self.streams.uses.get(uses).to_vec() {
            self.streams.uses.add(&mut own, stream);
        }
        let block = &mut self.space.blocks[rest];
        (block.requested, block.uses) = (block.bytes, own);
        self.space.map.insert(&mut self.space.blocks, rest, start);
        self.stats.cut(self.space.list(list).class as usize);
        Ok(start)
    }

    /// Serves a request of a growing pool: right behind what is live there.
    pub(super) fn extend(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        reuse: Reuse,
        look: Look,
    ) -> Result<Outcome, RequestError> {
        let list = self.pools.growing_list(&mut self.space, &self.streams, pool, stream)?;
        let request = Request { list, requested, bytes: requested, reuse, look };
        let room_bytes = self.pools.live(pool)?.room_bytes;
        let no_room = RequestError::Room { bytes: requested, room_bytes };
        let segment = self.space.segments.of_list(list).ok_or(no_room)?;
        let blocks = &self.space.blocks;
        let first = self.space.segments[segment].first;
        let is_live = |&index: &BlockIndex| blocks[index].state == BlockState::Live;
        let behind = blocks.onward(first).find(|index| !is_live(index)).ok_or(no_room)?;
        let (mut free, mut unmapped) = (BlockIndex::NONE, behind);
        if blocks[behind].state == BlockState::Free {
            if blocks[behind].bytes >= requested {
                return Ok(Outcome::Granted(self.occupy_free(behind, request)));
            }
            (free, unmapped) = (behind, blocks[behind].next.some().ok_or(no_room)?);
        }
        if blocks[unmapped].state != BlockState::Unmapped {
            let address = blocks[unmapped].address;
            return Err(RequestError::StillUsed { address });
        }
        let free_bytes = free.some().map_or(0, |free| blocks[free].bytes);
        let (missing, unmapped_bytes) = (requested - free_bytes, blocks[unmapped].bytes);
        // A gap before memory that was given up is filled first.
        let is_whole = missing <= unmapped_bytes;
        let before = if is_whole { free } else { BlockIndex::NONE };
        let bytes = missing.min(unmapped_bytes);
        let point = GrowthPoint { before, unmapped, after: BlockIndex::NONE, bytes };
        let outcome = self.extend_to(request, point, is_whole)?;
        self.count_choice(request, &outcome);
        Ok(outcome)
    }

    /// Backs a growth point: with what is gathered, or with what is there. The last handle that is
    /// free already may reach beyond the request: what is behind serves the next growth.
    fn extend_to(
        &mut self,
        request: Request,
        mut point: GrowthPoint,
        is_whole: bool,
    ) -> Result<Outcome, RequestError> {
        // No piece of it is remapped, so that small handles would gain nothing.
        let (headroom, class) = (&self.headroom, SizeClass::Large);
        let most = headroom.handle_granules(&self.stats, class, request.bytes, true);
        let unmapped = &self.space.blocks[point.unmapped];
        let live_bytes = unmapped.address - self.space.segments[unmapped.segment].address;
        let beyond_bytes =
            policy::growth_beyond_bytes(live_bytes).min(unmapped.bytes - point.bytes);
        let idle_beyond_bytes = if is_whole { beyond_bytes } else { 0 };
        let new = self.vm.new_physical(point.bytes, idle_beyond_bytes, most);
        point.bytes = new.bytes;
        let gather =
            Gather { bytes: new.created_bytes, beyond_bytes, whose: Whose::AllFor(request.list) };
        if let Some(plan) = gather.plan(self, request) {
            return Ok(Outcome::Plan(plan));
        }
        self.headroom.check(&self.stats, new.created_bytes, request.look)?;
        Ok(Outcome::Plan(self.plan_growth(is_whole.then_some(request), point, new)))
    }
}
