//! The way of a malloc: the stream's own free list, then memory of other streams that is ordered
//! before it, then growth.

use std::ops::Range;

use super::Heap;
use crate::error::RequestError;
use crate::fence::StreamOrder;
use crate::headroom::Look;
use crate::id::{ListIx, PoolId, StreamId, StreamIx};
use crate::plan::{Plan, Request, Reuse};
use crate::policy::{self, SegmentKind};
use crate::size::{QUANTUM, block_bytes};
use crate::space::Granted;

/// The answer to a request.
#[derive(Debug)]
pub enum Outcome {
    /// Served.
    Granted(Granted),
    /// To be served once this is done to the device.
    Plan(Plan),
}

impl Heap {
    /// Serves a request from the free list of its own pool and stream, if that can.
    ///
    /// This is the path almost every request takes: O(1), and no host memory is allocated but when
    /// the tables of blocks grow. A request that was served by a remap before may be so again,
    /// which takes some tens of times as long, and host memory for lists of what is taken.
    ///
    /// # Errors
    /// A size no block can have; an unknown stream or pool.
    #[inline]
    pub fn allocate(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
    ) -> Result<Option<Granted>, RequestError> {
        let (list, bytes) = self.ask(pool, stream, requested)?;
        let granted = match self.space.take_back(list, requested, bytes) {
            Some(granted) => granted,
            None => match self.space.list(list).find(&self.space.blocks, bytes) {
                Some(index) => self.space.occupy_free(index, list, requested, bytes),
                None => return Ok(self.remap_again(Request::of(list, requested, bytes))),
            },
        };
        self.count_live(list, requested, granted);
        Ok(Some(granted))
    }

    /// Serves a request from its own free list, from another stream's, or by growth.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and the limit of reserved bytes.
    pub fn request(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        reuse: Reuse,
    ) -> Result<Outcome, RequestError> {
        self.request_by(pool, stream, requested, reuse, Look::Past)
    }

    /// The same, by what may be known of the device: growth that a look is due for is refused like
    /// growth that the device has no room for.
    pub(crate) fn request_by(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        reuse: Reuse,
        look: Look,
    ) -> Result<Outcome, RequestError> {
        self.space.end_trails();
        if self.pools.live(pool)?.room_bytes > 0 {
            return self.extend(pool, stream, requested, reuse, look);
        }
        let (list, bytes) = self.ask(pool, stream, requested)?;
        let mut request = Request { reuse, look, ..Request::of(list, requested, bytes) };
        // A captured request takes nothing back: others' work may run beside it.
        if reuse != Reuse::OwnStream {
            self.restore_to(stream.index);
        }
        let mut refused = None;
        loop {
            let list = self.space.list(request.list);
            if let Some(index) = list.search(&self.space.blocks, request.bytes) {
                return Ok(Outcome::Granted(self.occupy_free(index, request)));
            }
            let search = self.search(request);
            if search.may_take_runs()
                && let Some(run) = search.run(StreamOrder::Ordered)
            {
                return Ok(Outcome::Granted(self.take_run(request, run)));
            }
            if let Some(refusal) = refused {
                return Err(refusal);
            }
            refused = match self.grow(request) {
                Err(refusal @ RequestError::Limit { .. }) => Some(refusal),
                Err(refusal @ RequestError::Device { .. }) if look != Look::Due => Some(refusal),
                outcome => return outcome,
            };
            // Where there is no more memory, small blocks and large ones share it.
            let class = self.space.list(request.list).class.other();
            request.list = self.pools.list_in(&mut self.space, pool.index, class, stream.index);
        }
    }

    /// Makes free memory of a pool live, just there and of just that size, to put a live block back
    /// where it was. `None`, and nothing has changed, if it is not all free, or no block of such a
    /// request could be there.
    ///
    /// Nothing is ordered: the caller answers for work that other streams have queued there.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_at(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        place: Range<u64>,
    ) -> Result<Option<Granted>, RequestError> {
        let (_, bytes) = self.ask(pool, stream, requested)?;
        let is_whole = [place.start, place.end].iter().all(|end| end % QUANTUM == 0);
        if !is_whole || place.end.saturating_sub(place.start) < bytes {
            return Ok(None);
        }
        self.space.end_trails();
        let Some(segment) = self.space.segments.containing(place.start) else { return Ok(None) };
        let class = self.space.of_segment(segment).class;
        let list = self.pools.list_in(&mut self.space, pool.index, class, stream.index);
        if pool != PoolId::DEFAULT {
            self.windows().lead_back(list, &place);
        }
        let Some(first) = self.space.free_around(list, &place) else { return Ok(None) };
        if !self.pools.at(pool.index).is_split && self.space.blocks[first].range() != place {
            return Ok(None);
        }
        let index = self.space.claim_range(first, place.start, place.end);
        self.space.give_to(index, list);
        let granted = self.space.make_live(index, list, requested);
        self.count_live(list, requested, granted);
        Ok(Some(granted))
    }

    /// The free list of a request, which is made if there is none yet, and the bytes of its block.
    #[inline]
    fn ask(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
    ) -> Result<(ListIx, u64), RequestError> {
        let bytes = block_bytes(requested)?;
        let class = policy::size_class(bytes);
        let of = self.pools.live(pool)?;
        self.streams.live(stream)?;
        let known = of.list(class, stream.index);
        let list_in = || self.pools.list_in(&mut self.space, pool.index, class, stream.index);
        let list = known.unwrap_or_else(list_in);
        Ok((list, bytes))
    }

    // Memory of other streams.

    /// Gives a stream back what is free at home of the memory obtained for it, as far as it is
    /// ordered after the last use by now: that is joined with what is free around it.
    ///
    /// Others' stays where it is, even if complete: joined with what its owner freed just now it
    /// would have to be waited for again.
    fn restore_to(&mut self, owner: StreamIx) {
        let mut restorable = Vec::new();
        let lists = self.space.lists_with_others().iter();
        for list in lists.map(|&list| self.space.list(list)) {
            let is_among = list.kind == SegmentKind::Mapped
                && list.stream != owner
                && self.pools.is_open(list);
            if !is_among {
                continue;
            }
            for index in list.filed_from(&self.space.blocks, self.vm.granule_bytes()) {
                let segment = &self.space.segments[self.space.blocks[index].segment];
                if !segment.is_window
                    && self.space.list(segment.list).stream == owner
                    && self.streams.order_of(&self.space, index, owner) == StreamOrder::Ordered
                {
                    restorable.push((index, segment.list));
                }
            }
        }
        for (index, list) in restorable {
            let is_over = self.streams.is_complete(&self.space, index);
            // Where the owner waits for the last use only, its next fence covers that for others.
            let state = self.streams.at(owner);
            let free_after = if is_over { state.passed } else { state.free_after() };
            self.space.take_out(index);
            self.space.give_to(index, list);
            self.space.blocks[index].free_after = free_after;
            self.windows().file(index);
        }
    }
}
