//! Blocks put back where they were.

use std::ops::Range;

use crate::{
    Committed, Config, CrossStream, Granted, HELD_PER_HANDLE, Heap, Outcome, PoolId, SegmentKind,
    StateMachine, StreamId,
};

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
        remaps: true,
        held_per_handle: HELD_PER_HANDLE,
        prefer: crate::Prefer::Memory,
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
