//! The heap from within: what its own state machine test cannot see.

mod allocate_at;
mod donors;
mod giving;
mod growing;
mod mesh;
mod private;
mod runs;
mod slices;
mod trail;
mod windows;

use crate::{
    Committed, Config, Granted, Heap, Outcome, PoolId, Prefer, Reuse, SegmentKind, StateMachine,
    StreamId,
};

/// A heap over virtual memory in granules of 2 MiB, on a device of 64 GiB.
fn heap_of(prefer: Prefer) -> Heap {
    Heap::new(Config { prefer, ..Config::new(SegmentKind::Mapped, 2 << 20, 1 << 36) })
}

/// Requests a block in full, of a device that does everything at once.
fn request(heap: &mut Heap, pool: PoolId, stream: StreamId, bytes: u64, reuse: Reuse) -> Granted {
    loop {
        match heap.request(pool, stream, bytes, reuse).unwrap() {
            Outcome::Granted(granted) => return granted,
            Outcome::Plan(plan) => {
                let address = (heap.stats().all.segments.total + 1) << 41;
                if let Committed::Granted(granted) = heap.commit(plan, address) {
                    return granted;
                }
            }
        }
    }
}
