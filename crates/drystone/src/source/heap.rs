//! The heap as a source: it grows by plans, and a trim is a plan after another.
//!
//! A request that the heap serves at once never comes here.

use drystone_core::{
    Committed, Fence, Granted, Heap, Outcome, Plan, PoolId, RequestError, Reuse, SegmentKind,
    Stats, StreamError, StreamId,
};
use drystone_driver::{Call, DriverError};

use super::Books;
use crate::capture::{Captured, Relaxed};
use crate::device::{Device, nothing_yet};
use crate::error::{AllocateError, PeerError, TrimError};
use crate::grow::{Miss, Refused};

/// Large plain segments are whole multiples of this.
const PLAIN_UNIT_BYTES: u64 = 2 << 20;

impl Books for Heap {
    fn add_stream(&mut self) -> StreamId {
        self.add_stream()
    }

    fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        self.retire_stream(stream)
    }

    fn fence_passed(&mut self, fence: Fence) {
        self.fence_passed(fence);
    }

    fn plan_synchronize(&mut self) -> Plan {
        self.plan_synchronize()
    }

    fn commit(&mut self, plan: Plan, address: u64) {
        self.commit(plan, address);
    }

    fn abandon(&mut self, plan: Plan, in_effect: usize) {
        self.abandon(plan, in_effect);
    }

    fn release_all_pools(&mut self) {
        self.release_all_pools();
    }

    fn stats(&self) -> &Stats {
        self.stats()
    }

    fn stats_mut(&mut self) -> &mut Stats {
        self.stats_mut()
    }

    fn limit_bytes(&self) -> u64 {
        self.config().limit_bytes
    }

    fn largest_free_bytes(&self) -> u64 {
        self.largest_free_bytes()
    }

    fn unused_bytes(&self) -> u64 {
        self.unused_bytes()
    }

    fn unit_bytes(&self) -> u64 {
        match self.config().kind {
            SegmentKind::Mapped => self.config().granule_bytes,
            SegmentKind::Plain => PLAIN_UNIT_BYTES,
        }
    }

    fn granule_bytes(&self, pool: PoolId) -> Option<u64> {
        let is_mapped = self.kind_of(pool) == Ok(SegmentKind::Mapped);
        is_mapped.then_some(self.config().granule_bytes)
    }

    fn attempt(
        device: &Device<Self>,
        miss: Miss,
        captured: Captured,
    ) -> Result<Result<Granted, Refused>, AllocateError> {
        let Miss { pool, stream, bytes } = miss;
        let _relaxed = Relaxed::enter(&*device.driver)
            .map_err(|error| AllocateError::Driver { error, bytes })?;
        let mut reuse = if captured == Captured::Own { Reuse::OwnStream } else { Reuse::MayWait };
        let mut addresses_were_refused = false;
        let mut mappings_were_refused = false;
        loop {
            let answer = device.books.lock().request(pool, stream, bytes, reuse);
            let plan = match answer {
                Ok(Outcome::Granted(grant)) => return Ok(Ok(grant)),
                Ok(Outcome::Plan(plan)) => plan,
                Err(RequestError::Limit { .. }) => return Ok(Err(Refused(None))),
                Err(error) => return Err(error.into()),
            };
            let (is_order, is_reservation) = (plan.is_order(), plan.is_reservation());
            let is_large = plan.creates_large_handles();
            if is_order {
                // Once for each request: whether it succeeds or the other stream is gone or
                // captured, what is not ordered then is left alone.
                reuse = Reuse::Ordered;
            }
            match device.executor_for(pool).carry_out(&plan) {
                Ok(address) => {
                    let committed = device.books.lock().commit(plan, address);
                    match committed {
                        Committed::Granted(grant) => return Ok(Ok(grant)),
                        Committed::Prepared | Committed::Done => {}
                        Committed::Recorded => {
                            device.collect();
                        }
                    }
                }
                Err(failure) => {
                    device.books.lock().abandon(plan, failure.in_effect);
                    if is_reservation && !addresses_were_refused {
                        addresses_were_refused = true;
                    } else if failure.error.call == Call::SetAccess
                        && !mappings_were_refused
                        && device.evict_aliases()
                    {
                        mappings_were_refused = true;
                    } else if is_large && failure.error.call == Call::Create {
                        // The next plan creates single granules.
                    } else if failure.error.is_out_of_memory() && !is_order {
                        return Ok(Err(Refused(Some(failure.error))));
                    } else if !is_order {
                        return Err(AllocateError::Driver { error: failure.error, bytes });
                    }
                }
            }
        }
    }

    /// A freed block is the heap's again: it goes nowhere.
    fn depart(_: &Device<Self>) -> Result<bool, DriverError> {
        Ok(false)
    }

    fn give_back(device: &Device<Self>) -> Result<u64, TrimError> {
        let mut given_back_bytes = 0;
        device.refuse_in_capture(Call::Free).map_err(nothing_yet)?;
        loop {
            let (before, plan) = {
                let mut heap = device.books.lock();
                (heap.stats().all.reserved_bytes, heap.plan_trim())
            };
            let Some(plan) = plan else {
                return Ok(given_back_bytes);
            };
            let settled = device.settle(plan);
            let after = device.books.lock().stats().all.reserved_bytes;
            // What was taken away, whatever was added.
            given_back_bytes += (after.total - after.current) - (before.total - before.current);
            settled.map_err(|error| TrimError { error, given_back_bytes })?;
        }
    }

    fn close(_: &Device<Self>) -> Result<(), DriverError> {
        Ok(())
    }
}

impl Device<Heap> {
    /// Unmaps what only saves driver calls later: the driver has no mappings left. True if that
    /// was anything.
    fn evict_aliases(&self) -> bool {
        let plan = self.books.lock().plan_eviction();
        plan.is_some_and(|plan| self.settle(plan).is_ok())
    }

    /// Gives a peer access to all memory, mapped before or after.
    pub(crate) fn enable_peer_access(&self, peer_ordinal: u32) -> Result<(), PeerError> {
        let failed = |open_bytes, closed_bytes| {
            move |error| PeerError { peer_ordinal, error, open_bytes, closed_bytes }
        };
        self.refuse_at_the_end().map_err(failed(0, 0))?;
        // Held until the last range is open: what is mapped later asks for the peer by itself.
        let _growth = self.growth.lock();
        let ranges = self.books.lock().mapped_ranges();
        let total_bytes = ranges.iter().map(|range| range.1).sum::<u64>();
        self.driver.enable_peer_access(peer_ordinal).map_err(failed(0, total_bytes))?;
        let mut open_bytes = 0;
        for (address, bytes) in ranges {
            let opened = self.driver.set_access(address, bytes);
            opened.map_err(failed(open_bytes, total_bytes - open_bytes))?;
            open_bytes += bytes;
        }
        Ok(())
    }
}
