//! Placing: a block at an address that the caller names, for putting live blocks back where they
//! were.

use std::ops::Range;

use super::Heap;
use super::request::Granted;
use crate::block::{BlockIndex, BlockState};
use crate::error::RequestError;
use crate::id::{PoolId, StreamId};
use crate::plan::Wanted;
use crate::size::{QUANTUM, block_bytes};

impl Heap {
    /// Makes free memory of a pool live, just there and of just that size. `None`, and nothing has
    /// changed, if it is not all free, or no block of such a request could be there.
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
        let bytes = block_bytes(requested)?;
        let list = self.list_of(pool, stream, bytes)?;
        let is_whole = [place.start, place.end].iter().all(|end| end % QUANTUM == 0);
        if !is_whole || place.end.saturating_sub(place.start) < bytes {
            return Ok(None);
        }
        let Some(first) = self.free_around(list, &place) else { return Ok(None) };
        let index = self.claim_range(first, place.start, place.end);
        Ok(Some(self.make_live(index, Wanted { list, requested, bytes })))
    }

    /// The first of the free blocks that cover a place, in a segment of the list's pool and class.
    fn free_around(&self, list: u32, place: &Range<u64>) -> Option<BlockIndex> {
        let segment = self.segments.get(self.segments.containing(place.start)?)?;
        let (owner, user) = (self.list(segment.list), self.list(list));
        if (owner.pool, owner.class) != (user.pool, user.class) {
            return None;
        }
        let mut first = segment.first;
        while self.blocks[first].end() <= place.start {
            first = self.blocks[first].next.some()?;
        }
        let mut last = first;
        loop {
            let block = &self.blocks[last];
            if block.state != BlockState::Free {
                return None;
            }
            if block.end() >= place.end {
                return Some(first);
            }
            last = block.next.some()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Committed, Config, CrossStream, HELD_PER_HANDLE, Outcome, SegmentKind};

    const MIB: u64 = 1 << 20;

    fn take(heap: &mut Heap, pool: PoolId, stream: StreamId, bytes: u64) -> Granted {
        loop {
            match heap.request(pool, stream, bytes, crate::Reuse::OwnStream).unwrap() {
                Outcome::Granted(grant) => return grant,
                Outcome::Plan(plan) => {
                    if let Committed::Granted(grant) = heap.commit(plan, 1 << 40) {
                        return grant;
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_are_put_back_where_they_were_and_nowhere_else() {
        let mut heap = Heap::new(Config {
            kind: SegmentKind::Mapped,
            granule_bytes: 2 * MIB,
            device_bytes: 1 << 36,
            limit_bytes: u64::MAX,
            cross_stream: CrossStream::Wait,
            held_per_handle: HELD_PER_HANDLE,
        });
        let (stream, other) = (heap.add_stream(), heap.add_stream());
        let pool = heap.add_pool();
        let sizes = [3 * MIB, 5 * MIB, 2 * MIB, 7 * MIB];
        let blocks = sizes.map(|bytes| take(&mut heap, pool, stream, bytes));
        for block in blocks {
            let _ = heap.free(block.address).unwrap();
        }
        // Now two streams' blocks lie there, cut elsewhere.
        let cut = take(&mut heap, pool, stream, 4 * MIB);
        let _ = heap.free(cut.address).unwrap();
        let place = |grant: Granted| grant.address..grant.address + grant.bytes;
        for (at, requested) in [(1, 5 * MIB - 7), (3, 7 * MIB), (0, 3 * MIB)] {
            let put = heap.allocate_at(pool, other, requested, place(blocks[at])).unwrap();
            assert_eq!(put, Some(blocks[at]));
            heap.check().unwrap();
        }
        let mut refused = |pool, requested, place: Range<u64>| {
            let before = heap.stats;
            assert_eq!(heap.allocate_at(pool, other, requested, place).unwrap(), None);
            assert_eq!(heap.stats, before);
            heap.check().unwrap();
        };
        let free = place(blocks[2]);
        refused(PoolId::DEFAULT, 2 * MIB, free.clone()); // another pool's
        refused(pool, 2 * MIB, free.start - 512..free.end - 512); // partly live
        refused(pool, 2 * MIB, free.start..free.end - 512); // too small
        refused(pool, MIB, free.start..free.start + MIB); // no small block can be there
        refused(pool, 2 * MIB, free.start + 1..free.end + 1); // no block can be there
        refused(pool, 2 * MIB, 0..2 * MIB); // nobody's
        assert_eq!(heap.allocate_at(pool, stream, 2 * MIB, free).unwrap(), Some(blocks[2]));
    }
}
