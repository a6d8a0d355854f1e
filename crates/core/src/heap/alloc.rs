//! The way of a malloc: the stream's own free list, then other streams', then growth.

use std::ops::Range;

use super::{Heap, Reuse};
use crate::error::RequestError;
use crate::fence::StreamOrder;
use crate::id::{PoolId, StreamId};
use crate::plan::{Plan, Request};
use crate::policy::CrossStream;
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

/// What a request may know of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// What was seen before: a capture leaves it at that.
    Past,
    /// What was seen before, unless a look is due.
    Due,
    /// What was seen for this request.
    Fresh,
}

/// Why a request is not served.
#[derive(Debug)]
pub(crate) enum Unserved {
    /// It is refused.
    Refused(RequestError),
    /// The device is to be looked at first.
    LookFirst,
}

impl From<RequestError> for Unserved {
    fn from(error: RequestError) -> Self {
        Unserved::Refused(error)
    }
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
        let bytes = block_bytes(requested)?;
        let list = self.list_of(pool, stream, bytes)?;
        let request = Request { list, requested, bytes };
        match self.space.list(list).find(&self.space.blocks, bytes) {
            Some(index) => Ok(Some(self.occupy_free(index, request))),
            None => Ok(self.remap_again(request)),
        }
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
        match self.request_by(pool, stream, requested, reuse, Look::Past) {
            Ok(outcome) => Ok(outcome),
            Err(Unserved::Refused(error)) => Err(error),
            Err(Unserved::LookFirst) => unreachable!("what was seen before has to do"),
        }
    }

    /// The same, by what may be known of the device.
    pub(crate) fn request_by(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        requested: u64,
        reuse: Reuse,
        look: Look,
    ) -> Result<Outcome, Unserved> {
        let bytes = block_bytes(requested).map_err(RequestError::from)?;
        let list = self.list_of(pool, stream, bytes)?;
        let request = Request { list, requested, bytes };
        // A captured request takes nothing back: others' work may run beside it.
        if reuse != Reuse::OwnStream {
            self.restore_to(stream.index);
        }
        if let Some(index) = self.space.list(list).search(&self.space.blocks, bytes) {
            return Ok(Outcome::Granted(self.occupy_free(index, request)));
        }
        let may_share = reuse != Reuse::OwnStream && self.config.cross_stream != CrossStream::Never;
        if may_share && let Some(run) = self.search(request).run(StreamOrder::Ordered) {
            return Ok(Outcome::Granted(self.take_run(request, run)));
        }
        self.grow(request, reuse, look)
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
        let bytes = block_bytes(requested)?;
        let list = self.list_of(pool, stream, bytes)?;
        let is_whole = [place.start, place.end].iter().all(|end| end % QUANTUM == 0);
        if !is_whole || place.end.saturating_sub(place.start) < bytes {
            return Ok(None);
        }
        let Some(first) = self.space.free_around(list, &place) else { return Ok(None) };
        let index = self.space.claim_range(first, place.start, place.end);
        let granted = self.space.make_live(index, list, requested);
        Ok(Some(self.count_live(Request { list, requested, bytes }, granted)))
    }
}
