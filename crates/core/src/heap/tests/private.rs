//! Private pools remap their own memory, behind addresses that graphs hold.

use super::{heap_of, request};
use crate::plan::Step;
use crate::{
    Committed, Config, Granted, Heap, Outcome, PinKey, PoolId, Prefer, Reuse, SegmentKind,
    StateMachine, StreamId, policy,
};

const GRANULE: u64 = 2 << 20;

struct Captures {
    heap: Heap,
    pool: PoolId,
    stream: StreamId,
}

impl Captures {
    fn new(prefer: Prefer) -> Self {
        let mut heap = heap_of(prefer);
        let (pool, stream) = (heap.add_pool(), heap.add_stream());
        Self { heap, pool, stream }
    }

    fn take(&mut self, granules: u64) -> Granted {
        let Self { heap, pool, stream } = self;
        request(heap, *pool, *stream, granules * GRANULE, Reuse::OwnStream)
    }

    fn free(&mut self, block: Granted) {
        let _ = self.heap.free(block.address).unwrap();
    }

    fn held(&self) -> u64 {
        self.heap.stats().all.reserved_bytes.current / GRANULE
    }

    /// Two gaps of so many granules, between blocks in use.
    fn gaps(&mut self, granules: u64) {
        let blocks = [granules, 1, granules, 1].map(|granules| self.take(granules));
        self.free(blocks[0]);
        self.free(blocks[2]);
    }
}

/// The device has done all that it was given.
fn settle(heap: &mut Heap) {
    let plan = heap.plan_synchronize();
    heap.commit(plan, 0);
}

fn trim(heap: &mut Heap) {
    while let Some(plan) = heap.plan_trim() {
        heap.commit(plan, 0);
    }
    heap.check().unwrap();
}

/// With memory to spare, too: what a pool has too much serves nobody else.
#[test]
fn gaps_serve_a_larger_request_of_the_same_pool() {
    for prefer in [Prefer::Memory, Prefer::Balanced, Prefer::Speed] {
        let mut captures = Captures::new(prefer);
        captures.gaps(4);
        let held = captures.held();
        let wide = captures.take(8);
        assert_eq!(captures.held(), held, "{prefer:?}");
        // At home again it serves as before, and the window as before, with no driver call.
        captures.free(wide);
        let narrow = captures.take(4);
        assert_ne!(narrow.address, wide.address);
        captures.free(narrow);
        let calls = captures.heap.stats().granule_remaps;
        let again = captures.take(8);
        assert_eq!((again.address, captures.held()), (wide.address, held));
        assert_eq!(captures.heap.stats().granule_remaps, calls + 8);
        captures.heap.check().unwrap();
    }
}

/// Only what lacks is created.
#[test]
fn gaps_that_do_not_suffice_are_filled_up() {
    let mut captures = Captures::new(Prefer::Balanced);
    captures.gaps(4);
    let held = captures.held();
    captures.take(10);
    assert_eq!(captures.held(), held + 2);
    captures.heap.check().unwrap();
}

/// What is borrowed stays in its window: the same request would borrow again and again.
#[test]
fn a_request_that_is_repeated_borrows_no_more() {
    let mut captures = Captures::new(Prefer::Memory);
    captures.gaps(4);
    let Captures { mut heap, pool, stream } = captures;
    let others: Vec<Granted> = (0..40)
        .map(|_| request(&mut heap, PoolId::DEFAULT, stream, GRANULE, Reuse::MayWait))
        .collect();
    for other in others.iter().step_by(2) {
        let _ = heap.free(other.address).unwrap();
    }
    settle(&mut heap);
    let mut held = Vec::new();
    for _ in 0..20 {
        let wide = request(&mut heap, pool, stream, 10 * GRANULE, Reuse::OwnStream);
        let _ = heap.free(wide.address).unwrap();
        let of_pool = heap.snapshot().into_iter().filter(|segment| segment.pool != 0);
        let blocks = of_pool.flat_map(|segment| segment.blocks);
        let backed = blocks.filter(|block| block.state == crate::BlockState::Free);
        held.push(backed.map(|block| block.bytes).sum::<u64>());
    }
    assert!(held.iter().all(|&bytes| bytes == held[0]), "{held:?}");
    heap.check().unwrap();
}

/// A handle ends where a block does, but for what it shares with the next one; and a smaller block
/// holds up a quarter of what was there before.
#[test]
fn blocks_in_use_hold_up_little_of_the_gaps_beside_them() {
    const MIB: u64 = 1 << 20;
    let mut captures = Captures::new(Prefer::Speed);
    let mut take = |mib: u64| {
        let Captures { heap, pool, stream } = &mut captures;
        request(heap, *pool, *stream, mib * MIB, Reuse::OwnStream)
    };
    let blocks = [27, 27, 27, 27, 108, 27].map(&mut take);
    [0, 2, 4].into_iter().for_each(|gap| captures.free(blocks[gap]));
    let mut take = |mib: u64| {
        let Captures { heap, pool, stream } = &mut captures;
        request(heap, *pool, *stream, mib * MIB, Reuse::OwnStream)
    };
    // It lies in the gap of 108 MiB once those of 27 have blocks again.
    let held = [27, 27, 27].map(&mut take);
    captures.free(held[0]);
    captures.free(held[1]);
    let held = captures.held();
    let wide = captures.take(26 / 2 + 24 / 2 + 78 / 2);
    assert_eq!(captures.held(), held, "{wide:?}");
    captures.heap.check().unwrap();
}

/// I12: a graph has the window's addresses.
#[test]
fn windows_of_a_private_pool_stay_mapped_until_it_is_released() {
    let mut captures = Captures::new(Prefer::Memory);
    captures.gaps(4);
    let wide = captures.take(8);
    captures.free(wide);
    let Captures { mut heap, pool, .. } = captures;
    settle(&mut heap);
    assert_eq!(heap.remap_stats().aliases, 8);
    assert!(heap.plan_eviction().is_none());
    assert!(heap.plan_trim().is_none());
    heap.release_pool(pool).unwrap();
    settle(&mut heap);
    let plan = heap.plan_eviction().unwrap();
    heap.commit(plan, 0);
    assert_eq!(heap.remap_stats().aliases, 0);
    heap.check().unwrap();
}

/// They are no fewer by and by, and would be without end: a pool that has many grows.
#[test]
fn mappings_of_a_private_pool_stay_within_the_budget() {
    let mut captures = Captures::new(Prefer::Memory);
    let blocks: Vec<Granted> = (0..400).map(|_| captures.take(1)).collect();
    blocks.iter().step_by(2).for_each(|&block| captures.free(block));
    let (mut most, before) = (0, captures.held());
    for size in 2..=200 {
        let block = captures.take(size);
        captures.free(block);
        most = policy::mapping_budget(captures.held() as usize);
        let aliases = captures.heap.remap_stats().aliases as usize;
        assert!(aliases <= most, "{aliases} aliases of {most}");
    }
    assert!(captures.held() > before, "{most} were enough");
    captures.heap.check().unwrap();
}

/// Graphs of one pool may run at the same time, if the program says so.
#[test]
fn graphs_that_run_together_do_not_remap_each_others_memory() {
    for is_exclusive in [true, false] {
        let mut captures = Captures::new(Prefer::Memory);
        captures.heap.set_exclusive(captures.pool, is_exclusive).unwrap();
        captures.gaps(4);
        settle(&mut captures.heap);
        let held = captures.held();
        captures.stream = captures.heap.add_stream();
        captures.take(8);
        assert_eq!(captures.held() == held, is_exclusive);
        captures.heap.check().unwrap();
    }
}

/// A tree of graphs goes back to where it was: the block was in a window, whose memory is at home.
#[test]
fn a_block_is_put_back_into_an_idle_window() {
    let mut captures = Captures::new(Prefer::Memory);
    captures.gaps(4);
    let wide = captures.take(7);
    captures.free(wide);
    let narrow = captures.take(3);
    captures.free(narrow);
    let Captures { mut heap, pool, stream } = captures;
    let held = heap.stats().all.reserved_bytes.current;
    let place = wide.address..wide.address + wide.bytes;
    let part = wide.address + GRANULE..wide.address + 3 * GRANULE;
    // Its memory is in use elsewhere.
    let blocking = request(&mut heap, pool, stream, 4 * GRANULE, Reuse::OwnStream);
    assert_eq!(heap.allocate_at(pool, stream, 7 * GRANULE, place.clone()).unwrap(), None);
    heap.check().unwrap();
    let _ = heap.free(blocking.address).unwrap();
    let first = heap.allocate_at(pool, stream, 2 * GRANULE, part).unwrap().unwrap();
    heap.check().unwrap();
    let _ = heap.free(first.address).unwrap();
    assert_eq!(heap.allocate_at(pool, stream, 7 * GRANULE, place).unwrap(), Some(wide));
    assert_eq!(heap.stats().all.reserved_bytes.current, held);
    heap.check().unwrap();
    let _ = heap.free(wide.address).unwrap();
    heap.check().unwrap();
}

/// What another stream has freed of the memory at home meanwhile is in that stream's order there.
#[test]
fn memory_that_two_streams_freed_is_complete_once_both_are() {
    let mut captures = Captures::new(Prefer::Memory);
    captures.gaps(4);
    let wide = captures.take(8);
    captures.free(wide);
    let Captures { mut heap, pool, stream } = captures;
    settle(&mut heap);
    // The other stream has come much further.
    let other = heap.add_stream();
    for _ in 0..9 {
        let used = request(&mut heap, PoolId::DEFAULT, stream, GRANULE, Reuse::MayWait);
        heap.record_stream(used.address, other).unwrap();
        let crate::Freed::Plan(plan) = heap.free(used.address).unwrap() else { panic!() };
        heap.commit(*plan, 0);
        settle(&mut heap);
    }
    let parts = [stream, other]
        .map(|stream| request(&mut heap, pool, stream, 2 * GRANULE, Reuse::OwnStream));
    assert_eq!(parts[0].address + parts[0].bytes, parts[1].address);
    for part in parts {
        let _ = heap.free(part.address).unwrap();
    }
    let place = wide.address..wide.address + wide.bytes;
    assert_eq!(heap.allocate_at(pool, stream, wide.bytes, place).unwrap(), Some(wide));
    heap.check().unwrap();
    let _ = heap.free(wide.address).unwrap();
    heap.release_pool(pool).unwrap();
    settle(&mut heap);
    trim(&mut heap);
    assert_eq!(heap.stats().all.reserved_bytes.current, 2 * GRANULE, "what is live");
}

/// Nothing was there: no window has the same memory twice.
#[test]
fn two_windows_of_the_same_memory_are_no_place_for_a_block() {
    let mut captures = Captures::new(Prefer::Memory);
    let blocks = [4, 1, 4, 1, 4, 1].map(|granules| captures.take(granules));
    captures.free(blocks[0]);
    captures.free(blocks[2]);
    let first = captures.take(8);
    captures.free(first);
    captures.free(blocks[4]);
    let second = captures.take(12);
    captures.free(second);
    let Captures { mut heap, pool, stream } = captures;
    assert_eq!(first.address + first.bytes, second.address);
    let both = first.address..second.address + second.bytes;
    assert_eq!(heap.allocate_at(pool, stream, 20 * GRANULE, both).unwrap(), None);
    heap.check().unwrap();
}

/// The driver may reserve addresses right behind others.
#[test]
fn a_block_is_put_back_whose_memory_lies_in_two_segments_side_by_side() {
    let config = Config::new(SegmentKind::Mapped, GRANULE, 8 * GRANULE);
    let mut heap = Heap::new(Config { prefer: Prefer::Memory, ..config });
    let (pool, streams) = (heap.add_pool(), [(); 2].map(|()| heap.add_stream()));
    let mut next = 1 << 40;
    let mut take = |heap: &mut Heap, stream, granules| loop {
        match heap.request(pool, stream, granules * GRANULE, Reuse::OwnStream).unwrap() {
            Outcome::Granted(granted) => return granted,
            Outcome::Plan(plan) => {
                let is_new = plan.steps.iter().find_map(|step| match step {
                    Step::Reserve { bytes, .. } => Some(*bytes),
                    _ => None,
                });
                let address = next;
                next += is_new.unwrap_or(0);
                if let Committed::Granted(granted) = heap.commit(plan, address) {
                    return granted;
                }
            }
        }
    };
    let [_, last] = [6, 2].map(|granules| take(&mut heap, streams[0], granules));
    let [first, _] = [2, 1].map(|granules| take(&mut heap, streams[1], granules));
    assert_eq!(last.address + last.bytes, first.address);
    let _ = heap.free(last.address).unwrap();
    let _ = heap.free(first.address).unwrap();
    settle(&mut heap);
    let wide = take(&mut heap, streams[0], 4);
    let _ = heap.free(wide.address).unwrap();
    let place = wide.address..wide.address + wide.bytes;
    assert_eq!(heap.allocate_at(pool, streams[0], wide.bytes, place).unwrap(), Some(wide));
    heap.check().unwrap();
}

/// NCCL has registered the block, say. Its addresses lead to the same memory wherever a tree of
/// graphs wants that (I12), and after the pool's end until it is registered no more.
#[test]
fn pinned_memory_of_a_private_pool_is_put_back_elsewhere() {
    let mut captures = Captures::new(Prefer::Memory);
    let blocks = [4, 1, 4, 1].map(|granules| captures.take(granules));
    captures.free(blocks[0]);
    captures.free(blocks[2]);
    let wide = captures.take(8);
    let place = |block: Granted| block.address..block.address + block.bytes;
    captures.heap.pin_mapping(wide.address).unwrap();
    captures.free(wide);
    let Captures { mut heap, pool, stream } = captures;
    let put = |heap: &mut Heap, block: Granted| {
        let put = heap.allocate_at(pool, stream, block.bytes, place(block)).unwrap();
        assert_eq!(put, Some(block));
        heap.check().unwrap();
    };
    // At home while a window is pinned, in a window while a home is.
    put(&mut heap, blocks[0]);
    heap.pin_mapping(blocks[0].address).unwrap();
    let _ = heap.free(blocks[0].address).unwrap();
    put(&mut heap, wide);
    let _ = heap.free(wide.address).unwrap();
    // Of what was freed before, too.
    heap.pin_range(wide.address + 1..wide.address + GRANULE).unwrap();
    heap.release_pool(pool).unwrap();
    settle(&mut heap);
    trim(&mut heap);
    assert_eq!(heap.remap_stats().aliases, 8);
    for key in
        [PinKey::Block(wide.address), PinKey::Range(wide.address + 1, wide.address + GRANULE)]
    {
        assert!(heap.unpin(key));
    }
    trim(&mut heap);
    assert_eq!(heap.remap_stats().aliases, 0);
    assert_eq!(heap.stats().all.reserved_bytes.current, 6 * GRANULE, "what is live or pinned");
}

/// The default pool keeps what it has cached, and no window of a pool that is gone.
#[test]
fn windows_of_borrowed_memory_end_with_their_pool() {
    let mut heap = heap_of(Prefer::Memory);
    let stream = heap.add_stream();
    let take = |heap: &mut Heap, pool, granules| {
        request(heap, pool, stream, granules * GRANULE, Reuse::MayWait)
    };
    let blocks: Vec<Granted> = (0..8).map(|_| take(&mut heap, PoolId::DEFAULT, 1)).collect();
    for block in blocks.iter().step_by(2) {
        let _ = heap.free(block.address).unwrap();
    }
    let held = heap.stats().all;
    for _ in 0..3 {
        let pool = heap.add_pool();
        let wide = take(&mut heap, pool, 4);
        let _ = heap.free(wide.address).unwrap();
        heap.release_pool(pool).unwrap();
        settle(&mut heap);
        while let Some(plan) = heap.plan_trim_released() {
            heap.commit(plan, 0);
        }
        heap.check().unwrap();
        assert_eq!(heap.stats().all.reserved_bytes.current, held.reserved_bytes.current);
        assert_eq!(heap.stats().all.segments.current, held.segments.current);
        assert_eq!(heap.remap_stats().aliases, 0);
    }
}
