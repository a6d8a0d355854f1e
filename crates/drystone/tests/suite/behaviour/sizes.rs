//! Sizes: every one is served whole, or refused with its reason. Never a panic (P5), never two
//! owners (I1).

use drystone::{AllocateError, PoolId, RequestError, SizeError};

use crate::program::Program;
use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    b36_sizes_round_up_and_blocks_never_overlap,
    b35_b36_what_cannot_be_served_is_refused_with_its_reason,
    b39_zero_bytes_is_empty_any_number_of_times,
    b37_a_freed_block_never_serves_a_larger_request,
);

/// Around every edge there is: quantum, classes, granules, segments, bins.
fn edges(setup: &Setup) -> Vec<u64> {
    let edges = [512, 64 * 512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, setup.granule_bytes, 96 * MIB];
    let mut sizes: Vec<u64> = edges.iter().flat_map(|&edge| [edge - 1, edge, edge + 1]).collect();
    sizes.extend([1, 2, 255, 256, 257, 3 * 512, 33_333, 5_000_000]);
    sizes
}

fn b36_sizes_round_up_and_blocks_never_overlap(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    for order in [false, true] {
        let mut sizes = edges(setup);
        if order {
            sizes.reverse();
        }
        let blocks: Vec<_> = sizes.iter().map(|&bytes| program.allocate(lane, bytes)).collect();
        for (at, block) in blocks.iter().enumerate() {
            assert_eq!(block.address % 512, 0);
            assert_eq!(block.bytes % 512, 0);
            assert!(block.bytes - block.requested < MIB + 512, "{block:?}");
            assert!(blocks[at + 1..].iter().all(|other| !block.overlaps(other)), "{block:?}");
        }
        program.check();
        blocks.into_iter().for_each(|block| program.free(block));
        program.check();
    }
    assert_eq!(
        program.allocator.trim().unwrap(),
        program.allocator.stats().all.reserved_bytes.peak
    );
    assert_eq!(program.reserved(), 0);
    program.end();
}

fn refusal(program: &Program, bytes: u64) -> AllocateError {
    let lane = program.default_lane();
    let error = program.try_allocate(lane, bytes).unwrap_err();
    let reserved = program.reserved();
    assert_eq!(reserved, 0, "{bytes} bytes were refused, {reserved} are held");
    program.check();
    error
}

fn b35_b36_what_cannot_be_served_is_refused_with_its_reason(setup: &Setup) {
    let program = setup.program();
    assert_eq!(refusal(&program, 0), AllocateError::Request(RequestError::Size(SizeError::Zero)));
    // More than the device has, up to the largest block there is.
    let device_bytes = program.device.driver().info().total_bytes;
    let mut sizes = vec![device_bytes + 1];
    sizes.extend((device_bytes.ilog2() + 1..=47).map(|power| 1 << power));
    sizes.extend([(1 << 47) - 1, (1 << 47) - 511]);
    for bytes in sizes {
        match refusal(&program, bytes) {
            AllocateError::OutOfMemory(error) => assert_eq!(error.requested_bytes, bytes),
            error => panic!("{bytes} bytes: {error}"),
        }
    }
    for bytes in [(1 << 47) + 1, 1 << 48, 1 << 63, u64::MAX - 511, u64::MAX - 1, u64::MAX] {
        let expected = AllocateError::Request(RequestError::Size(SizeError::TooLarge { bytes }));
        assert_eq!(refusal(&program, bytes), expected);
    }
    program.end();
}

fn b39_zero_bytes_is_empty_any_number_of_times(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let empty: Vec<_> = (0..3).map(|_| program.allocator.allocate(lane.id, 0).unwrap()).collect();
    for one in &empty {
        assert_eq!((one.address(), one.bytes()), (0, 0));
        one.record_stream(program.default_lane().id).unwrap();
    }
    assert_eq!(program.allocator.stats().all.allocations.total, 0);
    drop(empty);
    assert!(program.allocator.free(0).is_err(), "nobody owns address 0");
    assert_eq!(program.allocator.allocate(lane.id, 0).unwrap().into_address(), 0);
    assert!(program.allocator.allocate_raw(PoolId::DEFAULT, lane.id, 0).is_err());
    program.end();
}

fn b37_a_freed_block_never_serves_a_larger_request(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    for bytes in edges(setup) {
        // A block on both sides keeps the freed one from growing by merging.
        let (left, block, right) = (
            program.allocate(lane, bytes),
            program.allocate(lane, bytes),
            program.allocate(lane, bytes),
        );
        let size = block.bytes;
        program.free(block);
        let larger = program.allocate(lane, size + 1);
        assert!(larger.bytes > size);
        [left, right, larger].into_iter().for_each(|block| program.free(block));
        program.check();
    }
    program.end();
}
