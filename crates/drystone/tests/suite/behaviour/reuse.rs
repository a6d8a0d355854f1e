//! Reuse: on the same stream without a driver call, on others as the policy says.

use drystone::CrossStream;

use crate::program::Program;
use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    a_hit_makes_no_driver_call,
    freed_neighbours_merge_and_serve_a_larger_request,
    small_blocks_do_not_pin_large_ones,
    cross_stream_never_takes_nothing_until_it_was_given_back,
    cross_stream_passed_takes_what_a_fence_has_passed,
    cross_stream_wait_takes_at_once_and_orders_on_the_device,
    b61_order_reaches_a_third_stream,
    trim_gives_everything_unused_back,
    trim_passed_never_waits,
);

fn with_policy(setup: &Setup, cross_stream: CrossStream) -> Program {
    setup.program_with(setup.options().with_cross_stream(cross_stream))
}

/// Where the driver caches, each hit is a call, and none takes memory.
fn a_hit_makes_no_driver_call(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let sizes = [700, 40_000, 3 * MIB, 12 * MIB];
    // Both at once, or the second would borrow from the first.
    let blocks = [lane, other].map(|lane| sizes.map(|bytes| program.allocate(lane, bytes)));
    blocks.into_iter().flatten().for_each(|block| program.free(block));
    let (calls, held) = (program.device.calls(), program.reserved());
    let mut first = None;
    for _ in 0..50 {
        for lane in [lane, other] {
            let blocks = sizes.map(|bytes| program.allocate(lane, bytes));
            let addresses = blocks.each_ref().map(|block| block.address);
            if lane.id == other.id {
                assert_eq!(*first.get_or_insert(addresses), addresses, "a steady program settles");
            }
            blocks.into_iter().for_each(|block| program.free(block));
        }
    }
    let hits = if setup.is_caching() { 0 } else { 50 * 2 * 2 * sizes.len() as u64 };
    assert_eq!((program.device.calls() - calls, program.reserved()), (hits, held));
    program.end();
}

fn freed_neighbours_merge_and_serve_a_larger_request(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let blocks: Vec<_> = (0..4).map(|_| program.allocate(lane, 2 * MIB)).collect();
    let start = blocks[0].address;
    let held = program.reserved();
    // Joined with nothing, with the block before, with the one after, and with both.
    let [a, b, c, d]: [_; 4] = blocks.try_into().unwrap();
    [b, d, a, c].into_iter().for_each(|block| program.free(block));
    program.check();
    // Where the driver joins them, it may prefer others.
    let whole = program.allocate(lane, 8 * MIB);
    assert!(whole.address == start || !setup.is_caching());
    assert_eq!(program.reserved(), held);
    program.free(whole);
    program.end();
}

fn small_blocks_do_not_pin_large_ones(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let large = program.allocate(lane, 64 * MIB);
    let small = program.allocate(lane, 512);
    program.free(large);
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), setup.small_segment_bytes());
    program.free(small);
    program.end();
}

fn cross_stream_never_takes_nothing_until_it_was_given_back(setup: &Setup) {
    let bytes = setup.unit_bytes().max(12 * MIB);
    let program = with_policy(setup, CrossStream::Never);
    let (one, other) = (program.lane(), program.lane());
    let block = program.allocate(one, bytes);
    let held = program.reserved();
    program.free(block);
    program.device.pass(1000);
    let block = program.allocate(other, bytes);
    assert_eq!(program.reserved(), 2 * held);
    assert_eq!(program.allocator.stats().cross_stream_reuses, 0);
    program.free(block);
    // At the limit, what the one holds unused goes back to the device, and from there to the other.
    program.allocator.set_limit(2 * held);
    let block = program.allocate(other, 2 * bytes);
    assert!(program.reserved() <= 2 * held);
    program.free(block);
    program.end();
}

fn cross_stream_passed_takes_what_a_fence_has_passed(setup: &Setup) {
    let bytes = setup.unit_bytes().max(12 * MIB);
    let program = with_policy(setup, CrossStream::Passed);
    let (one, other) = (program.lane(), program.lane());
    let block = program.allocate(one, bytes);
    let (address, held) = (block.address, program.reserved());
    program.device.work(one.stream, 500);
    program.free(block);
    let early = program.allocate(other, bytes);
    assert_eq!(program.reserved(), 2 * held, "no fence has passed: it grows");
    program.allocator.retire_stream(one.id).unwrap();
    program.device.pass(2000);
    let late = program.allocate(other, bytes);
    assert_eq!(late.address, address);
    assert_eq!(program.reserved(), 2 * held);
    assert_eq!(program.allocator.stats().cross_stream_reuses, u64::from(setup.is_caching()));
    program.free(early);
    program.free(late);
    program.end();
}

fn cross_stream_wait_takes_at_once_and_orders_on_the_device(setup: &Setup) {
    let bytes = setup.unit_bytes().max(12 * MIB);
    let program = with_policy(setup, CrossStream::Wait);
    let (one, other) = (program.lane(), program.lane());
    let block = program.allocate(one, bytes);
    let (address, held) = (block.address, program.reserved());
    program.device.work(one.stream, 1_000_000);
    program.free(block);
    let calls = program.device.calls();
    let block = program.allocate(other, bytes);
    if !setup.is_caching() {
        // The driver's own pools take new memory first, as long as there is any.
        assert_eq!(program.reserved(), 2 * held);
        program.free(block);
        return program.end();
    }
    assert_eq!((block.address, program.reserved()), (address, held));
    // An event is created, recorded and waited for; whether it is ready may be asked in between.
    assert!((3..=4).contains(&(program.device.calls() - calls)));
    program.free(block);
    // The way back: the event is there already.
    let calls = program.device.calls();
    let block = program.allocate(one, bytes);
    assert_eq!(block.address, address);
    assert!(program.device.calls() - calls <= 5, "{}", program.device.calls() - calls);
    program.free(block);
    program.end();
}

/// Three streams: the second takes the first's block, the third takes it from the second. The
/// third is ordered after the first through the second only.
fn b61_order_reaches_a_third_stream(setup: &Setup) {
    let bytes = setup.unit_bytes().max(12 * MIB);
    let program = with_policy(setup, CrossStream::Wait);
    let lanes = [program.lane(), program.lane(), program.lane()];
    let mut address = None;
    for round in 0..3 {
        for lane in lanes {
            let block = program.allocate(lane, bytes);
            // The driver's own pools take new memory first, as long as there is any.
            let first = *address.get_or_insert(block.address);
            assert!(first == block.address || !setup.is_caching(), "round {round}");
            program.device.work(lane.stream, 10_000);
            program.free(block);
            program.check();
        }
    }
    program.end();
}

fn trim_gives_everything_unused_back(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let kept = program.allocate(lane, 12 * MIB);
    let held = program.reserved();
    let freed = [
        program.allocate(other, 12 * MIB),
        program.allocate(other, 100 * MIB),
        program.allocate(other, 100),
    ];
    let used = program.allocate(lane, 30 * MIB);
    program.use_on(&used, other);
    program.device.work(other.stream, 3000);
    let gain = program.reserved() - held;
    freed.into_iter().for_each(|block| program.free(block));
    program.free(used);
    assert_eq!(program.allocator.trim().unwrap(), gain, "waits for what is pending, too");
    assert_eq!(program.reserved(), held);
    assert_eq!(program.allocator.trim().unwrap(), 0);
    program.check();
    program.free(kept);
    assert_eq!(program.allocator.trim().unwrap(), held);
    assert!(program.allocator.snapshot().is_empty(), "addresses go back, too");
    program.end();
}

fn trim_passed_never_waits(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let pending = program.allocate(lane, 12 * MIB);
    program.use_on(&pending, other);
    program.device.work(other.stream, 1_000_000);
    program.free(pending);
    let running = program.allocate(lane, 24 * MIB);
    program.device.work(lane.stream, 1_000_000);
    program.free(running);
    let held = program.reserved();
    assert_eq!(program.allocator.trim_passed().unwrap(), 0);
    assert_eq!(program.reserved(), held);
    program.check();
    program.device.pass(2_000_000);
    program.allocator.trim_passed().unwrap();
    assert_eq!(program.allocator.stats().all.active_bytes.current, 0, "no longer pending");
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.end();
}
