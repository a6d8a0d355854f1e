//! The hit path allocates no memory of the host: a free and the request it serves touch tables
//! that are there already. Counted by a global allocator of this test's own.
#![allow(clippy::unwrap_used, clippy::panic)]

use drystone_core::{
    Committed, Config, Freed, Heap, Outcome, PoolId, Reuse, SegmentKind, StateMachine, StreamId,
};

const MIB: u64 = 1 << 20;
const LIVE: usize = 600;

/// Sizes from 512 bytes to 24 MiB, in an order without a pattern.
fn sizes() -> impl Iterator<Item = u64> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    std::iter::repeat_with(move || {
        // An xorshift generator: the same sizes every time.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (512 << (state % 15)) + (state >> 32) % 4096
    })
}

/// Makes a request and does its plans to a device that always has room.
fn request(heap: &mut Heap, stream: StreamId, bytes: u64, next_address: &mut u64) -> u64 {
    loop {
        match heap.request(PoolId::DEFAULT, stream, bytes, Reuse::OwnStream).unwrap() {
            Outcome::Granted(grant) => return grant.address,
            Outcome::Plan(plan) => {
                *next_address += 1 << 40;
                if let Committed::Granted(grant) = heap.commit(plan, *next_address) {
                    return grant.address;
                }
            }
        }
    }
}

fn free(heap: &mut Heap, address: u64) {
    assert!(matches!(heap.free(address), Ok(Freed::Done)));
}

#[test]
fn a_hit_allocates_no_host_memory() {
    for kind in [SegmentKind::Mapped, SegmentKind::Plain] {
        let mut heap = Heap::new(Config::new(kind, 2 * MIB, 8192 * MIB));
        let (stream, mut next_address) = (heap.add_stream(), 0);
        let sizes: Vec<u64> = sizes().take(4 * LIVE).collect();
        // One live block of every size of the run, so that each finds a block of its own later.
        let mut live: Vec<u64> =
            sizes.iter().map(|&n| request(&mut heap, stream, n, &mut next_address)).collect();
        live.drain(LIVE..).for_each(|address| free(&mut heap, address));

        let mut hits = 0;
        let counted = allocation_counter::measure(|| {
            for (at, &bytes) in sizes.iter().cycle().take(20 * LIVE).enumerate() {
                let place = &mut live[at * 7 % LIVE];
                free(&mut heap, *place);
                let Ok(Some(grant)) = heap.allocate(PoolId::DEFAULT, stream, bytes) else {
                    panic!("{bytes} bytes are not served from what is free");
                };
                *place = grant.address;
                hits += 1;
            }
        });
        assert_eq!((counted.count_total, hits), (0, 20 * LIVE), "{kind:?}");
        heap.check().unwrap();
    }
}

/// The counter counts: a miss makes plans, and those are on the host's heap.
#[test]
fn a_miss_is_counted() {
    let mut heap = Heap::new(Config::new(SegmentKind::Plain, 2 * MIB, 64 * MIB));
    let (stream, mut next_address) = (heap.add_stream(), 0);
    let counted = allocation_counter::measure(|| {
        request(&mut heap, stream, 512, &mut next_address);
    });
    assert!(counted.count_total > 0);
}
