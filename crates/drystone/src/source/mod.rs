//! Sources: what is kept of memory, and how more of it is got and given back.
//!
//! `heap`: segments of this allocator's own making, in virtual memory or plain allocations.
//! `stream_ordered`: memory pools of the driver's, which do the caching. Everything around them is
//! the same for both: streams and events, the ladder, waiting, the end.

mod heap;
mod stream_ordered;

use drystone_core::{Fence, Granted, Plan, PoolId, Stats, StreamError, StreamId};
use drystone_driver::DriverError;

use crate::capture::Captured;
use crate::device::Device;
use crate::error::{AllocateError, TrimError};
use crate::grow::{Miss, Refused};

/// The books of a source: a pure state machine, and what to do to the device for it.
///
/// Methods with a receiver decide, and are called with the books locked; those that take the
/// [`Device`] act, and are called with them unlocked.
pub(crate) trait Books: Sized {
    fn add_stream(&mut self) -> StreamId;
    fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError>;
    fn fence_passed(&mut self, fence: Fence);
    fn plan_synchronize(&mut self) -> Plan;
    fn commit(&mut self, plan: Plan, address: u64);
    fn abandon(&mut self, plan: Plan, in_effect: usize);
    fn release_all_pools(&mut self);
    fn stats(&self) -> &Stats;
    fn stats_mut(&mut self) -> &mut Stats;
    fn limit_bytes(&self) -> u64;
    fn largest_free_bytes(&self) -> u64;
    /// Unused bytes that serve requests of any size.
    fn unused_bytes(&self) -> u64;
    /// The unit in which memory is taken from the device, in bytes.
    fn unit_bytes(&self) -> u64;
    /// Size of a granule of a pool's memory; `None` where it comes in plain allocations.
    fn granule_bytes(&self, pool: PoolId) -> Option<u64>;

    /// Makes a request until it is served, or growth is refused. The outer error is for good.
    fn attempt(
        device: &Device<Self>,
        miss: Miss,
        captured: Captured,
    ) -> Result<Result<Granted, Refused>, AllocateError>;

    /// Lets go of freed blocks that waited for what has passed meanwhile. True if any went.
    ///
    /// Errors: no driver call can succeed any more, and no further one was tried.
    fn depart(device: &Device<Self>) -> Result<bool, DriverError>;

    /// Gives back what can be given back without waiting. Returns the bytes. Refused while a
    /// stream is captured.
    fn give_back(device: &Device<Self>) -> Result<u64, TrimError>;

    /// The end, after everything unused was given back.
    fn close(device: &Device<Self>) -> Result<(), DriverError>;
}
