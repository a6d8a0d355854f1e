//! Remaps and idle windows, step by step on a small heap.

use crate::heap::Heap;
use crate::plan::Step;
use crate::policy;
use crate::{
    Committed, Config, CrossStream, Outcome, PoolId, Reuse, SegmentKind, StateMachine, StreamId,
};

const GRANULE: u64 = 2 << 20;

struct Sample {
    heap: Heap,
    stream: StreamId,
    address: u64,
}

impl Sample {
    fn new() -> Self {
        let mut heap = Heap::new(Config {
            kind: SegmentKind::Mapped,
            granule_bytes: GRANULE,
            device_bytes: 1 << 40,
            limit_bytes: u64::MAX,
            cross_stream: CrossStream::Wait,
            remaps: true,
            left_per_handle: u64::MAX,
            moves: true,
            is_integrated: false,
            prefer: crate::Prefer::Memory,
        });
        let stream = heap.add_stream();
        Self { heap, stream, address: 0 }
    }

    fn allocate(&mut self, bytes: u64) -> u64 {
        self.allocate_in(PoolId::DEFAULT, bytes)
    }

    fn allocate_in(&mut self, pool: PoolId, bytes: u64) -> u64 {
        if let Some(grant) = self.heap.allocate(pool, self.stream, bytes).unwrap() {
            return grant.address;
        }
        loop {
            let request = self.heap.request(pool, self.stream, bytes, Reuse::MayWait);
            let plan = match request.unwrap() {
                Outcome::Granted(grant) => return grant.address,
                Outcome::Plan(plan) => plan,
            };
            self.address += 1 << 41;
            if let Committed::Granted(grant) = self.heap.commit(plan, self.address) {
                return grant.address;
            }
        }
    }

    fn free(&mut self, address: u64) {
        assert!(matches!(self.heap.free(address), Ok(crate::Freed::Done)));
    }

    /// A remap of so many granules from between live blocks, which leaves an idle window.
    fn remap(&mut self, granules: u64) {
        let block = self.allocate(granules * GRANULE);
        self.free(block);
    }

    /// `pieces` free granules at home, none beside another.
    fn scatter(&mut self, pieces: usize) {
        let blocks: Vec<u64> = (0..2 * pieces).map(|_| self.allocate(GRANULE)).collect();
        blocks.iter().step_by(2).for_each(|&address| self.free(address));
    }

    fn settle(&mut self) {
        let plan = self.heap.plan_synchronize();
        self.heap.commit(plan, 0);
    }
}

#[test]
fn b13_a_window_in_use_by_the_device_is_not_unmapped_and_none_twice() {
    let mut sample = Sample::new();
    sample.scatter(4);
    sample.remap(4);
    assert_eq!(sample.heap.remap_stats().aliases, 4);
    assert!(sample.heap.plan_eviction().is_none(), "its last use is not known to be complete");
    sample.settle();
    let plan = sample.heap.plan_eviction().unwrap();
    assert_eq!(plan.steps().len(), 1, "one range");
    assert!(sample.heap.plan_eviction().is_none());
    sample.heap.abandon(plan, 0);
    sample.heap.check().unwrap();
    let plan = sample.heap.plan_eviction().unwrap();
    sample.heap.commit(plan, 0);
    sample.heap.check().unwrap();
    assert_eq!(sample.heap.remap_stats().aliases, 0);
}

#[test]
fn what_a_pool_borrowed_goes_home_when_it_opens() {
    let mut sample = Sample::new();
    sample.scatter(4);
    sample.remap(4);
    sample.settle();
    let pool = sample.heap.add_pool();
    let borrowed = sample.allocate_in(pool, 4 * GRANULE);
    sample.free(borrowed);
    assert_eq!(sample.heap.remap_stats().remapped_granules, 4);
    sample.heap.release_pool(pool).unwrap();
    sample.settle();
    assert_eq!(sample.heap.remap_stats().remapped_granules, 0);
    // So the window of before leads to free memory again.
    let granted = sample.heap.allocate(PoolId::DEFAULT, sample.stream, 4 * GRANULE).unwrap();
    assert!(granted.is_some());
    sample.heap.check().unwrap();
}

#[test]
fn i13_a_window_that_leads_elsewhere_than_is_noted() {
    let mut sample = Sample::new();
    sample.scatter(4);
    sample.remap(3);
    let heap = &mut sample.heap;
    heap.check().unwrap();
    let (_, window) = heap.space.idle_windows.iter().next().unwrap();
    let block = heap.space.blocks[window];
    heap.vm.corrupt_runs(block.segment, block.address);
    assert_eq!(heap.check().unwrap_err().invariant, 13);
}

/// P8: a pool may be released while a plan that gets memory for it is under way.
#[test]
fn p8_no_pool_takes_the_place_of_one_that_gets_a_segment() {
    for succeeds in [false, true] {
        let Sample { mut heap, stream, .. } = Sample::new();
        let pool = heap.add_pool();
        let request = heap.request(pool, stream, 512, Reuse::MayWait).unwrap();
        let Outcome::Plan(plan) = request else { panic!("{request:?}") };
        heap.release_pool(pool).unwrap();
        let idle = heap.plan_synchronize();
        heap.commit(idle, 0);
        let other = heap.add_pool();
        assert_ne!(other.index(), pool.index());
        if succeeds {
            heap.commit(plan, 1 << 41);
        } else {
            heap.abandon(plan, 0);
        }
        let taken = heap.add_pool().index() == pool.index();
        assert_eq!(taken, !succeeds, "a segment keeps the place");
        heap.check().unwrap();
    }
}

#[test]
fn mappings_beyond_the_budget_are_given_up() {
    let mut sample = Sample::new();
    sample.scatter(200);
    let granules = sample.heap.vm.figures().granules;
    let budget = policy::mapping_budget(granules);
    // Remaps of every size: none fits into the window of one before.
    for size in 2..=200 {
        sample.remap(size);
        sample.settle();
        let mappings = granules + sample.heap.remap_stats().aliases as usize;
        assert!(mappings <= budget, "{mappings} mappings of {budget}");
    }
    sample.heap.check().unwrap();
}

#[test]
fn what_keeps_windows_mapped_beyond_the_budget_is_recorded_once() {
    let mut sample = Sample::new();
    sample.scatter(200);
    let granules = sample.heap.vm.figures().granules;
    let mut size = 2;
    let aliases = |sample: &Sample| sample.heap.remap_stats().aliases as usize;
    while granules + aliases(&sample) + size <= policy::mapping_budget(granules) {
        sample.remap(size as u64);
        size += 1;
    }
    let Sample { mut heap, stream, .. } = sample;
    let ask = |heap: &mut Heap| {
        let bytes = size as u64 * GRANULE;
        match heap.request(PoolId::DEFAULT, stream, bytes, Reuse::MayWait) {
            Ok(Outcome::Plan(plan)) => plan,
            other => panic!("{other:?}"),
        }
    };
    let plan = ask(&mut heap);
    let [Step::Record { fence }] = *plan.steps() else { panic!("{plan:?}") };
    heap.commit(plan, 0);
    let plan = ask(&mut heap);
    assert!(plan.steps().iter().any(|step| matches!(step, Step::Map { .. })));
    heap.abandon(plan, 0);
    heap.fence_passed(fence);
    let plan = ask(&mut heap);
    assert!(plan.steps().iter().all(|step| matches!(step, Step::Unmap { .. })), "{plan:?}");
    heap.commit(plan, 0);
    heap.check().unwrap();
}

/// Handles of four granules, of which a request leaves one over: it goes along, and the next one
/// of that size takes it all again.
#[test]
fn the_last_handle_is_taken_whole_and_found_again() {
    let mut heap = Heap::new(Config { left_per_handle: 1, ..*Sample::new().heap.config() });
    let stream = heap.add_stream();
    let mut sample = Sample { heap, stream, address: 0 };
    let singles = sample.allocate(4 * GRANULE);
    let blocks: Vec<u64> = (0..4).map(|_| sample.allocate(4 * GRANULE)).collect();
    [blocks[0], blocks[2]].into_iter().for_each(|address| sample.free(address));
    let reserved_bytes = sample.heap.stats().all.reserved_bytes.current;
    sample.remap(7);
    sample.heap.check().unwrap();
    let again = sample.heap.allocate(PoolId::DEFAULT, sample.stream, 6 * GRANULE).unwrap();
    assert_eq!(again.map(|_| sample.heap.remap_stats().remapped_granules), Some(8));
    assert_eq!(sample.heap.stats().all.reserved_bytes.current, reserved_bytes);
    sample.free(singles);
    sample.heap.check().unwrap();
}
