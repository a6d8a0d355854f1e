//! [`StateMachine`]: what a [`Heap`](crate::Heap) and [`AsyncPools`](crate::AsyncPools) have in
//! common, except the way of a request and of a free.

use crate::broken::Broken;
use crate::error::{FreeError, RecordStreamError, RequestError, StreamError};
use crate::fence::Fence;
use crate::id::{PoolId, StreamId};
use crate::plan::{Committed, Plan};
use crate::pool_stream_stats::PoolStreamStats;
use crate::snapshot::{BlockView, SegmentView, SnapshotBuffer, SnapshotCopy};
use crate::stats::Stats;

/// What decides for a device, whether it keeps the memory itself or the driver's pools do.
pub trait StateMachine {
    /// Statistics at this moment.
    fn stats(&self) -> Stats;
    /// What each pool, class and stream has that has anything, or had since the peaks were reset.
    fn pool_stream_stats(&self) -> Vec<PoolStreamStats>;
    /// Copies what is held, in as little time as may be: what it is, the copy tells.
    ///
    /// # Errors
    /// How many blocks the buffer must be made for.
    fn copy(&self, buffer: SnapshotBuffer) -> Result<SnapshotCopy, usize>;
    /// What is held.
    fn snapshot(&self) -> Vec<SegmentView> {
        let mut blocks = 0;
        loop {
            match self.copy(SnapshotBuffer::for_blocks(blocks)) {
                Ok(copy) => return copy.views(),
                Err(missing) => blocks = missing,
            }
        }
    }
    /// The live block that starts at an address.
    ///
    /// # Errors
    /// There is none.
    fn block_at(&self, address: u64) -> Result<BlockView, FreeError>;
    /// Proves every invariant.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    fn check(&self) -> Result<(), Broken>;
    /// The limit of reserved bytes.
    fn limit_bytes(&self) -> u64;
    /// The largest free block of any pool and stream, in bytes; 0 where the driver keeps them.
    fn largest_free_bytes(&self) -> u64;
    /// Unused bytes that serve requests of any size.
    fn unused_bytes(&self) -> u64;
    /// The unit in which memory is taken from the device, in bytes.
    fn unit_bytes(&self) -> u64;
    /// Size of a granule of a pool's memory; `None` where it comes in plain allocations.
    fn granule_bytes(&self, pool: PoolId) -> Option<u64>;
    /// Adds a stream. It may succeed a retired stream whose work is complete.
    fn add_stream(&mut self) -> StreamId;
    /// Retires a stream that is about to be destroyed, and plans its last fence. Its blocks stay
    /// valid; what is free on it serves other streams once the fence has passed.
    ///
    /// # Errors
    /// The stream is unknown.
    fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError>;
    /// Adds a private pool, of the kind of the default pool.
    fn add_pool(&mut self) -> PoolId;
    /// Releases a private pool: it serves no further request, and a trim gives its memory back, of
    /// a heap once the device was idle. Its live blocks stay valid.
    ///
    /// # Errors
    /// The pool is unknown or the default pool.
    fn release_pool(&mut self, pool: PoolId) -> Result<(), RequestError>;
    /// Releases every pool: for teardown, when nobody can make a request any more.
    fn release_all_pools(&mut self);
    /// Notes that a live block is also used on another stream than its own.
    ///
    /// # Errors
    /// The address is not that of a live block, or the stream is unknown.
    fn record_stream(&mut self, address: u64, stream: StreamId) -> Result<(), RecordStreamError>;
    /// A fence that the device has passed, or an earlier one of its stream: told of that first, the
    /// state machine has a bounded number of blocks at a time to free.
    fn part_of(&self, fence: Fence) -> Fence;
    /// The device has passed a fence: blocks that waited for it, or for an earlier one of its
    /// stream, are free, or may go back to the driver. Fences of streams that were succeeded are
    /// ignored.
    fn fence_passed(&mut self, fence: Fence);
    /// Plans to wait until the device is idle. Afterwards every block freed before is usable
    /// everywhere, and a trim gives all of it back.
    fn plan_synchronize(&mut self) -> Plan;
    /// Takes back a plan whose steps are all done. `address` is what its `Reserve` or `Malloc`
    /// step gave; it is ignored for plans that have neither.
    fn commit(&mut self, plan: Plan, address: u64) -> Committed;
    /// Takes back a plan that failed. `in_effect` is how many leading steps are still done: after a
    /// complete undo 0, and the number of steps done for plans that are not all or nothing.
    fn abandon(&mut self, plan: Plan, in_effect: usize);
    /// Changes the limit of reserved bytes. What is reserved above it stays until trimmed.
    fn set_limit(&mut self, limit_bytes: u64);
    /// Sets every peak to its current value: those of the statistics, and of each pool and stream.
    fn reset_peaks(&mut self);
}
