//! What is shown: statistics, snapshots, and the owned [`Allocation`](drystone::Allocation).

use drystone::{Allocator, BlockState, PoolId, SegmentKind, SizeClass, StreamId};

use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    statistics_follow_every_step,
    peaks_can_be_reset,
    each_pool_scale_and_stream_has_a_peak_of_its_own,
    a_snapshot_tiles_its_segments_and_shows_what_is_live,
    an_allocation_frees_itself,
    an_address_taken_out_is_the_programs_to_free,
    clones_are_the_same_allocator,
);

fn statistics_follow_every_step(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let sizes = [1, 512, 700, MIB, MIB + 1, 3 * MIB, 40 * MIB, 5];
    let mut live = Vec::new();
    let (mut requested, mut peak) = (0, 0);
    for (at, bytes) in sizes.into_iter().enumerate() {
        live.push(program.allocate(lane, bytes));
        requested += bytes;
        if at % 3 == 2 {
            let block = live.remove(0);
            requested -= block.requested;
            program.free(block);
        }
        let allocated: u64 = live.iter().map(|block| block.bytes).sum();
        peak = peak.max(allocated);
        let stats = program.allocator.stats();
        let all = stats.all;
        assert_eq!(all.requested_bytes.current, requested);
        assert_eq!(all.allocated_bytes.current, allocated);
        assert_eq!(all.active_bytes.current, allocated);
        assert_eq!(all.allocations.current, live.len() as u64);
        assert_eq!(all.allocations.total, at as u64 + 1);
        assert!(all.allocated_bytes.peak >= peak && all.reserved_bytes.current >= allocated);
        let small = live.iter().filter(|block| block.bytes <= MIB).count() as u64;
        assert_eq!(stats.classes[0].allocations.current, small);
        assert_eq!(stats.classes[1].allocations.current, live.len() as u64 - small);
        let pair = program.allocator.allocated_and_reserved_bytes();
        assert_eq!(pair, (allocated, all.reserved_bytes.current));
        program.check();
    }
    live.into_iter().for_each(|block| program.free(block));
    program.end();
}

fn peaks_can_be_reset(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let block = program.allocate(lane, 40 * MIB);
    program.free(block);
    program.allocator.trim().unwrap();
    assert!(program.allocator.stats().all.allocated_bytes.peak >= 40 * MIB);
    program.allocator.reset_peaks();
    let all = program.allocator.stats().all;
    assert_eq!((all.allocated_bytes.peak, all.reserved_bytes.peak), (0, 0));
    assert!(all.allocated_bytes.total >= 40 * MIB, "totals stay");
    program.end();
}

/// In use now and at most, and of it what is live.
fn account(allocator: &Allocator, pool: PoolId, stream: StreamId, class: SizeClass) -> [u64; 3] {
    let is_asked = |one: &&drystone::PoolStreamStats| {
        (one.pool, one.stream, one.class) == (pool.index(), stream.index(), class)
    };
    let accounts = allocator.pool_stream_stats();
    let mut found = accounts.iter().filter(is_asked);
    let one = found.next().map_or([0; 3], |one| {
        [one.active_bytes.current, one.active_bytes.peak, one.allocated_bytes]
    });
    assert_eq!(found.next(), None, "told twice");
    one
}

fn each_pool_scale_and_stream_has_a_peak_of_its_own(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let allocator = &program.allocator;
    let private = allocator.add_pool();
    let of = |pool, stream, class| account(allocator, pool, stream, class);
    let large = |stream| of(PoolId::DEFAULT, stream, SizeClass::Large);

    let block = program.allocate(lane, 40 * MIB);
    program.free(block);
    // Memory that the first stream had, where streams share it.
    let kept = program.allocate(other, 30 * MIB);
    let small = program.allocate(other, 512);
    let granted = program.try_allocate_in(private, lane, 4 * MIB).unwrap();
    assert_eq!(large(lane.id), [0, 40 * MIB, 0]);
    assert_eq!(large(other.id), [30 * MIB; 3]);
    assert_eq!(of(PoolId::DEFAULT, other.id, SizeClass::Small), [512; 3]);
    assert_eq!(of(private, lane.id, SizeClass::Large), [4 * MIB; 3]);

    // Freed, but in use on another stream until its work is done.
    program.use_on(&kept, lane);
    program.device.work(lane.stream, 1_000_000);
    program.free(kept);
    assert_eq!(large(other.id)[1..], [30 * MIB, 0]);
    for block in [small, granted] {
        program.free(block);
    }
    allocator.trim().unwrap();
    assert_eq!(large(other.id), [0, 30 * MIB, 0]);
    let all = allocator.stats().all;
    let free: u64 = allocator.pool_stream_stats().iter().map(|one| one.free_bytes).sum();
    assert!(free <= all.reserved_bytes.current);
    allocator.reset_peaks();
    assert!(allocator.pool_stream_stats().iter().all(|one| one.active_bytes.peak == 0));
    allocator.release_pool(private).unwrap();
    program.end();
}

fn a_snapshot_tiles_its_segments_and_shows_what_is_live(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let mut live: Vec<_> = (1..30).map(|at| program.allocate(lane, at * 150_000)).collect();
    let freed: Vec<_> = (0..10).map(|at| live.remove(at)).collect();
    freed.into_iter().for_each(|block| program.free(block));
    let pending = program.allocate(lane, 3 * MIB);
    let pending_address = pending.address;
    program.use_on(&pending, other);
    program.device.work(other.stream, 1_000_000);
    program.free(pending);

    let views = program.allocator.snapshot();
    let mut shown = Vec::new();
    for view in &views {
        let mut address = view.address;
        for block in &view.blocks {
            assert_eq!(block.address, address);
            address += block.bytes;
            match block.state {
                BlockState::Live => shown.push((block.address, block.bytes, block.requested_bytes)),
                BlockState::Pending => assert_eq!(block.address, pending_address),
                _ => assert_eq!(block.requested_bytes, 0),
            }
        }
        assert_eq!(address, view.address + view.bytes);
        let kind = if setup.is_vmm() { SegmentKind::Mapped } else { SegmentKind::Plain };
        assert_eq!(view.kind, kind);
    }
    assert!(views.windows(2).all(|pair| pair[0].address + pair[0].bytes <= pair[1].address));
    let mut expected: Vec<_> =
        live.iter().map(|block| (block.address, block.bytes, block.requested)).collect();
    expected.sort_unstable();
    assert_eq!(shown, expected);
    live.into_iter().for_each(|block| program.free(block));
    program.end();
}

fn live(allocator: &Allocator) -> u64 {
    allocator.stats().all.allocations.current
}

fn an_allocation_frees_itself(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let allocator = &program.allocator;
    let block = allocator.allocate(lane.id, 700).unwrap();
    assert_eq!((block.bytes(), block.stream(), live(allocator)), (1024, lane.id, 1));
    block.record_stream(other.id).unwrap();
    drop(block);
    assert_eq!(live(allocator), 0);
    // It keeps its allocator alive, and outlives every other handle to it.
    let block = allocator.allocate(lane.id, 700).unwrap();
    let device = program.device.clone();
    drop(program);
    if setup.is_caching() {
        // Ends the streams as well; the driver's own pools need the block's for the free.
        assert!(device.emptiness().is_err());
    }
    drop(block);
    assert_eq!(device.emptiness(), Ok(()));
    assert_eq!(device.verdict(), Ok(()));
}

fn an_address_taken_out_is_the_programs_to_free(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let address = program.allocator.allocate(lane.id, 3 * MIB).unwrap().into_address();
    assert_eq!(live(&program.allocator), 1);
    program.allocator.free(address).unwrap();
    assert_eq!(live(&program.allocator), 0);
    // Freed behind its owner's back: the owner's drop finds nothing to free.
    let block = program.allocator.allocate(lane.id, 3 * MIB).unwrap();
    program.allocator.free(block.address()).unwrap();
    drop(block);
    assert_eq!(live(&program.allocator), 0);
    program.end();
}

fn clones_are_the_same_allocator(setup: &Setup) {
    let program = setup.program();
    let clone = program.allocator.clone();
    let lane = program.lane();
    let block = program.allocate(lane, MIB);
    assert_eq!(clone.stats(), program.allocator.stats());
    assert_eq!(clone.cross_stream(), program.allocator.cross_stream());
    program.device.taken_back(block.address);
    clone.free(block.address).unwrap();
    assert_eq!(live(&program.allocator), 0);
    drop(clone);
    program.end();
}
