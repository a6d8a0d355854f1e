//! Limits, sizes, pools, ownership and bad frees.

use drystone_core::{
    Captured, CrossStream, FreeError, PoolId, RequestError, Reuse, SegmentKind, SizeError,
    StateMachine, size,
};

use super::{GRANULE, KINDS, MIB, world};
use crate::world::{Fate, Setup, World};

#[test]
fn b19_plans_under_way_count_against_the_limit() {
    for kind in KINDS {
        let setup = Setup { kind, limit_bytes: 2 * GRANULE, streams: 4, ..Setup::default() };
        let mut world = World::new(&setup);
        let [a, b, c, d] = std::array::from_fn(|at| world.reference.streams[at]);
        // Plan 0 of a mapped segment reserves addresses, plan 1 takes memory.
        let growth = (usize::from(kind == SegmentKind::Mapped), Fate::Open { done: 1 });
        for stream in [a, b] {
            world.allocate_with(0, stream, 512, Captured::Own, growth);
            world.verify();
        }
        assert_eq!(world.open_plans(), 2);
        assert_eq!(world.allocate(c, 512), None);
        let error = world.heap.request(PoolId::DEFAULT, c, 512, Reuse::OwnStream).map(|_| ());
        let (bytes, reserved_bytes, limit_bytes) = (GRANULE, 2 * GRANULE, 2 * GRANULE);
        assert_eq!(error, Err(RequestError::Limit { bytes, reserved_bytes, limit_bytes }));
        // One fails: its share is free again, once.
        world.resume(0, Fate::Fail { after: 1, stop: None });
        world.verify();
        assert!(world.allocate(c, 512).is_some());
        assert_eq!(
            world.heap.request(PoolId::DEFAULT, d, 512, Reuse::OwnStream).map(|_| ()),
            error
        );
        world.finish();
    }
}

#[test]
fn b20_the_owner_of_a_block_is_found_by_its_address_alone() {
    let (mut world, [a, b, c]) = world(2 * GRANULE, CrossStream::Wait);
    let whole = world.allocate(a, 2 * GRANULE).unwrap();
    world.free(whole);
    // The memory wanders from stream to stream in ever smaller pieces.
    let first = world.allocate(b, 3 * MIB).unwrap();
    world.free(first);
    let pieces: Vec<u64> = [(c, MIB + 512), (a, MIB + 1024), (b, MIB + 512)]
        .map(|(s, n)| world.allocate(s, n).unwrap())
        .into();
    for address in pieces {
        world.free(address);
        assert_eq!(world.free_badly(address), FreeError::AlreadyFree { address });
    }
    world.synchronize(Fate::Complete);
    assert_eq!(world.allocate(c, 2 * GRANULE), Some(whole));
    world.finish();
}

#[test]
fn b26_a_private_pool_keeps_its_memory_while_it_lives() {
    for kind in KINDS {
        let mut world = World::new(&Setup { kind, ..Setup::default() });
        let stream = world.reference.streams[0];
        world.add_pool();
        let of_pool = |world: &mut World, bytes| {
            world.allocate_with(1, stream, bytes, Captured::None, (0, Fate::Complete)).unwrap()
        };
        let kept = of_pool(&mut world, 512);
        let freed = of_pool(&mut world, 3 * MIB);
        world.free(freed);
        world.synchronize(Fate::Complete);
        let held = world.device.held_bytes();
        assert!(!world.trim(Fate::Complete), "a graph may still use these addresses");
        assert!(world.allocate(stream, 3 * MIB).is_some_and(|address| address != freed));
        assert_eq!(of_pool(&mut world, 3 * MIB), freed);
        world.free(freed);
        world.synchronize(Fate::Complete);
        // Released once and only once; the block that is still live stays valid.
        world.release_pool(1);
        world.release_pool(1);
        world.verify();
        assert!(!world.trim(Fate::Complete), "a graph may still run");
        world.synchronize(Fate::Complete);
        assert!(world.trim(Fate::Complete));
        world.verify();
        assert!(world.device.held_bytes() > 0 && held > 0);
        world.free(kept);
        world.finish();
    }
}

#[test]
fn b28_a_free_block_that_fits_is_found_behind_any_number_that_do_not() {
    let (mut world, [stream]) = world(u64::MAX, CrossStream::Wait);
    let mut pinned = Vec::new();
    let mut holes = Vec::new();
    for _ in 0..20 {
        pinned.push(world.allocate(stream, MIB + 512).unwrap());
        holes.push(world.allocate(stream, 5 * MIB).unwrap());
    }
    pinned.push(world.allocate(stream, MIB + 512).unwrap());
    let large = world.allocate(stream, 4 * GRANULE).unwrap();
    holes.into_iter().for_each(|address| world.free(address));
    world.synchronize(Fate::Complete);
    // Free, but not known to be complete: the trim leaves it. It leaves a piece at the start of
    // every hole as well, and all of them can grow.
    world.free(large);
    assert!(world.trim(Fate::Complete));
    world.heap.set_limit(0);
    assert_eq!(world.allocate(stream, 4 * GRANULE), Some(large));
    world.finish();
}

#[test]
fn b33_cached_memory_makes_way_at_the_limit() {
    for kind in KINDS {
        let setup = Setup { kind, limit_bytes: 24 * MIB, ..Setup::default() };
        let mut world = World::new(&setup);
        let stream = world.reference.streams[0];
        let cached = world.allocate(stream, 512).unwrap();
        world.free(cached);
        // Nothing is in use, but the cache and the request together pass the limit.
        let served = world.allocate(stream, 24 * MIB);
        assert_eq!(served.is_some(), kind == SegmentKind::Mapped, "granules go where needed");
        world.synchronize(Fate::Complete);
        let is_trimmed = world.trim(Fate::Complete);
        assert_eq!(is_trimmed, kind == SegmentKind::Plain, "all that is mapped is in use");
        assert!(served.or_else(|| world.allocate(stream, 24 * MIB)).is_some());
        world.finish();
    }
}

#[test]
fn b34_the_limit_itself_can_be_had_and_not_a_byte_more() {
    for kind in KINDS {
        for limit_bytes in [GRANULE, 12 * MIB, 40 * MIB] {
            let setup =
                Setup { kind, limit_bytes, capacity_bytes: limit_bytes, ..Setup::default() };
            let mut world = World::new(&setup);
            let stream = world.reference.streams[0];
            assert_eq!(world.allocate(stream, limit_bytes + 1), None);
            let is_alone = kind == SegmentKind::Mapped || limit_bytes >= 10 * MIB;
            assert_eq!(world.allocate(stream, limit_bytes).is_some(), is_alone);
            assert_eq!(world.allocate(stream, 1).is_some(), !is_alone);
            world.heap.set_limit(limit_bytes - 1);
            assert_eq!(world.allocate(stream, 2 * MIB), None);
            world.finish();
        }
    }
}

#[test]
fn b35_any_size_gets_an_answer() {
    for kind in KINDS {
        let setup = Setup { kind, limit_bytes: 64 * MIB, ..Setup::default() };
        let mut world = World::new(&setup);
        let stream = world.reference.streams[0];
        for power in 0..64 {
            for delta in -2i64..=2 {
                let bytes = (1u64 << power).wrapping_add_signed(delta);
                if let Some(address) = world.allocate(stream, bytes) {
                    world.free(address);
                }
                world.synchronize(Fate::Complete);
                while world.trim(Fate::Complete) {}
                world.verify();
            }
        }
        assert_eq!(world.allocate(stream, u64::MAX), None);
        world.finish();
    }
}

#[test]
fn b39_zero_bytes_have_one_answer_any_number_of_times() {
    let (mut world, [stream]) = world(u64::MAX, CrossStream::Wait);
    for _ in 0..3 {
        let zero = Err(RequestError::Size(SizeError::Zero));
        assert_eq!(world.heap.allocate(PoolId::DEFAULT, stream, 0), zero);
        let request = world.heap.request(PoolId::DEFAULT, stream, 0, Reuse::MayWait);
        assert_eq!(request.map(|_| None), zero);
    }
    assert_eq!(size::block_bytes(0), Err(SizeError::Zero));
    world.verify();
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn b40_blocks_of_every_size_are_freed_in_any_order() {
    for step in [1, 7, 13] {
        let (mut world, [stream]) = world(u64::MAX, CrossStream::Wait);
        let sizes = (0..60u64).map(|n| (512 << (n % 15)) + n * 512);
        let addresses: Vec<u64> = sizes.map(|n| world.allocate(stream, n).unwrap()).collect();
        for at in 0..addresses.len() {
            world.free(addresses[at * step % addresses.len()]);
        }
        // All of each class is one block again.
        let free = world
            .heap
            .snapshot()
            .iter()
            .flat_map(|s| s.blocks.clone())
            .filter(|b| b.state == drystone_core::BlockState::Free)
            .count();
        assert_eq!(free, 2);
        world.finish();
    }
}

#[test]
fn b41_refused_frees_leave_no_trace_in_the_counters() {
    let (mut world, [stream]) = world(u64::MAX, CrossStream::Wait);
    let address = world.allocate(stream, 1000).unwrap();
    world.free(address);
    for _ in 0..3 {
        world.free_badly(address);
        world.free_badly(0);
        world.free_badly(u64::MAX);
    }
    world.verify();
    let all = world.heap.stats().all;
    assert_eq!((all.requested_bytes.current, all.requested_bytes.total), (0, 1000));
    assert_eq!((all.allocated_bytes.peak, all.allocated_bytes.total), (1024, 1024));
    world.reset_peaks();
    let all = world.heap.stats().all;
    assert_eq!((all.allocated_bytes.peak, all.allocated_bytes.total), (0, 1024));
    assert_eq!((all.reserved_bytes.peak, all.reserved_bytes.total), (GRANULE, GRANULE));
}

#[test]
fn b42_a_second_free_is_refused_in_every_state_of_the_block() {
    let (mut world, [a, b]) = world(u64::MAX, CrossStream::Wait);
    let addresses: Vec<u64> = (0..4).map(|_| world.allocate(a, 1024).unwrap()).collect();
    let [free, pending, claimed, quarantined] = addresses[..] else { unreachable!() };
    for used in [pending, claimed, quarantined] {
        world.record_stream(used, b);
    }
    world.free(free);
    world.free(pending);
    world.free_with(claimed, Fate::Open { done: 1 });
    world.free_with(quarantined, Fate::Fail { after: 0, stop: None });
    for &address in &addresses {
        assert_eq!(world.free_badly(address), FreeError::AlreadyFree { address });
        world.verify();
    }
    let (inside, block_address, block_bytes) = (pending + 512, pending, 1024);
    let interior = FreeError::Interior { address: inside, block_address, block_bytes };
    assert_eq!(world.free_badly(inside), interior);
    world.finish();
}

#[test]
fn b43_a_block_goes_back_to_the_pool_it_came_from() {
    let (mut world, [stream]) = world(u64::MAX, CrossStream::Wait);
    world.add_pool();
    let address = world.allocate_with(1, stream, 512, Captured::None, (0, Fate::Complete)).unwrap();
    let other = world.allocate(stream, 512).unwrap();
    world.release_pool(1);
    world.free(address);
    // Free in a pool that serves nobody any more, and in no other.
    assert_eq!(world.allocate(stream, 512), Some(other + 512));
    let pools: Vec<usize> = world.heap.snapshot().iter().map(|segment| segment.pool).collect();
    assert_eq!(pools.len(), 2);
    assert!(pools.contains(&0) && pools.contains(&1));
    world.finish();
}

/// A pool of plain memory beside mapped ones: what is shared with another process the old way.
#[test]
fn i12_a_pool_keeps_to_its_kind() {
    let others = [SegmentKind::Plain, SegmentKind::Mapped];
    for (kind, other) in KINDS.into_iter().zip(others) {
        let setup = Setup { kind, limit_bytes: 64 * MIB, streams: 2, ..Setup::default() };
        let mut world = World::new(&setup);
        let [a, b] = std::array::from_fn(|at| world.reference.streams[at]);
        let pool = world.add_pool_of(other);
        let mut allocate = |pool, stream, bytes| {
            world.allocate_with(pool, stream, bytes, Captured::None, (0, Fate::Complete));
            world.verify();
        };
        for stream in [a, b] {
            for pool in [0, 1] {
                allocate(pool, stream, 700);
                allocate(pool, stream, 5 * MIB);
            }
        }
        for (pool, kind) in [(0, kind), (1, other)] {
            let segments = world.heap.snapshot();
            let mut of_pool = segments.iter().filter(|segment| segment.pool == pool).peekable();
            assert!(of_pool.peek().is_some() && of_pool.all(|segment| segment.kind == kind));
        }
        // The place of a pool that ended goes to one of the same kind only.
        while let Some((&address, _)) = world.reference.live.first_key_value() {
            world.free(address);
        }
        world.release_pool(1);
        world.synchronize(Fate::Complete);
        while world.trim(Fate::Complete) {}
        let (different, same) = (world.add_pool_of(kind), world.add_pool_of(other));
        assert!(different.index() != pool.index() && same.index() == pool.index());
        world.finish();
    }
}

/// What others note by its segment, such as a signal pad of symmetric memory, is no two blocks'.
#[test]
fn i17_an_unsplit_pool_has_a_segment_for_each_block() {
    for kind in KINDS {
        let mut world = World::new(&Setup { kind, streams: 2, ..Setup::default() });
        let [a, b] = std::array::from_fn(|at| world.reference.streams[at]);
        let pool = world.add_unsplit_pool();
        let allocate = |world: &mut World, stream, bytes| {
            world.allocate_with(1, stream, bytes, Captured::None, (0, Fate::Complete));
            world.verify();
            world.heap.snapshot().iter().filter(|s| s.pool == 1).map(|s| s.bytes).sum::<u64>()
        };
        let mut held_mib = Vec::new();
        for (stream, bytes) in [(a, 700), (a, 700), (a, 3 * MIB), (b, 3 * MIB), (b, 30 * MIB)] {
            held_mib.push(allocate(&mut world, stream, bytes) / MIB);
        }
        assert_eq!(held_mib, [2, 4, 8, 12, 42], "no more than each takes by itself");
        // A segment that is free serves again, as a whole.
        let address = *world.reference.live.last_key_value().unwrap().0;
        let (bytes, _) = world.heap.size_of(address).unwrap();
        world.free(address);
        assert_eq!(allocate(&mut world, b, 5 * MIB), 42 * MIB);
        assert_eq!(world.heap.size_of(address), Ok((bytes, 5 * MIB)));
        let part = address..address + 5 * MIB;
        world.free(address);
        assert!(world.heap.allocate_at(pool, b, 5 * MIB, part).unwrap().is_none());
        world.finish();
    }
}

/// A plain segment has no granules: its neighbours are nobody's part of it.
#[test]
fn i16_a_pin_of_plain_memory_covers_no_more_than_the_block() {
    let granule_bytes = 64 * MIB;
    let mut world =
        World::new(&Setup { kind: SegmentKind::Plain, granule_bytes, ..Setup::default() });
    let stream = world.reference.streams[0];
    let [pinned, other] = [12, 14].map(|mib| world.allocate(stream, mib * MIB).unwrap());
    world.pin(pinned);
    assert_eq!(world.heap.remap_stats().pinned_bytes, 12 * MIB);
    world.free(other);
    world.synchronize(Fate::Complete);
    while world.trim(Fate::Complete) {}
    assert_eq!(world.device.held_bytes(), 12 * MIB);
    world.unpin_all();
    world.finish();
}
