//! What only a heap does to the device: a trim is a plan after another, and a peer is let in range
//! by range.

use drystone_core::{Heap, Plan, StateMachine};
use drystone_driver::{Call, Relaxed};

use crate::error::{PeerError, TrimError, poisoned};
use crate::executor::Executor;
use crate::state_lock::StateLock;

/// Gives back what a heap plans to, plan after plan. Returns the bytes.
pub(crate) fn trim(
    executor: &Executor,
    heap: &StateLock<Heap>,
    mut plan: fn(&mut Heap) -> Option<Plan>,
) -> Result<u64, TrimError> {
    let mut given_back_bytes = 0;
    loop {
        match trim_once(executor, heap, &mut plan) {
            Ok(Some(bytes)) => given_back_bytes += bytes,
            Ok(None) => return Ok(given_back_bytes),
            Err(error) => {
                let given_back_bytes = given_back_bytes + error.given_back_bytes;
                return Err(TrimError { given_back_bytes, ..error });
            }
        }
    }
}

/// Gives back what one plan of a heap does. Returns the bytes; `None` if there was nothing to do.
pub(crate) fn trim_once(
    executor: &Executor,
    heap: &StateLock<Heap>,
    plan: &mut dyn FnMut(&mut Heap) -> Option<Plan>,
) -> Result<Option<u64>, TrimError> {
    // A capture may have begun since the last plan, silently.
    executor.refuse_in_capture(Call::Free).map_err(TrimError::before_anything)?;
    let planned = heap.change(|heap| (heap.stats().all.reserved_bytes, plan(heap)));
    let planned = planned.map_err(poisoned(Call::Free)).map_err(TrimError::before_anything)?;
    let (before, Some(plan)) = planned else { return Ok(None) };
    let performed = executor.perform(heap, plan);
    let after = heap.read().stats().all.reserved_bytes;
    // What was taken away, whatever was added.
    let given_back_bytes = (after.total - after.current) - (before.total - before.current);
    performed.map_err(|error| TrimError { error, given_back_bytes })?;
    Ok(Some(given_back_bytes))
}

/// Gives a peer access to all memory, mapped before or after. The growth lock is held until the
/// last range is open: what is mapped later asks for the peer by itself.
pub(crate) fn enable_peer_access(
    executor: &Executor,
    heap: &StateLock<Heap>,
    peer_ordinal: u32,
) -> Result<(), PeerError> {
    let failed = |open_bytes, closed_bytes| {
        move |error| PeerError { peer_ordinal, error, open_bytes, closed_bytes }
    };
    let ranges = heap.change(|heap| heap.mapped_ranges());
    let ranges = ranges.map_err(poisoned(Call::EnablePeerAccess)).map_err(failed(0, 0))?;
    let total_bytes = ranges.iter().map(|range| range.1).sum::<u64>();
    // Captures forbid the call to restricted threads, for all that is known.
    let _relaxed = Relaxed::enter(&*executor.driver).map_err(failed(0, total_bytes))?;
    executor.driver.enable_peer_access(peer_ordinal).map_err(failed(0, total_bytes))?;
    let mut open_bytes = 0;
    for (address, bytes) in ranges {
        let opened = executor.driver.set_access(address, bytes);
        opened.map_err(failed(open_bytes, total_bytes - open_bytes))?;
        open_bytes += bytes;
    }
    Ok(())
}
