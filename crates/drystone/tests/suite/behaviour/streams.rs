//! Streams: a key, never a handle. They come, go, and have their handles recycled.

use drystone::driver::Stream;
use drystone::{AllocateError, PoolId, RequestError};

use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    the_same_stream_has_the_same_key,
    a_retired_stream_leaves_its_memory_to_others,
    a_retired_stream_is_unknown,
    b01_free_blocks_of_a_destroyed_stream_are_safe,
    b02_a_recycled_handle_is_another_stream,
    b02_b06_uses_on_a_stream_destroyed_unannounced_are_waited_for,
    b14_blocks_outlive_their_stream,
    streams_that_come_and_go_hold_nothing,
    streams_that_go_unannounced_leave_their_memory_to_the_next,
    b03_streams_and_pools_of_another_allocator_are_unknown,
);

fn the_same_stream_has_the_same_key(setup: &Setup) {
    let program = setup.program();
    let (one, other) = (program.lane(), program.lane());
    assert_ne!(one.id, other.id);
    assert_eq!(program.lane_of(one.stream).id, one.id);
    let default = program.default_lane();
    assert_eq!(program.lane_of(Stream::DEFAULT).id, default.id);
    assert!(default.id != one.id && default.id != other.id);
    let block = program.allocate(default, MIB);
    program.free(block);
    program.end();
}

fn a_retired_stream_leaves_its_memory_to_others(setup: &Setup) {
    let program = setup.program();
    let bytes = setup.unit_bytes().max(12 * MIB);
    let (gone, lane) = (program.lane(), program.lane());
    let block = program.allocate(gone, bytes);
    let (address, held) = (block.address, program.reserved());
    program.device.work(gone.stream, 1000);
    program.free(block);
    program.allocator.retire_stream(gone.id).unwrap();
    program.device.destroy_stream(gone.stream);
    program.check();
    let block = program.allocate(lane, bytes);
    // The driver's own pools take new memory before any that somebody has to wait for.
    if setup.is_caching() {
        assert_eq!((block.address, program.reserved()), (address, held));
    }
    program.free(block);
    program.end();
}

fn a_retired_stream_is_unknown(setup: &Setup) {
    let program = setup.program();
    let (gone, lane) = (program.lane(), program.lane());
    let block = program.allocate(lane, MIB);
    program.allocator.retire_stream(gone.id).unwrap();
    let error = program.try_allocate(gone, MIB).unwrap_err();
    assert!(matches!(error, AllocateError::Request(RequestError::Stream(_))), "{error}");
    assert!(error.to_string().contains("was never added or is retired"), "{error}");
    assert!(program.allocator.record_stream(block.address, gone.id).is_err());
    assert!(program.allocator.retire_stream(gone.id).is_err());
    // The stream itself is still there: made known again it is a stream like any other.
    let again = program.lane_of(gone.stream);
    assert_ne!(again.id, gone.id);
    let other = program.allocate(again, MIB);
    program.free(other);
    program.free(block);
    program.end();
}

fn b01_free_blocks_of_a_destroyed_stream_are_safe(setup: &Setup) {
    for is_announced in [true, false] {
        let program = setup.program();
        let gone = if is_announced { program.lane() } else { program.passing_lane() };
        let lane = program.lane();
        let blocks = [program.allocate(gone, 12 * MIB), program.allocate(gone, 700)];
        program.device.work(gone.stream, 1_000_000);
        blocks.into_iter().for_each(|block| program.free(block));
        if is_announced {
            program.allocator.retire_stream(gone.id).unwrap();
        }
        program.device.destroy_stream(gone.stream);
        let blocks = [program.allocate(lane, 12 * MIB), program.allocate(lane, 700)];
        program.check();
        blocks.into_iter().for_each(|block| program.free(block));
        program.allocator.trim().unwrap();
        assert_eq!(program.reserved(), 0);
        program.end();
    }
}

fn b02_a_recycled_handle_is_another_stream(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let mut keys = Vec::new();
    for round in 0..20 {
        let gone = program.lane();
        assert!(!keys.contains(&gone.id), "round {round}");
        keys.push(gone.id);
        let (own, used) = (program.allocate(gone, 3 * MIB), program.allocate(lane, 3 * MIB));
        program.use_on(&used, gone);
        program.device.work(gone.stream, 400);
        program.free(own);
        program.free(used);
        program.allocator.retire_stream(gone.id).unwrap();
        program.device.destroy_stream(gone.stream);
        program.device.pass(100);
        program.check();
    }
    program.end();
}

/// The program never said that the stream goes, and its handle is another stream's by the time the
/// block is freed: that stream's progress says nothing about the block.
fn b02_b06_uses_on_a_stream_destroyed_unannounced_are_waited_for(setup: &Setup) {
    let program = setup.program();
    let (lane, gone) = (program.lane(), program.passing_lane());
    let block = program.allocate(lane, 12 * MIB);
    program.use_on(&block, gone);
    program.device.work(gone.stream, 1_000_000);
    program.device.destroy_stream(gone.stream);
    let heir = program.lane();
    assert_ne!(heir.id, gone.id);
    program.free(block);
    program.device.pass(1000);
    let other = program.allocate(lane, 12 * MIB);
    // Other memory, or the device was waited for.
    program.check();
    program.free(other);
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0, "once the device was idle it is memory like any other");
    program.end();
}

fn b14_blocks_outlive_their_stream(setup: &Setup) {
    for is_announced in [true, false] {
        let program = setup.program();
        // The driver's own pools free in the order of the block's stream.
        if !is_announced && !setup.is_caching() {
            continue;
        }
        let gone = if is_announced { program.lane() } else { program.passing_lane() };
        let lane = program.lane();
        let blocks = [program.allocate(gone, 12 * MIB), program.allocate(gone, 700)];
        program.use_on(&blocks[0], lane);
        program.device.work(gone.stream, 1000);
        if is_announced {
            program.allocator.retire_stream(gone.id).unwrap();
        }
        program.device.destroy_stream(gone.stream);
        program.check();
        blocks.into_iter().for_each(|block| program.free(block));
        program.check();
        let more = program.allocate(lane, 12 * MIB);
        program.free(more);
        program.end();
    }
}

fn streams_that_come_and_go_hold_nothing(setup: &Setup) {
    let program = setup.program();
    let mut held = None;
    for round in 0..50 {
        let lane = program.lane();
        let block = program.allocate(lane, 12 * MIB);
        program.free(block);
        program.allocator.retire_stream(lane.id).unwrap();
        program.device.destroy_stream(lane.stream);
        program.device.pass(1000);
        let reserved = program.reserved();
        assert_eq!(*held.get_or_insert(reserved), reserved, "round {round}");
    }
    program.check();
    program.end();
}

/// Their handle comes again as another stream's: more is not needed to know that they are gone.
fn streams_that_go_unannounced_leave_their_memory_to_the_next(setup: &Setup) {
    let program = setup.program();
    let bytes = setup.unit_bytes().max(12 * MIB);
    for round in 0..50 {
        let lane = program.passing_lane();
        let block = program.allocate(lane, bytes);
        program.device.work(lane.stream, 1000);
        program.free(block);
        program.device.destroy_stream(lane.stream);
        let (reserved, most) = (program.reserved(), bytes + setup.unit_bytes());
        assert!(reserved <= most, "round {round}: {reserved} bytes held, of {most}");
        program.check();
    }
    let known = program.allocator.pool_stream_stats().len();
    assert!(known <= 8, "{known} streams are remembered");
    program.end();
}

/// Both allocators have a stream and a pool at the same place of their tables.
fn b03_streams_and_pools_of_another_allocator_are_unknown(setup: &Setup) {
    let (program, other) = (setup.program(), setup.program());
    let (lane, foreign) = (program.lane(), other.lane());
    let (pool, foreign_pool) = (program.allocator.add_pool(), other.allocator.add_pool());
    let block = program.allocate(lane, MIB);
    assert!(program.allocator.record_stream(block.address, foreign.id).is_err());
    let refused = [(PoolId::DEFAULT, foreign.id), (foreign_pool, lane.id)];
    for (pool, stream) in refused {
        let error = program.allocator.allocate_raw(pool, stream, MIB).unwrap_err();
        assert!(matches!(error, AllocateError::Request(_)), "{error}");
    }
    assert!(program.allocator.retire_stream(foreign.id).is_err());
    assert!(program.allocator.release_pool(foreign_pool).is_err());
    program.allocator.release_pool(pool).unwrap();
    other.allocator.release_pool(foreign_pool).unwrap();
    program.free(block);
    program.end();
    other.end();
}
