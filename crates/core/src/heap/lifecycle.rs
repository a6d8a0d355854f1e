//! Streams, their fences, and pools: what comes and goes around the blocks.

use super::Heap;
use crate::error::{RequestError, StreamError};
use crate::fence::Fence;
use crate::id::{PoolId, StreamId};
use crate::plan::Plan;
use crate::policy::SegmentKind;
use crate::pool::Pool;
use crate::stats::Gauge;

impl Heap {
    /// Adds a stream. It may succeed a retired stream whose work is complete.
    pub fn add_stream(&mut self) -> StreamId {
        let stream = self.streams.add();
        // What was in use at most before was its predecessor's.
        let inherited =
            self.space.lists_mut().iter_mut().filter(|list| list.stream == stream.index);
        inherited.for_each(|list| list.active_bytes.reset_peak());
        stream
    }

    /// Retires a stream that is about to be destroyed, and plans its last fence. Its blocks stay
    /// valid; its free blocks serve other streams once the fence has passed.
    ///
    /// # Errors
    /// The stream is unknown.
    pub fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        self.streams.plan_retire(stream)
    }

    /// Nobody says when the stream ends: from now on its fences are recorded by calls alone that
    /// bring it, which are its own misses, its retirement, and frees of blocks it is known to use.
    pub fn let_pass(&mut self, stream: StreamId) {
        if let Ok(state) = self.streams.live_mut(stream) {
            state.is_passing = true;
        }
    }

    /// Plans a fence at a miss of a stream of which nobody says when it ends.
    pub fn plan_mark(&mut self, stream: StreamId) -> Option<Plan> {
        self.streams.plan_mark(stream)
    }

    /// The device has passed a fence: blocks that waited for it, or for an earlier one of its
    /// stream, become free. Fences of streams that were succeeded are ignored.
    pub fn fence_passed(&mut self, fence: Fence) {
        while let Some(block) = self.streams.pass(fence) {
            self.pass_use(block, fence.stream);
        }
    }

    /// Adds a private pool whose segments are of the default pool's kind.
    pub fn add_pool(&mut self) -> PoolId {
        self.add_pool_of(self.config().kind)
    }

    /// Adds a private pool whose segments are of this kind.
    pub fn add_pool_of(&mut self, kind: SegmentKind) -> PoolId {
        let space = &self.space;
        let has_segments =
            |pool| space.segments.iter().any(|(_, s)| space.list(s.list).pool == pool);
        let pool = self.pools.add(Pool::new(kind), |index, pool| {
            pool.kind == kind && pool.planned_segments == 0 && !has_segments(index)
        });
        self.pools.at_mut(pool.index).is_open = false;
        let inherited = self.space.lists_mut().iter_mut().filter(|list| list.pool == pool.index);
        inherited.for_each(|list| list.active_bytes = Gauge::default());
        pool
    }

    /// How segments of a pool are obtained.
    ///
    /// # Errors
    /// The pool is unknown or released.
    pub fn kind_of(&self, pool: PoolId) -> Result<SegmentKind, RequestError> {
        Ok(self.pools.live(pool)?.kind)
    }

    /// Releases a private pool: it serves no further request, and once the device was idle a trim
    /// gives its memory back, or other pools borrow it. Its live blocks stay valid.
    ///
    /// # Errors
    /// The pool is unknown or the default pool.
    pub fn release_pool(&mut self, pool: PoolId) -> Result<(), RequestError> {
        self.pools.release(pool)
    }

    /// Releases every pool: for teardown, when nobody can make a request any more.
    pub fn release_all_pools(&mut self) {
        self.pools.release_all();
    }
}
