//! What is shown: statistics, snapshots, and the owned [`Allocation`](drystone::Allocation).

use drystone::{Allocator, BlockState, SegmentKind};

use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    statistics_follow_every_step,
    peaks_can_be_reset,
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
        assert_eq!(stats.scales[0].allocations.current, small);
        assert_eq!(stats.scales[1].allocations.current, live.len() as u64 - small);
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
    assert!(device.emptiness().is_err());
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
