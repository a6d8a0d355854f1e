//! The checks themselves are checked: one thing is corrupted, and `check` names the invariant.

use super::*;
use crate::counters::{ClassCounters, Count, Meter};
use crate::size::QUANTUM;
use crate::space::bin::Bin;
use crate::{
    Committed, Config, CrossStream, Fence, Freed, Outcome, PoolId, Reuse, SizeClass, StateMachine,
    Step, StreamId,
};

const MIB: u64 = 1 << 20;

/// A heap with a live block, a free one before it, a pending one, and free, unmapped, stranded and
/// quarantined memory.
struct Sample {
    heap: Heap,
    live: BlockIndex,
    free: BlockIndex,
    pending: BlockIndex,
    used_by: StreamId,
}

fn allocate(heap: &mut Heap, pool: PoolId, stream: StreamId, bytes: u64) -> BlockIndex {
    loop {
        let grant = match heap.request(pool, stream, bytes, Reuse::OwnStream).unwrap() {
            Outcome::Granted(grant) => grant,
            Outcome::Plan(plan) => {
                // Segments far apart, in the order they are made.
                let address = (heap.space.segments.iter().count() as u64 + 1) << 40;
                match heap.commit(plan, address) {
                    Committed::Granted(grant) => grant,
                    _ => continue,
                }
            }
        };
        return heap.space.map.find(&heap.space.blocks, grant.address).unwrap();
    }
}

fn free(heap: &mut Heap, index: BlockIndex, succeeds: bool) {
    let address = heap.space.blocks[index].address;
    if let Freed::Plan(plan) = heap.free(address).unwrap() {
        if succeeds {
            heap.commit(*plan, 0);
        } else {
            heap.abandon(*plan, 0);
        }
    }
}

fn sample() -> Sample {
    let mut heap = Heap::new(Config {
        kind: SegmentKind::Mapped,
        granule_bytes: 2 * MIB,
        device_bytes: 64 * MIB,
        limit_bytes: u64::MAX,
        cross_stream: CrossStream::Wait,
        remaps: true,
        left_per_handle: u64::MAX,
        moves: true,
        is_integrated: false,
        prefer: crate::Prefer::Memory,
    });
    let (own, used_by) = (heap.add_stream(), heap.add_stream());
    let private = heap.add_pool();
    allocate(&mut heap, private, own, 512);
    allocate(&mut heap, PoolId::DEFAULT, used_by, 3 * MIB);
    let [before, live, pending, quarantined] =
        [3, 2, 2, 2].map(|mib| allocate(&mut heap, PoolId::DEFAULT, own, mib * MIB));
    for index in [pending, quarantined] {
        heap.record_stream(heap.space.blocks[index].address, used_by).unwrap();
    }
    free(&mut heap, before, true);
    free(&mut heap, pending, true);
    free(&mut heap, quarantined, false);
    // A plan that fails leaves two granules idle, one of them still mapped.
    let request = heap.request(PoolId::DEFAULT, own, 9 * MIB, Reuse::OwnStream).unwrap();
    let Outcome::Plan(plan) = request else { panic!("room for 9 MiB") };
    assert!(matches!(plan.steps()[..3], [Step::Create { .. }, Step::Map { .. }, _]));
    heap.abandon(plan, 3);
    assert_eq!((heap.remap_stats().aliases, heap.vm.figures().idle_bytes), (1, 4 * MIB));
    heap.check().unwrap();
    Sample { heap, live, free: before, pending, used_by }
}

#[track_caller]
fn assert_broken(heap: &Heap, invariant: u8) {
    let broken = heap.check().unwrap_err();
    assert_eq!(broken.invariant, invariant, "{broken}");
    assert!(broken.to_string().starts_with(&format!("I{invariant} is broken: ")));
}

#[test]
fn i1_a_gap_between_blocks() {
    let Sample { mut heap, live, .. } = sample();
    heap.space.blocks[live].bytes -= QUANTUM;
    assert_broken(&heap, 1);
}

#[test]
fn i1_a_block_that_no_segment_reaches() {
    let Sample { mut heap, live, .. } = sample();
    let block = heap.space.blocks[live];
    heap.space.blocks.insert(block);
    assert_broken(&heap, 1);
}

#[test]
fn i2_free_neighbours_that_are_not_joined() {
    let Sample { mut heap, free, .. } = sample();
    heap.space.remove_free(free);
    let rest = heap.space.blocks.cut(free, MIB);
    heap.space.insert_free(free);
    heap.space.insert_free(rest);
    assert_broken(&heap, 2);
}

#[test]
fn i3_a_live_block_in_a_bin() {
    let Sample { mut heap, free, .. } = sample();
    heap.space.blocks[free].state = BlockState::Live;
    assert_broken(&heap, 3);
}

#[test]
fn i3_a_free_block_in_no_bin() {
    let Sample { mut heap, free, .. } = sample();
    heap.space.remove_free(free);
    assert_broken(&heap, 3);
}

#[test]
fn i3_a_block_filed_twice_outside_the_bins() {
    let Sample { mut heap, .. } = sample();
    let quarantined = heap.quarantine[0];
    heap.quarantine.push(quarantined);
    assert_broken(&heap, 3);
}

#[test]
fn i3_a_chain_with_a_wrong_link_back() {
    let Sample { mut heap, free, live, .. } = sample();
    let list = heap.space.blocks[free].list;
    let unmapped = heap.space.list(list).unmapped[0];
    heap.space.blocks[unmapped].filed_next = unmapped;
    heap.space.blocks[unmapped].filed_previous = live;
    assert_broken(&heap, 3);
}

#[test]
fn i4_a_block_in_a_bin_of_larger_requests() {
    let Sample { mut heap, free, .. } = sample();
    heap.space.remove_free(free);
    heap.space.blocks[free].bytes *= 2;
    heap.space.insert_free(free);
    heap.space.blocks[free].bytes /= 2;
    assert_broken(&heap, 4);
}

#[test]
fn i5_a_bit_that_is_lost() {
    let Sample { mut heap, free, .. } = sample();
    let (list, bin) = (heap.space.blocks[free].list, Bin(heap.space.blocks[free].bin));
    heap.space.list_mut(list).bitmap.clear(bin);
    assert_broken(&heap, 5);
}

#[test]
fn i5_a_bit_without_a_block() {
    let Sample { mut heap, free, .. } = sample();
    let list = heap.space.blocks[free].list;
    heap.space.list_mut(list).bitmap.set(Bin(1));
    assert_broken(&heap, 5);
}

#[test]
fn i5_levels_of_the_bitmap_that_differ() {
    let Sample { mut heap, free, .. } = sample();
    let list = heap.space.blocks[free].list;
    heap.space.list_mut(list).bitmap.top ^= 1;
    assert_broken(&heap, 5);
}

#[test]
fn i5_a_block_in_the_bin_of_another_list() {
    let Sample { mut heap, free, used_by, .. } = sample();
    let other = heap.pools.at(PoolId::DEFAULT.index).list(SizeClass::Large, used_by.index).unwrap();
    heap.space.blocks[free].list = other;
    assert_broken(&heap, 5);
}

#[test]
fn i6_a_live_block_that_a_free_does_not_find() {
    let Sample { mut heap, live, .. } = sample();
    heap.space.map.remove(&mut heap.space.blocks, live);
    assert_broken(&heap, 6);
}

#[test]
fn i7_a_size_that_is_no_whole_quantum() {
    let Sample { mut heap, live, .. } = sample();
    let next = heap.space.blocks[live].next;
    heap.space.blocks[live].bytes += 8;
    heap.space.blocks[next].address += 8;
    heap.space.blocks[next].bytes -= 8;
    // The block after it is pending, and stands in the map.
    heap.space.map.remove(&mut heap.space.blocks, next);
    let address = heap.space.blocks[next].address;
    heap.space.map.insert(&mut heap.space.blocks, next, address);
    assert_broken(&heap, 7);
}

#[test]
fn i7_a_block_that_is_too_small_for_its_request() {
    let Sample { mut heap, live, .. } = sample();
    heap.space.blocks[live].requested = heap.space.blocks[live].bytes + 1;
    assert_broken(&heap, 7);
}

#[test]
fn i8_every_counter_counts() {
    fn corrupt<T: Count>(stats: &mut ClassCounters<T>, which: usize) {
        match which {
            0 => stats.requested_bytes.add(1),
            1 => stats.allocated_bytes.add(QUANTUM),
            2 => stats.active_bytes.add(QUANTUM),
            3 => stats.reserved_bytes.add(2 * MIB),
            4 => stats.allocations.add(1),
            5 => stats.active_blocks.add(1),
            _ => stats.segments.add(1),
        }
    }
    for which in 0..7 {
        for class in [None, Some(SizeClass::Small), Some(SizeClass::Large)] {
            let Sample { mut heap, .. } = sample();
            match class {
                None => corrupt(&mut heap.stats.all, which),
                Some(class) => corrupt(&mut heap.stats.classes[class as usize], which),
            }
            assert_broken(&heap, 8);
        }
    }
}

#[test]
fn i8_a_list_that_counts_what_is_not_there() {
    let corrupt: [fn(&mut Meter); 2] =
        [|meter| meter.add(QUANTUM), |meter| *meter = Meter::default()];
    for corrupt in corrupt {
        let Sample { mut heap, pending, .. } = sample();
        let list = heap.space.blocks[pending].list;
        corrupt(&mut heap.space.list_mut(list).active_bytes);
        assert_broken(&heap, 8);
    }
}

#[test]
fn i9_a_fence_that_passed_unnoticed() {
    let Sample { mut heap, used_by, .. } = sample();
    let stream = heap.streams.at_mut(used_by.index);
    stream.passed = stream.issued;
    assert_broken(&heap, 9);
}

#[test]
fn i9_a_pending_block_that_waits_for_nothing() {
    let Sample { mut heap, pending, used_by, .. } = sample();
    let stream = heap.streams.at_mut(used_by.index);
    let point = stream.issued;
    stream.passed = point;
    assert_eq!(stream.dequeue(), Some(pending));
    assert_broken(&heap, 9);
}

#[test]
fn i9_uses_that_no_block_has() {
    let Sample { mut heap, live, used_by, .. } = sample();
    heap.record_stream(heap.space.blocks[live].address, used_by).unwrap();
    heap.check().unwrap();
    heap.space.blocks[live].uses = NO_USES;
    assert_broken(&heap, 9);
}

#[test]
fn i12_a_block_in_another_pool() {
    let Sample { mut heap, live, .. } = sample();
    let own = heap.add_stream();
    let pool = heap.add_pool();
    allocate(&mut heap, pool, own, 2 * MIB);
    heap.check().unwrap();
    heap.space.blocks[live].list =
        heap.pools.at(pool.index).list(SizeClass::Large, own.index).unwrap();
    assert_broken(&heap, 12);
}

#[test]
fn i12_a_segment_of_another_kind_than_its_pool() {
    let Sample { mut heap, live, .. } = sample();
    let segment = heap.space.blocks[live].segment;
    heap.space.segments[segment].kind = SegmentKind::Plain;
    let found = check_i12_pools_keep_to_themselves(&heap, &tiles(&heap)).unwrap_err();
    assert_eq!(found.invariant, 12, "{found}");
}

#[test]
fn i17_a_split_segment_of_a_pool_that_splits_none() {
    let Sample { mut heap, live, .. } = sample();
    let own = heap.add_stream();
    let pool = heap.add_pool_of(SegmentKind::Plain, false);
    allocate(&mut heap, pool, own, 2 * MIB);
    heap.check().unwrap();
    let of = heap.space.list(heap.space.blocks[live].list).pool;
    heap.pools.at_mut(of).is_split = false;
    let found = check_i12_pools_keep_to_themselves(&heap, &tiles(&heap)).unwrap_err();
    assert_eq!(found.invariant, 17, "{found}");
}

fn tiles(heap: &Heap) -> Tiles {
    heap.space.check_i1_blocks_tile_their_segment().unwrap()
}

#[test]
fn i13_a_granule_behind_two_pages() {
    let Sample { mut heap, live, .. } = sample();
    heap.vm.corrupt_map(heap.space.blocks[live].segment, Some(1), 0);
    assert_broken(&heap, 13);
}

#[test]
fn i13_an_unmapped_page_with_a_granule_and_a_live_one_without() {
    let Sample { mut heap, live, .. } = sample();
    let ix = heap.space.blocks[live].segment;
    let last = (heap.space.segments[ix].bytes / (2 * MIB)) as usize - 1;
    heap.vm.corrupt_map(ix, Some(1), last);
    heap.vm.corrupt_map(ix, None, 1);
    assert_broken(&heap, 13);
}

#[test]
fn i16_a_pinned_page_without_a_granule() {
    let Sample { mut heap, live, .. } = sample();
    heap.pin_mapping(heap.space.blocks[live].address).unwrap();
    heap.check().unwrap();
    heap.vm.corrupt_map(heap.space.blocks[live].segment, None, 1);
    let found = heap.vm.check_pins().unwrap_err();
    assert_eq!(found.invariant, 16, "{found}");
}

#[test]
fn fences_of_unknown_streams_break_nothing() {
    let Sample { mut heap, mut used_by, .. } = sample();
    used_by.generation += 1;
    heap.fence_passed(Fence { stream: used_by, point: u64::MAX });
    heap.check().unwrap();
}

#[test]
fn i18_a_trail_that_nobody_ends() {
    let Sample { mut heap, live, .. } = sample();
    let list = heap.space.blocks[live].list;
    let trail = &mut heap.space.list_mut(list).trail;
    (trail.live, trail.len, trail.is_noted) = (1, 1, false);
    assert_broken(&heap, 18);
}
