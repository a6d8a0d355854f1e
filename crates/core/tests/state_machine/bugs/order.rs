//! Captured and stream order (promise P2).

use drystone_core::{BlockState, Captured, CrossStream, Fence, StateMachine, StreamError};

use super::{GRANULE, MIB, world};
use crate::world::Fate;

#[test]
fn b01_b14_a_block_outlives_its_stream() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Passed);
    let address = world.allocate(a, GRANULE).unwrap();
    world.retire_stream(a, Fate::Complete);
    world.free(address);
    // The stream is gone, its last fence is not passed: nobody else gets the block.
    assert_eq!(world.allocate(b, GRANULE), None);
    world.pass(a);
    assert_eq!(world.allocate(b, GRANULE), Some(address));
    world.finish();
}

#[test]
fn b01_b14_a_block_outlives_its_stream_and_is_waited_for() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Wait);
    let address = world.allocate(a, GRANULE).unwrap();
    world.retire_stream(a, Fate::Complete);
    world.free(address);
    // The last fence was recorded before the stream went: it can be waited for on the device.
    assert_eq!(world.allocate(b, GRANULE), Some(address));
    world.finish();
}

#[test]
fn b14_without_a_last_fence_only_an_idle_device_frees() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Wait);
    let address = world.allocate(a, GRANULE).unwrap();
    world.retire_stream(a, Fate::Fail { after: 0, stop: None });
    world.free(address);
    world.pass(a);
    assert_eq!(world.allocate(b, GRANULE), None);
    world.synchronize(Fate::Complete);
    assert_eq!(world.allocate(b, GRANULE), Some(address));
    world.finish();
}

#[test]
fn b14_a_stream_that_is_done_is_not_waited_for() {
    let (mut world, [a, b, c]) = world(GRANULE, CrossStream::Never);
    let address = world.allocate(a, MIB).unwrap();
    let other = world.allocate(a, MIB).unwrap();
    for used in [address, other] {
        world.record_stream(used, b);
    }
    world.record_stream(other, c);
    world.retire_stream(b, Fate::Complete);
    // Waiting for an idle device in vain issues nothing on a stream that is gone.
    world.synchronize(Fate::Fail { after: 0, stop: None });
    world.pass(b);
    // Of its uses only the one on c is left, and nothing of the first block's.
    world.free(address);
    assert_eq!(world.allocate(a, MIB), Some(address));
    world.free(other);
    world.pass(c);
    assert_eq!(world.allocate(a, MIB), Some(other));
    world.finish();
}

#[test]
fn streams_that_share_nothing_get_memory_once_the_device_was_idle() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Never);
    let address = world.allocate(a, GRANULE).unwrap();
    world.free(address);
    assert_eq!(world.allocate(b, GRANULE), None);
    world.synchronize(Fate::Complete);
    // Not the block, but the granule behind it.
    let other = world.allocate(b, GRANULE).unwrap();
    assert_ne!(other, address);
    assert_eq!(world.heap.stats().granule_remaps, 1);
    assert_eq!(world.heap.stats().cross_stream_reuses, 0);
    world.finish();
}

#[test]
fn b05_a_block_is_published_only_after_its_fence_was_recorded() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Wait);
    let first = world.allocate(a, 512).unwrap();
    world.record_stream(first, b);
    world.free(first);
    let address = world.allocate(a, MIB).unwrap();
    world.record_stream(address, b);
    world.free_with(address, Fate::Open { done: 0 });
    // The fence of the first block passes: an old success on the same stream.
    world.pass(b);
    assert_eq!(world.allocate(a, MIB), None);
    world.resume(0, Fate::Complete);
    world.verify();
    assert_eq!(world.allocate(a, MIB), None);
    world.pass(b);
    assert!(world.allocate(a, MIB).is_some());
    world.finish();
}

#[test]
fn b08_a_block_whose_use_was_not_recorded_waits_for_an_idle_device() {
    let (mut world, [a, b, c]) = world(GRANULE, CrossStream::Wait);
    let address = world.allocate(a, GRANULE).unwrap();
    world.record_stream(address, b);
    world.record_stream(address, c);
    // The fence on b is recorded, the one on c is not.
    world.free_with(address, Fate::Fail { after: 1, stop: Some(0) });
    world.verify();
    assert_eq!(world.heap.stats().quarantined_bytes, GRANULE);
    for stream in [a, b, c] {
        world.pass(stream);
        assert_eq!(world.allocate(stream, GRANULE), None);
        assert!(!world.trim(Fate::Complete));
    }
    world.synchronize(Fate::Fail { after: 0, stop: None });
    assert_eq!(world.allocate(a, GRANULE), None);
    world.synchronize(Fate::Complete);
    assert_eq!(world.heap.stats().quarantined_bytes, 0);
    assert_eq!(world.allocate(a, GRANULE), Some(address));
    world.finish();
}

#[test]
fn b13_memory_in_use_is_not_given_back() {
    let (mut world, [a]) = world(GRANULE, CrossStream::Wait);
    let address = world.allocate(a, GRANULE).unwrap();
    world.free(address);
    assert!(!world.trim(Fate::Complete), "the device may still be using it");
    world.synchronize(Fate::Complete);
    assert!(world.trim(Fate::Complete));
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn b29_a_stalled_stream_holds_up_nobody_else() {
    let (mut world, [a, b, c]) = world(GRANULE, CrossStream::Never);
    let stalled = world.allocate(a, MIB).unwrap();
    let other = world.allocate(a, MIB).unwrap();
    world.record_stream(stalled, b);
    world.record_stream(other, c);
    world.free(stalled);
    world.free(other);
    assert_eq!(world.allocate(a, MIB), None);
    world.pass(c);
    assert_eq!(world.allocate(a, MIB), Some(other));
    assert_eq!(world.allocate(a, MIB), None);
    world.pass(b);
    assert_eq!(world.allocate(a, MIB), Some(stalled));
    world.finish();
}

#[test]
fn b29_an_older_fence_takes_nothing_back() {
    let (mut world, [a, b]) = world(u64::MAX, CrossStream::Wait);
    let [first, second] = [512; 2].map(|bytes| world.allocate(b, bytes).unwrap());
    let large = world.allocate(a, GRANULE).unwrap();
    world.record_stream(first, a);
    world.free(first);
    world.free(large);
    world.record_stream(second, a);
    world.free(second);
    world.device.clocks.progress(world.device.clocks.number(a), usize::MAX);
    let passed = world.device.clocks.passed(world.device.clocks.number(a));
    assert_eq!(passed.len(), 2);
    passed.into_iter().rev().for_each(|fence| world.tell(fence));
    assert!(world.trim(Fate::Complete));
    world.finish();
}

#[test]
fn b30_pending_and_quarantined_memory_goes_back_after_one_synchronisation() {
    let (mut world, [a, b, c]) = world(u64::MAX, CrossStream::Wait);
    // Every stream's block is used by the other two, so that whichever stream is looked at first
    // frees nothing by itself.
    for (own, others) in [(a, [b, c]), (b, [c, a]), (c, [a, b])] {
        for fate in [Fate::Complete, Fate::Fail { after: 1, stop: None }] {
            let address = world.allocate(own, 3 * MIB).unwrap();
            others.iter().for_each(|&other| world.record_stream(address, other));
            world.free_with(address, fate);
        }
    }
    world.synchronize(Fate::Complete);
    world.verify();
    while world.trim(Fate::Complete) {
        world.verify();
    }
    assert_eq!(world.device.held_bytes(), 0);
    world.finish();
}

#[test]
fn b47_ids_of_streams_and_pools_do_not_come_back() {
    let (mut world, [a]) = world(u64::MAX, CrossStream::Wait);
    let address = world.allocate(a, 512).unwrap();
    world.retire_stream(a, Fate::Complete);
    world.pass(a);
    let successor = world.add_stream();
    // The position is taken over, the name is not; the free lists are.
    assert_eq!(successor.index(), a.index());
    assert_ne!(successor, a);
    let unknown = StreamError::Unknown { stream: a };
    assert_eq!(world.heap.allocate(drystone_core::PoolId::DEFAULT, a, 512), Err(unknown.into()));
    assert_eq!(world.heap.record_stream(address, a), Err(unknown.into()));
    assert_eq!(world.heap.retire_stream(a).map(|_| ()), Err(unknown));
    // A fence of the old stream says nothing about the new one.
    let used = world.allocate(successor, 512).unwrap();
    world.free(used);
    world.heap.fence_passed(Fence { stream: a, point: 1000 });
    assert!(!world.trim(Fate::Complete));
    let pool = world.add_pool();
    world.release_pool(1);
    assert_ne!(world.add_pool(), pool);
    world.release_pool(1);
    world.allocate_with(1, successor, 512, Captured::None, (0, Fate::Complete));
    world.finish();
}

#[test]
fn b61_a_third_stream_waits_for_the_donor_through_the_second() {
    let (mut world, [a, b, c]) = world(GRANULE, CrossStream::Wait);
    let address = world.allocate(a, GRANULE).unwrap();
    world.free(address);
    // b waits for a, which is stalled; then c takes the block from b, of which nothing has passed.
    assert_eq!(world.allocate(b, GRANULE), Some(address));
    world.free(address);
    assert_eq!(world.allocate(c, GRANULE), Some(address));
    world.free(address);
    assert_eq!(world.heap.stats().cross_stream_reuses, 2);
    // The way back, too: a's own work of long ago is not all it has to wait for.
    assert_eq!(world.allocate(a, GRANULE), Some(address));
    world.finish();
}

/// Points of two streams do not compare: what b leaves over is not b's by a's point, which b passed
/// long ago.
#[test]
fn b61_what_the_second_leaves_over_is_waited_for_through_it() {
    let (mut world, [a, b, c]) = world(GRANULE, CrossStream::Wait);
    let (used, whole) = (world.allocate(a, 512).unwrap(), world.allocate(a, MIB).unwrap());
    let filler = world.allocate(a, MIB - 512);
    assert!(filler.is_some());
    world.record_stream(used, b);
    world.free(used);
    world.pass(b);
    assert_eq!(world.allocate(a, 512), Some(used));
    world.free(whole);
    assert_eq!(world.allocate(b, MIB / 2), Some(whole));
    assert_eq!(world.allocate(c, MIB / 2), Some(whole + MIB / 2));
    world.finish();
}

#[test]
fn b61_joined_blocks_of_two_streams_keep_both_orders() {
    let (mut world, [a, b, c]) = world(GRANULE, CrossStream::Wait);
    let low = world.allocate(a, MIB).unwrap();
    let high = world.allocate(a, MIB).unwrap();
    world.free(high);
    assert_eq!(world.allocate(b, MIB), Some(high));
    world.free(low);
    world.free(high);
    // No block is free that serves all of it on any one stream: a waits for b and joins both.
    assert_eq!(world.allocate(a, MIB), Some(low));
    world.free(low);
    assert_eq!(world.allocate(c, MIB), Some(low));
    assert_eq!(world.allocate(c, MIB), Some(high));
    world.finish();
}

#[test]
fn b61_a_run_of_blocks_is_waited_for_up_to_its_last_use() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Wait);
    let quarter = MIB / 4;
    let [first, second, third] = [quarter; 3].map(|bytes| world.allocate(a, bytes).unwrap());
    let small = [512; 3].map(|bytes| world.allocate(b, bytes).unwrap());
    let filler = [MIB, quarter - 1536].map(|bytes| world.allocate(a, bytes));
    assert!(filler.iter().all(Option::is_some));
    // Two blocks of a around one of b; a came some fences further between its two frees.
    world.free(second);
    assert_eq!(world.allocate(b, quarter), Some(second));
    world.free(first);
    for address in small {
        world.record_stream(address, a);
        world.free(address);
    }
    world.free(second);
    world.free(third);
    assert_eq!(world.allocate(b, 3 * quarter), Some(first));
    world.finish();
}

#[test]
fn b64_a_block_goes_back_to_its_own_stream_whoever_used_it_last() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Never);
    let address = world.allocate(a, MIB).unwrap();
    world.record_stream(address, b);
    world.free(address);
    world.pass(b);
    let segments = world.heap.snapshot();
    let block = &segments[0].blocks[0];
    assert_eq!((block.state, block.stream), (BlockState::Free, a.index()));
    assert_eq!(world.allocate(b, MIB), None);
    assert_eq!(world.allocate(a, MIB), Some(address));
    world.finish();
}

/// Without a wait, a miss records the fence by which the next one can tell.
#[test]
fn a_request_that_may_not_wait_finds_the_block_once_its_fence_passed() {
    let (mut world, [a, b]) = world(GRANULE, CrossStream::Passed);
    let address = world.allocate(a, GRANULE).unwrap();
    world.free(address);
    assert_eq!(world.allocate(b, GRANULE), None, "nothing is known of the last use yet");
    world.pass(a);
    assert_eq!(world.allocate(b, GRANULE), Some(address));
    world.finish();
}
