//! Tests of the driver's pools: each rule of when a block goes back, random runs under the check.

use super::*;
use crate::plan::Step;
use crate::policy::SizeClass;

const MIB: u64 = 1 << 20;

/// A driver that gives fresh addresses and grows by what is asked for, and its pools.
struct World {
    pools: AsyncPools,
    next_address: u64,
    reserved_bytes: u64,
}

impl World {
    fn new(limit_bytes: u64) -> Self {
        Self { pools: AsyncPools::new(limit_bytes), next_address: 1 << 40, reserved_bytes: 0 }
    }

    fn give(&mut self, bytes: u64, is_graphs: bool, grown_bytes: u64) -> DriverAlloc {
        self.reserved_bytes += grown_bytes;
        self.next_address += bytes;
        let address = self.next_address - bytes;
        DriverAlloc { address, is_graphs, reserved_bytes: Some(self.reserved_bytes) }
    }

    fn allocate(&mut self, stream: StreamId, bytes: u64) -> u64 {
        let pending = self.pools.request(PoolId::DEFAULT, stream, bytes, false).unwrap();
        let given = self.give(pending.bytes(), false, pending.bytes());
        let grant = self.pools.admit(pending, given).unwrap();
        self.pools.check().unwrap();
        grant.address
    }

    fn free(&mut self, address: u64) -> FreeOutcome {
        let outcome = self.pools.free(address).unwrap();
        self.pools.check().unwrap();
        outcome
    }

    /// The routes of all deferred frees that may be made now; all succeed.
    fn free_deferred(&mut self) -> Vec<FreeOrder> {
        let frees = self.pools.deferred_frees(|_| true);
        self.pools.check().unwrap();
        let routes = frees.iter().map(DeferredFree::route).collect();
        frees.into_iter().for_each(|one| self.pools.finish_free(one, true));
        self.pools.check().unwrap();
        routes
    }

    fn synchronize(&mut self) {
        let plan = self.pools.plan_synchronize();
        self.pools.check().unwrap();
        self.pools.commit(plan, 0);
        self.pools.check().unwrap();
    }
}

fn fences(plan: &Plan) -> Vec<Fence> {
    let steps = plan.steps().iter();
    steps
        .filter_map(|step| if let Step::Record { fence } = *step { Some(fence) } else { None })
        .collect()
}

fn plan(outcome: FreeOutcome) -> Plan {
    let FreeOutcome::Plan(plan) = outcome else { panic!("{outcome:?}") };
    plan
}

#[test]
fn a_block_without_uses_goes_back_in_the_order_of_its_stream() {
    let mut world = World::new(u64::MAX);
    let stream = world.pools.add_stream();
    let address = world.allocate(stream, 700);
    world.pools.record_stream(address, stream).unwrap();
    let all = world.pools.stats().all;
    assert_eq!((all.requested_bytes.current, all.allocated_bytes.current), (700, 1024));
    let FreeOutcome::Now(deferred) = world.free(address) else { panic!("nobody else uses it") };
    assert_eq!((deferred.address(), deferred.route()), (address, FreeOrder::Own(stream)));
    // The driver may give the address out again before the free is known to be done.
    let error = world.pools.free(address).unwrap_err();
    assert_eq!(error, FreeError::Unknown { address });
    world.pools.finish_free(deferred, true);
    world.pools.check().unwrap();
    let all = world.pools.stats().all;
    assert_eq!((all.active_bytes.current, all.segments.current), (0, 0));
    assert_eq!(all.reserved_bytes.current, 1024, "the pool keeps it");
}

#[test]
fn b29_a_used_block_waits_for_its_users_alone() {
    let mut world = World::new(u64::MAX);
    let [own, one, two] = std::array::from_fn(|_| world.pools.add_stream());
    let address = world.allocate(own, 3 * MIB);
    for stream in [one, two, one] {
        world.pools.record_stream(address, stream).unwrap();
    }
    let plan = plan(world.free(address));
    let fences = fences(&plan);
    assert_eq!(fences.iter().map(|fence| fence.stream).collect::<Vec<_>>(), [one, two]);
    world.pools.commit(plan, 0);
    world.pools.check().unwrap();
    let all = world.pools.stats().all;
    assert_eq!((all.allocated_bytes.current, all.active_bytes.current), (0, 3 * MIB));
    assert_eq!(world.pools.free(address).unwrap_err(), FreeError::AlreadyFree { address });
    world.pools.fence_passed(fences[0]);
    assert_eq!(world.free_deferred(), []);
    world.pools.fence_passed(fences[1]);
    assert_eq!(world.free_deferred(), [FreeOrder::Own(own)]);
    assert_eq!(world.pools.snapshot(), []);
}

#[test]
fn b08_a_use_that_could_not_be_recorded_waits_for_an_idle_device() {
    let mut world = World::new(u64::MAX);
    let [own, other] = std::array::from_fn(|_| world.pools.add_stream());
    let address = world.allocate(own, 512);
    world.pools.record_stream(address, other).unwrap();
    let record = plan(world.free(address));
    world.pools.abandon(record, 0);
    world.pools.check().unwrap();
    assert_eq!(world.pools.stats().quarantined_bytes, 512);
    assert_eq!(world.pools.snapshot()[0].blocks[0].state, BlockState::Quarantined);
    assert_eq!(world.free_deferred(), []);
    let failed = world.pools.plan_synchronize();
    world.pools.abandon(failed, 0);
    assert_eq!((world.free_deferred(), world.pools.stats().quarantined_bytes), (vec![], 512));
    world.synchronize();
    assert_eq!(
        (world.free_deferred(), world.pools.stats().quarantined_bytes),
        (vec![FreeOrder::Any(own)], 0)
    );
}

#[test]
fn b14_a_block_of_a_retired_stream_waits_for_its_last_fence() {
    for is_recorded in [true, false] {
        let mut world = World::new(u64::MAX);
        let [own, gone] = std::array::from_fn(|_| world.pools.add_stream());
        let [early, late] = [512, 512].map(|bytes| world.allocate(gone, bytes));
        world.pools.record_stream(early, own).unwrap();
        let retire = world.pools.retire_stream(gone).unwrap();
        let last = fences(&retire)[0];
        if is_recorded {
            world.pools.commit(retire, 0);
        } else {
            world.pools.abandon(retire, 0);
        }
        let record = plan(world.free(early));
        assert_eq!(fences(&record).len(), 1, "nothing is recorded on a stream that is gone");
        let used = fences(&record)[0];
        world.pools.commit(record, 0);
        world.pools.fence_passed(used);
        assert_eq!(world.free_deferred(), [], "its own stream may still use it");
        if is_recorded {
            world.pools.fence_passed(last);
        } else {
            world.synchronize();
        }
        assert_eq!(world.free_deferred(), [FreeOrder::Any(gone)]);
        // From now on nothing has to be waited for, also when another stream took its place.
        assert_eq!(world.pools.add_stream().index(), gone.index());
        let FreeOutcome::Now(deferred) = world.free(late) else { panic!("all is complete") };
        assert_eq!(deferred.route(), FreeOrder::Any(gone));
        world.pools.finish_free(deferred, true);
        world.pools.check().unwrap();
    }
}

#[test]
fn a_free_that_failed_is_made_again() {
    let mut world = World::new(u64::MAX);
    let stream = world.pools.add_stream();
    let address = world.allocate(stream, 512);
    let FreeOutcome::Now(deferred) = world.free(address) else { panic!("nobody else uses it") };
    world.pools.finish_free(deferred, false);
    world.pools.check().unwrap();
    assert_eq!(world.pools.free(address).unwrap_err(), FreeError::AlreadyFree { address });
    let again = world.pools.deferred_frees(|_| true).pop().unwrap();
    assert_eq!(again.route(), FreeOrder::Own(stream));
    world.pools.finish_free(again, false);
    // Its stream may be gone for good: an idle device sets it free of that, too.
    world.synchronize();
    assert_eq!(world.free_deferred(), [FreeOrder::Any(stream)]);
}

/// Nothing is known of whether it is there; once the device was idle its order says nothing more.
#[test]
fn the_order_of_a_stream_that_may_not_be_named_is_waited_for() {
    let mut world = World::new(u64::MAX);
    let [own, other] = std::array::from_fn(|_| world.pools.add_stream());
    for stream in [own, other] {
        let address = world.allocate(stream, 512);
        let FreeOutcome::Now(deferred) = world.free(address) else { panic!("nobody else uses it") };
        world.pools.finish_free(deferred, false);
    }
    let named = world.pools.deferred_frees(|stream| stream == other);
    world.pools.check().unwrap();
    let routes: Vec<_> = named.iter().map(DeferredFree::route).collect();
    assert_eq!(routes, [FreeOrder::Own(other)]);
    named.into_iter().for_each(|one| world.pools.finish_free(one, true));
    world.synchronize();
    let idle = world.pools.deferred_frees(|_| false).pop().unwrap();
    assert_eq!(idle.route(), FreeOrder::Any(own));
    world.pools.finish_free(idle, true);
    world.pools.check().unwrap();
}

#[test]
fn p3_bad_frees_change_nothing() {
    let mut world = World::new(u64::MAX);
    let stream = world.pools.add_stream();
    let address = world.allocate(stream, 700);
    let before = (world.pools.snapshot(), world.pools.stats());
    let unknown = |address| Err(FreeError::Unknown { address });
    for bad in [0, address - 1, address + 1024, u64::MAX] {
        assert_eq!(world.pools.free(bad).map(drop), unknown(bad));
    }
    let inside = address + 512;
    let interior =
        FreeError::Interior { address: inside, block_address: address, block_bytes: 1024 };
    assert_eq!(world.pools.free(inside).map(drop), Err(interior));
    let used = world.pools.record_stream(inside, stream);
    assert_eq!(used, Err(RecordStreamError::Block(interior)));
    assert_eq!((world.pools.snapshot(), world.pools.stats()), before);
}

#[test]
fn b34_the_limit_is_checked_before_and_after_the_driver_grew() {
    let mut world = World::new(64 * MIB);
    let stream = world.pools.add_stream();
    let request = |world: &mut World, bytes, is_captured| {
        world.pools.request(PoolId::DEFAULT, stream, bytes, is_captured)
    };
    let limited = |reserved_bytes, bytes| RequestError::Limit {
        bytes,
        reserved_bytes,
        limit_bytes: 64 * MIB,
    };
    let error = request(&mut world, 64 * MIB + 1, false).unwrap_err();
    assert_eq!(error, limited(0, 64 * MIB + 512));
    // The driver takes more than was asked for.
    let pending = request(&mut world, 33 * MIB, false).unwrap();
    let given = world.give(33 * MIB, false, 65 * MIB);
    let deferred = world.pools.admit(pending, given).unwrap_err();
    assert_eq!(deferred.route(), FreeOrder::Own(stream));
    world.pools.check().unwrap();
    world.pools.finish_free(deferred, true);
    world.pools.check().unwrap();
    assert_eq!(world.pools.stats().all.allocations.total, 0);
    assert_eq!(world.pools.stats().all.reserved_bytes.current, 65 * MIB);
    // As long as it is too large, nothing is handed out of it either.
    let pending = request(&mut world, 33 * MIB, false).unwrap();
    let given = world.give(33 * MIB, false, 0);
    let deferred = world.pools.admit(pending, given).unwrap_err();
    world.pools.finish_free(deferred, true);
    world.reserved_bytes = 64 * MIB;
    world.pools.observe(0, 64 * MIB);
    // What it holds unused may serve; a graph's memory comes on top.
    let pending = request(&mut world, 33 * MIB, false).unwrap();
    assert!(request(&mut world, 512, true).is_err());
    let given = world.give(33 * MIB, false, 0);
    let address = world.pools.admit(pending, given).unwrap().address;
    world.pools.check().unwrap();
    assert_eq!(request(&mut world, 33 * MIB, false).unwrap_err(), limited(64 * MIB, 33 * MIB));
    world.pools.observe(0, 40 * MIB);
    world.pools.check().unwrap();
    let pending = request(&mut world, 24 * MIB, true).unwrap();
    let given = world.give(24 * MIB, true, 0);
    let given = DriverAlloc { reserved_bytes: None, ..given };
    let graphs = world.pools.admit(pending, given).unwrap().address;
    world.pools.check().unwrap();
    assert_eq!(world.pools.stats().all.reserved_bytes.current, 64 * MIB);
    let FreeOutcome::Now(deferred) = world.free(graphs) else { panic!("nobody else uses it") };
    assert_eq!(deferred.route(), FreeOrder::Graph(stream));
    // Whether the capture takes the free or not: it is the graph's.
    world.pools.finish_free(deferred, false);
    world.pools.check().unwrap();
    assert_eq!(world.pools.stats().all.reserved_bytes.current, 40 * MIB);
    // A limit lowered below what is held stops growth only.
    let pending = request(&mut world, 7 * MIB, false).unwrap();
    world.pools.set_limit(MIB);
    let given = world.give(7 * MIB, false, 0);
    let given = DriverAlloc { reserved_bytes: Some(40 * MIB), ..given };
    assert!(world.pools.admit(pending, given).is_ok());
    assert!(matches!(world.free(address), FreeOutcome::Now(_)));
}

#[test]
fn b47_a_pool_is_succeeded_only_when_nothing_is_left_of_it() {
    let mut world = World::new(u64::MAX);
    let stream = world.pools.add_stream();
    let pool = world.pools.add_pool();
    let pending = world.pools.request(pool, stream, MIB, false).unwrap();
    world.pools.release_pool(pool).unwrap();
    assert_eq!(world.pools.trimmable_pools(), [(0, false), (1, false)], "an allocation is pending");
    assert_eq!(world.pools.add_pool().index(), 2);
    let given = world.give(MIB, false, 2 * MIB);
    let address = world.pools.admit(pending, given).unwrap().address;
    let error = world.pools.request(pool, stream, MIB, false).unwrap_err();
    assert_eq!(error, RequestError::UnknownPool { pool });
    assert_eq!(world.pools.snapshot()[0].pool, pool.index());
    let FreeOutcome::Now(deferred) = world.free(address) else { panic!("nobody else uses it") };
    world.pools.finish_free(deferred, true);
    assert_eq!(world.pools.trimmable_pools(), [(0, false), (1, true)]);
    assert_eq!(world.pools.add_pool().index(), 3, "its memory is not back yet");
    world.pools.observe(1, 0);
    let heir = world.pools.add_pool();
    assert!(heir.index() == pool.index() && heir != pool);
    assert_eq!(world.pools.release_pool(pool), Err(RequestError::UnknownPool { pool }));
    let cancelled = world.pools.request(heir, stream, MIB, false).unwrap();
    world.pools.cancel(cancelled);
    world.pools.check().unwrap();
}

/// Anything in any order: the check holds throughout, and an idle device leaves nothing behind.
#[test]
fn random_runs_leave_nothing() {
    for seed in 1..200u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % end as u64) as usize
        };
        let mut world = World::new(u64::MAX);
        let mut streams = vec![world.pools.add_stream(), world.pools.add_stream()];
        let (mut live, mut recorded) = (Vec::new(), Vec::new());
        for _ in 0..150 {
            let stream = streams[below(streams.len())];
            match below(8) {
                0..3 => live.push(world.allocate(stream, 1 + below(3 << 20) as u64)),
                3 if !live.is_empty() => {
                    let address = live[below(live.len())];
                    world.pools.record_stream(address, stream).unwrap();
                }
                4 if !live.is_empty() => {
                    let address = live.swap_remove(below(live.len()));
                    match world.free(address) {
                        FreeOutcome::Done => {}
                        FreeOutcome::Now(deferred) => {
                            world.pools.finish_free(deferred, below(3) > 0)
                        }
                        FreeOutcome::Plan(plan) if below(3) > 0 => {
                            recorded.extend(fences(&plan));
                            world.pools.commit(plan, 0);
                        }
                        FreeOutcome::Plan(plan) => world.pools.abandon(plan, 0),
                    }
                }
                5 if !recorded.is_empty() => {
                    let fence = recorded.swap_remove(below(recorded.len()));
                    world.pools.fence_passed(fence);
                    world.free_deferred();
                }
                6 if streams.len() > 1 => {
                    streams.retain(|&one| one != stream);
                    let plan = world.pools.retire_stream(stream).unwrap();
                    recorded.extend(fences(&plan));
                    world.pools.commit(plan, 0);
                }
                7 if below(4) == 0 => world.synchronize(),
                _ => streams.push(world.pools.add_stream()),
            }
            if let Err(broken) = world.pools.check() {
                panic!("seed {seed}: {broken}");
            }
        }
        for address in live {
            match world.free(address) {
                FreeOutcome::Done => {}
                FreeOutcome::Now(deferred) => world.pools.finish_free(deferred, false),
                FreeOutcome::Plan(plan) => drop(world.pools.commit(plan, 0)),
            }
        }
        world.synchronize();
        world.free_deferred();
        assert_eq!(world.pools.snapshot(), [], "seed {seed}");
        assert_eq!(world.pools.stats().all.active_bytes.current, 0, "seed {seed}");
        assert_eq!(world.pools.stats().classes[SizeClass::Small as usize].segments.current, 0);
    }
}

/// Pool, stream and class of each statistic; in use now and at most, and of it what is live.
fn pool_streams(pools: &AsyncPools) -> Vec<(usize, usize, SizeClass, [u64; 3])> {
    let mut stats = pools.pool_stream_stats();
    stats.sort_by_key(|one| (one.pool, one.stream, one.class as usize));
    stats
        .into_iter()
        .map(|one| {
            let active = one.active_bytes;
            let bytes = [active.current, active.peak, one.allocated_bytes];
            (one.pool, one.stream, one.class, bytes)
        })
        .collect()
}

#[test]
fn peaks_are_kept_for_each_pool_class_and_stream() {
    let mut world = World::new(u64::MAX);
    let [one, two] = std::array::from_fn(|_| world.pools.add_stream());
    let used = world.allocate(one, 3 * MIB);
    world.pools.record_stream(used, two).unwrap();
    let plan = plan(world.free(used));
    let fences = fences(&plan);
    world.pools.commit(plan, 0);
    let large = |bytes| (0, 0, SizeClass::Large, bytes);
    assert_eq!(pool_streams(&world.pools), [large([3 * MIB, 3 * MIB, 0])], "pending");
    world.pools.fence_passed(fences[0]);
    world.free_deferred();
    world.allocate(one, 700);
    let kept = world.allocate(two, 2 * MIB);
    let small = (0, 0, SizeClass::Small, [1024; 3]);
    let other = (0, 1, SizeClass::Large, [2 * MIB; 3]);
    assert_eq!(pool_streams(&world.pools), [small, large([0, 3 * MIB, 0]), other]);
    world.pools.reset_peaks();
    assert_eq!(pool_streams(&world.pools), [small, other]);

    // A stream that takes the place of another has its blocks, and no peak from before.
    let more = world.allocate(two, 4 * MIB);
    let FreeOutcome::Now(deferred) = world.free(more) else { panic!("nobody else uses it") };
    world.pools.finish_free(deferred, true);
    let retired = world.pools.retire_stream(two).unwrap();
    let last = self::fences(&retired)[0];
    world.pools.commit(retired, 0);
    world.pools.fence_passed(last);
    assert_eq!(pool_streams(&world.pools)[1].3, [2 * MIB, 6 * MIB, 2 * MIB]);
    assert_eq!(world.pools.add_stream().index(), two.index());
    assert_eq!(pool_streams(&world.pools)[1], other);
    world.free(kept);
}

#[test]
fn a_pool_that_takes_the_place_of_another_has_no_peaks_from_before() {
    let mut world = World::new(u64::MAX);
    let stream = world.pools.add_stream();
    let pool = world.pools.add_pool();
    let pending = world.pools.request(pool, stream, 3 * MIB, true).unwrap();
    let given = world.give(pending.bytes(), true, 0);
    let grant = world.pools.admit(pending, given).unwrap();
    let FreeOutcome::Now(deferred) = world.free(grant.address) else { panic!("a graph's") };
    world.pools.finish_free(deferred, true);
    world.pools.release_pool(pool).unwrap();
    world.pools.observe(pool.index(), 0);
    assert_eq!(pool_streams(&world.pools), [(1, 0, SizeClass::Large, [0, 3 * MIB, 0])]);
    assert_eq!(world.pools.add_pool().index(), 1);
    assert_eq!(pool_streams(&world.pools), []);
    world.pools.check().unwrap();
}

#[test]
fn i8_pool_stream_statistics_of_what_is_not_there() {
    let corrupt: [fn(&mut PoolStreamStats); 3] = [
        |stats| stats.active_bytes.current += 512,
        |stats| stats.active_bytes.peak = 0,
        |stats| stats.class = SizeClass::Small,
    ];
    for corrupt in corrupt {
        let mut world = World::new(u64::MAX);
        let stream = world.pools.add_stream();
        world.allocate(stream, 3 * MIB);
        corrupt(&mut world.pools.pool_streams[0]);
        assert_eq!(world.pools.check().unwrap_err().invariant, 8);
    }
}
