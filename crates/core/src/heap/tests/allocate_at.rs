//! Blocks put back where they were.

use std::ops::Range;

use super::{heap_of, request};
use crate::{Granted, Heap, PoolId, Prefer, Reuse, StateMachine, StreamId};

const MIB: u64 = 1 << 20;

fn take(heap: &mut Heap, pool: PoolId, stream: StreamId, bytes: u64) -> Granted {
    request(heap, pool, stream, bytes, Reuse::OwnStream)
}

#[test]
fn blocks_are_put_back_where_they_were_and_nowhere_else() {
    let mut heap = heap_of(Prefer::Memory);
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
        let before = heap.stats();
        assert_eq!(heap.allocate_at(pool, other, requested, place).unwrap(), None);
        assert_eq!(heap.stats(), before);
        heap.check().unwrap();
    };
    let free = place(blocks[2]);
    refused(PoolId::DEFAULT, 2 * MIB, free.clone()); // another pool's
    refused(pool, 2 * MIB, free.start - 512..free.end - 512); // partly live
    refused(pool, 2 * MIB, free.start..free.end - 512); // too small
    refused(pool, 2 * MIB, free.start + 1..free.end + 1); // no block can be there
    refused(pool, 2 * MIB, 0..2 * MIB); // nobody's
    // A small one may have been there, where there was no more memory.
    let small = heap.allocate_at(pool, stream, MIB, free.start..free.start + MIB).unwrap();
    let _ = heap.free(small.unwrap().address).unwrap();
    heap.check().unwrap();
    assert_eq!(heap.allocate_at(pool, stream, 2 * MIB, free).unwrap(), Some(blocks[2]));
}
