//! A try of pools that the driver keeps: one allocation.

use super::{Captured, Failure, Miss, Next, Stage};
use crate::async_pool::{AsyncPools, DeferredFree, DriverAlloc, PendingAlloc};

impl AsyncPools {
    /// What to do next for a miss. What is to be allocated is handed back by
    /// [`allocated`](Self::allocated).
    pub fn next<E>(&mut self, miss: &mut Miss<E>) -> Next<PendingAlloc, E> {
        loop {
            if let Some(next) = miss.go_on(&mut self.stats, u64::MAX, None) {
                return next;
            }
            let is_captured = miss.captured == Captured::Own;
            match self.request(miss.pool, miss.stream, miss.bytes, is_captured) {
                Ok(pending) => return Next::CarryOut(pending),
                Err(error) => miss.stage = Stage::Refused(error.into()),
            }
        }
    }

    /// Takes back an allocation for a miss, with what the driver gave. Returns the block if it is
    /// to be given back, since the pool has grown past the limit for it.
    pub fn allocated<E>(
        &mut self,
        miss: &mut Miss<E>,
        pending: PendingAlloc,
        given: Result<DriverAlloc, Failure<E>>,
    ) -> Option<DeferredFree> {
        match given {
            Ok(given) => match self.admit(pending, given) {
                Ok(granted) => miss.stage = Stage::Served(granted),
                Err(deferred) => {
                    miss.stage = Stage::Refused(super::Refusal::Limit);
                    return Some(deferred);
                }
            },
            Err(failure) => {
                self.cancel(pending);
                miss.stage = Stage::Refused(failure.into_refusal());
            }
        }
        None
    }
}
