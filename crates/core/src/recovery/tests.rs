//! Recovery, answer by answer: what is tried in which order, and what ends a miss.

use super::{Captured, Failure, Miss, Next, Refusal};
use crate::async_pool::{AsyncPools, DriverAlloc};
use crate::heap::{Freed, Outcome};
use crate::plan::{Committed, Reuse};
use crate::space::Granted;
use crate::{
    Config, CrossStream, Giving, Heap, Plan, PoolId, Prefer, SegmentKind, StateMachine, Step,
    StreamId,
};

const MIB: u64 = 1 << 20;

/// What a driver says.
const ERROR: &str = "no";

fn heap(limit_bytes: u64) -> Heap {
    let config = Config::new(SegmentKind::Mapped, 2 * MIB, 1 << 30).with_limit_bytes(limit_bytes);
    let config = config.with_cross_stream(CrossStream::Never).with_prefer(Prefer::Memory);
    Heap::new(config.with_left_per_handle(u64::MAX))
}

/// The next answer, on a device that cannot say how much of it is free.
fn next(heap: &mut Heap, miss: &mut Miss<&'static str>) -> Next<Plan, &'static str> {
    match heap.next(miss) {
        Next::LookAtDevice => {
            miss.note_free(None);
            heap.next(miss)
        }
        next => next,
    }
}

/// Holds as much as it may, 5.5 MiB of it in pieces that no request of 4 MiB can use.
fn full() -> Heap {
    full_by_stream().0
}

/// The same, with the stream that freed the pieces.
fn full_by_stream() -> (Heap, StreamId) {
    let mut heap = heap(10 * MIB);
    let stream = heap.add_stream();
    let mut addresses = Vec::new();
    while addresses.len() < 6 {
        match heap.request(PoolId::DEFAULT, stream, 3 * MIB / 2, Reuse::MayWait).unwrap() {
            Outcome::Granted(granted) => addresses.push(granted.address),
            Outcome::Plan(plan) => {
                if let Committed::Granted(granted) = heap.commit(plan, 1 << 40) {
                    addresses.push(granted.address);
                }
            }
        }
    }
    for &address in addresses.iter().skip(1).step_by(2) {
        assert!(matches!(heap.free(address), Ok(Freed::Done)));
    }
    (heap, stream)
}

fn miss(heap: &mut Heap, captured: Captured) -> Miss<&'static str> {
    Miss::new(PoolId::DEFAULT, heap.add_stream(), 4 * MIB, captured)
}

fn refused(is_out_of_memory: bool, failed_at: usize) -> Failure<&'static str> {
    Failure { error: ERROR, is_out_of_memory, failed_at, in_effect: 0 }
}

/// The answers until the miss is over, if no rung makes room but the n-th of some, which makes it
/// worth another try.
fn answers(heap: &mut Heap, captured: Captured, making_room: &[usize]) -> String {
    let miss = miss(heap, captured);
    answers_to(miss, heap, making_room)
}

fn answers_to(mut miss: Miss<&'static str>, heap: &mut Heap, making_room: &[usize]) -> String {
    let mut answers = Vec::new();
    loop {
        answers.push(match next(heap, &mut miss) {
            Next::CollectFences => "collect",
            Next::AwaitFences => "await",
            Next::Synchronize => "synchronize",
            Next::Compact => "compact",
            Next::Trim => "trim",
            Next::AskProgram => "ask",
            Next::GiveUp(Refusal::Limit) => return answers.join(" "),
            next => panic!("{next:?} after {answers:?}"),
        });
        if answers.last() != Some(&"collect") {
            miss.note(making_room.contains(&answers.len()));
        }
    }
}

#[test]
fn the_ladder_is_climbed_by_cost_and_each_rung_once() {
    let whole = "collect await trim synchronize compact trim ask synchronize compact trim";
    assert_eq!(answers(&mut full(), Captured::None, &[]), whole);
    // Tried again after each of them, and refused: the rungs behind it are not climbed again.
    assert_eq!(answers(&mut full(), Captured::None, &[2, 3, 4, 5, 6, 7, 8]), whole);
}

/// What is unused would not do, but with what the device has left it would: once memory has gone
/// back, what could not move before may move.
#[test]
fn after_memory_went_back_the_last_rungs_are_climbed_whatever_is_unused() {
    let mut heap = full();
    heap.set_limit(12 * MIB);
    let miss = Miss::new(PoolId::DEFAULT, heap.add_stream(), 6 * MIB, Captured::None);
    let whole = "collect await trim synchronize compact trim ask synchronize compact trim";
    assert_eq!(answers_to(miss, &mut heap, &[]), whole);
}

/// Waits for the device of a miss that nothing helps, where another stream takes a block after so
/// many of them and lets go of it again.
fn waits_where_others_come_in_between(times: usize) -> usize {
    let (mut heap, other) = full_by_stream();
    let mut miss = miss(&mut heap, Captured::None);
    let mut waits = 0;
    loop {
        match next(&mut heap, &mut miss) {
            Next::Synchronize => {
                waits += 1;
                if waits <= times {
                    let taken = heap.request(PoolId::DEFAULT, other, 3 * MIB / 2, Reuse::OwnStream);
                    let Ok(Outcome::Granted(Granted { address, .. })) = taken else {
                        panic!("{taken:?}")
                    };
                    assert!(matches!(heap.free(address), Ok(Freed::Done)));
                }
            }
            Next::CollectFences => continue,
            Next::GiveUp(Refusal::Limit) => return waits,
            _ => {}
        }
        miss.note(false);
    }
}

#[test]
fn the_device_is_waited_for_again_where_others_were_served_meanwhile() {
    assert_eq!(waits_where_others_come_in_between(0), 2);
    assert_eq!(waits_where_others_come_in_between(1), 2);
    assert_eq!(waits_where_others_come_in_between(2), 3);
    assert_eq!(waits_where_others_come_in_between(5), 6);
    assert_eq!(waits_where_others_come_in_between(usize::MAX), 8);
}

#[test]
fn where_all_that_is_unused_would_not_do_only_the_program_is_asked() {
    assert_eq!(answers(&mut heap(0), Captured::None, &[]), "collect ask");
    let mut full = full();
    let mut miss = Miss::<&str>::new(PoolId::DEFAULT, full.add_stream(), 6 * MIB, Captured::None);
    assert!(matches!(next(&mut full, &mut miss), Next::CollectFences));
    assert!(matches!(next(&mut full, &mut miss), Next::AskProgram));
}

#[test]
fn a_device_that_has_too_little_left_is_not_asked_for_it() {
    let mut heap = heap(u64::MAX);
    let mut miss = miss(&mut heap, Captured::None);
    assert!(matches!(heap.next(&mut miss), Next::CollectFences));
    // Addresses first.
    while let Next::CarryOut(plan) = heap.next(&mut miss) {
        heap.carried_out(&mut miss, plan, Ok(1 << 40));
    }
    // That was the look.
    miss.note_free(Some(2 * MIB));
    assert!(matches!(heap.next(&mut miss), Next::AskNeighbours(0)));
    miss.note(false);
    assert!(matches!(heap.next(&mut miss), Next::AskProgram));
    miss.note(false);
    assert!(matches!(heap.next(&mut miss), Next::GiveUp(Refusal::Device)));
    assert_eq!(heap.stats().all.reserved_bytes.total, 0);
}

/// A device that has nothing left until neighbours give some back, which others take.
#[test]
fn neighbours_are_asked_again_as_long_as_they_give_and_what_is_unused_here_goes_with_it() {
    for times in [1, 2, 40] {
        let mut heap = full();
        heap.set_limit(u64::MAX);
        let mut miss = miss(&mut heap, Captured::None);
        let (mut asked, mut trims) = (0, 0);
        loop {
            match heap.next(&mut miss) {
                Next::LookAtDevice => miss.note_free(Some(0)),
                Next::CollectFences => {}
                Next::CarryOut(plan) => heap.carried_out(&mut miss, plan, Err(refused(true, 0))),
                Next::AskNeighbours(own_bytes) => {
                    // 4 MiB in all would do with what is unused here, in pieces.
                    assert_eq!(own_bytes, 0);
                    asked += 1;
                    miss.note(asked < times);
                }
                Next::Trim => {
                    trims += 1;
                    miss.note(false);
                }
                Next::GiveUp(_) => break,
                _ => miss.note(false),
            }
        }
        assert_eq!(asked, times);
        assert!(trims > times, "what is unused here is given back again");
    }
}

/// Handles that are free would be created again: of others only what lacks beside them is asked.
#[test]
fn what_is_unused_here_does_not_go_back_where_others_would_give_the_rest() {
    for (offered_bytes, trims) in [(2 * MIB, false), (0, true)] {
        // Of what is unused, in pieces of all sizes, one granule is whole.
        let (mut heap, stream) = full_by_stream();
        heap.set_limit(u64::MAX);
        let mut miss = Miss::<&str>::new(PoolId::DEFAULT, stream, 8 * MIB, Captured::None);
        let (mut has_trimmed, mut asked) = (false, None);
        while asked.is_none() {
            match heap.next(&mut miss) {
                Next::LookAtDevice => {
                    miss.note_free(Some(4 * MIB));
                    Giving::of(&mut heap).note_offered(offered_bytes);
                }
                Next::CollectFences => {}
                Next::AskNeighbours(own_bytes) => asked = Some(own_bytes),
                Next::Trim => {
                    has_trimmed = true;
                    miss.note(false);
                }
                Next::CarryOut(plan) => heap.carried_out(&mut miss, plan, Ok(1 << 40)),
                Next::GiveUp(refusal) => panic!("{refusal:?}"),
                _ => miss.note(false),
            }
        }
        assert_eq!((has_trimmed, asked), (trims, Some(if trims { 0 } else { 2 * MIB })));
    }
}

#[test]
fn i11_b22_what_a_capture_forbids_is_not_asked_for() {
    assert_eq!(answers(&mut full(), Captured::Other, &[]), "collect await ask");
    assert_eq!(answers(&mut heap(0), Captured::Own, &[]), "");
}

#[test]
fn b30_an_idle_device_is_trimmed_and_then_tried_also_where_nothing_was_given_back() {
    let mut heap = full();
    let mut miss = miss(&mut heap, Captured::None);
    while !matches!(next(&mut heap, &mut miss), Next::Synchronize) {
        miss.note(false);
    }
    miss.note(true);
    assert!(!miss.is_trying());
    assert!(matches!(next(&mut heap, &mut miss), Next::Compact));
    miss.note(false);
    assert!(!miss.is_trying());
    assert!(matches!(next(&mut heap, &mut miss), Next::Trim));
    heap.set_limit(u64::MAX);
    miss.note(false);
    assert!(miss.is_trying());
    assert!(matches!(next(&mut heap, &mut miss), Next::CarryOut(_)));
    assert_eq!(heap.stats().retries, 1);
}

/// The plan that is next.
fn plan(heap: &mut Heap, miss: &mut Miss<&'static str>) -> Plan {
    match next(heap, miss) {
        Next::CarryOut(plan) => plan,
        next => panic!("{next:?}"),
    }
}

fn reserved_bytes(plan: &Plan) -> u64 {
    match plan.steps() {
        [Step::Reserve { bytes, .. }] => *bytes,
        steps => panic!("{steps:?}"),
    }
}

#[test]
fn b53_a_refused_reservation_is_made_smaller_until_it_is_what_is_needed() {
    let mut heap = heap(u64::MAX);
    let mut miss = miss(&mut heap, Captured::Own);
    let generous = plan(&mut heap, &mut miss);
    assert_eq!(reserved_bytes(&generous), 1 << 30);
    heap.carried_out(&mut miss, generous, Err(refused(true, 0)));
    let fewer = plan(&mut heap, &mut miss);
    assert_eq!(reserved_bytes(&fewer), 32 * MIB);
    heap.carried_out(&mut miss, fewer, Err(refused(true, 0)));
    let least = plan(&mut heap, &mut miss);
    assert_eq!(reserved_bytes(&least), 4 * MIB);
    heap.carried_out(&mut miss, least, Err(refused(true, 0)));
    assert!(matches!(next(&mut heap, &mut miss), Next::AskNeighbours(0)));
    miss.note(false);
    assert!(matches!(next(&mut heap, &mut miss), Next::GiveUp(Refusal::OutOfMemory(ERROR))));
    // It is remembered beyond the miss.
    let mut next = self::miss(&mut heap, Captured::Own);
    let least = plan(&mut heap, &mut next);
    assert_eq!(reserved_bytes(&least), 4 * MIB);
    heap.carried_out(&mut next, least, Ok(1 << 40));
    let growth = plan(&mut heap, &mut next);
    heap.carried_out(&mut next, growth, Ok(0));
    assert!(matches!(heap.next(&mut next), Next::Granted(_)));
}

#[test]
fn a_granule_that_is_refused_is_asked_for_once_more_by_what_was_given() {
    let mut heap = heap(u64::MAX);
    let mut miss = miss(&mut heap, Captured::Own);
    let reservation = plan(&mut heap, &mut miss);
    heap.carried_out(&mut miss, reservation, Ok(1 << 40));
    for _ in 0..2 {
        let granules = plan(&mut heap, &mut miss);
        let second =
            granules.steps().iter().skip(1).position(|step| matches!(step, Step::Create { .. }));
        let failed_at = 1 + second.unwrap();
        heap.carried_out(&mut miss, granules, Err(refused(true, failed_at)));
        assert_eq!(heap.stats().all.reserved_bytes.current, 0);
    }
    assert!(matches!(next(&mut heap, &mut miss), Next::AskNeighbours(0)));
    miss.note(false);
    assert!(matches!(next(&mut heap, &mut miss), Next::GiveUp(Refusal::OutOfMemory(ERROR))));
    heap.check().unwrap();
}

#[test]
fn only_a_lack_of_memory_is_worth_the_ladder() {
    for (is_out_of_memory, captured) in [(true, Captured::None), (false, Captured::None)] {
        let mut heap = heap(u64::MAX);
        let mut miss = miss(&mut heap, captured);
        assert!(matches!(next(&mut heap, &mut miss), Next::CollectFences));
        let reservation = plan(&mut heap, &mut miss);
        heap.carried_out(&mut miss, reservation, Ok(1 << 40));
        let growth = plan(&mut heap, &mut miss);
        // Access is what lacks, and there is nothing to unmap.
        let last = growth.steps().len() - 1;
        assert!(matches!(growth.steps()[last], Step::SetAccess { .. }));
        heap.carried_out(&mut miss, growth, Err(refused(is_out_of_memory, last)));
        match next(&mut heap, &mut miss) {
            Next::AwaitFences => assert!(is_out_of_memory),
            Next::GiveUp(Refusal::Driver(ERROR)) => assert!(!is_out_of_memory),
            next => panic!("{next:?}"),
        }
        heap.check().unwrap();
    }
}

#[test]
fn a_remap_without_mappings_is_refused_although_large_handles_were_before() {
    let mut heap = heap(8 * MIB);
    let stream = heap.add_stream();
    let mut addresses = Vec::new();
    for _ in 0..4 {
        let mut miss = Miss::<&str>::new(PoolId::DEFAULT, stream, 2 * MIB, Captured::None);
        addresses.push(loop {
            match next(&mut heap, &mut miss) {
                Next::Granted(granted) => break granted.address,
                Next::CarryOut(plan) => heap.carried_out(&mut miss, plan, Ok(1 << 40)),
                Next::CollectFences => {}
                // Nothing can move.
                Next::Compact => miss.note(false),
                next => panic!("{next:?}"),
            }
        });
    }
    for at in [0, 2] {
        assert!(matches!(heap.free(addresses[at]), Ok(Freed::Done)));
    }
    heap.headroom.note_growth_failed(true);
    let mut miss = Miss::<&str>::new(PoolId::DEFAULT, stream, 4 * MIB, Captured::None);
    let mut refused_remaps = 0;
    loop {
        match next(&mut heap, &mut miss) {
            Next::CollectFences => {}
            Next::CarryOut(plan) => {
                let last = plan.steps().len() - 1;
                let is_remap = matches!(plan.steps()[last], Step::SetAccess { .. });
                refused_remaps += usize::from(is_remap);
                assert!(refused_remaps < 10, "the same is tried for ever");
                let done = if is_remap { Err(refused(true, last)) } else { Ok(2 << 40) };
                heap.carried_out(&mut miss, plan, done);
            }
            Next::GiveUp(Refusal::OutOfMemory(ERROR)) => break,
            _ => miss.note(false),
        }
    }
    assert_eq!(refused_remaps, 1);
}

/// Growth that would leave no room for a move waits until what can move has moved, once.
#[test]
fn the_last_of_a_device_is_taken_only_when_nothing_moves_for_it() {
    for (limit_bytes, moves_first) in [(256 * MIB, false), (34 * MIB, true)] {
        let mut heap = heap(limit_bytes);
        let mut miss = miss(&mut heap, Captured::None);
        assert!(matches!(next(&mut heap, &mut miss), Next::CollectFences));
        let reservation = plan(&mut heap, &mut miss);
        heap.carried_out(&mut miss, reservation, Ok(1 << 40));
        if moves_first {
            assert!(matches!(next(&mut heap, &mut miss), Next::Compact));
            assert!(heap.plan_compaction_for(miss.bytes()).is_none());
            miss.note(false);
        }
        assert!(matches!(plan(&mut heap, &mut miss).steps()[0], Step::Create { .. }));
        // While anything is captured nothing moves.
        let mut other = self::miss(&mut heap, Captured::Other);
        while !matches!(next(&mut heap, &mut other), Next::CarryOut(_)) {}
    }
}

#[test]
fn an_allocation_that_passes_the_limit_is_given_back_and_refused() {
    let mut pools = AsyncPools::new(8 * MIB);
    let stream = pools.add_stream();
    let mut miss: Miss<&str> = Miss::new(PoolId::DEFAULT, stream, 4 * MIB, Captured::Own);
    let Next::CarryOut(pending) = pools.next(&mut miss) else { panic!("{miss:?}") };
    let given = DriverAlloc { address: 512, is_graphs: false, reserved_bytes: Some(32 * MIB) };
    let block = pools.allocated(&mut miss, pending, Ok(given)).unwrap();
    pools.finish_free(block, true);
    assert!(matches!(pools.next(&mut miss), Next::GiveUp(Refusal::Limit)));
    let mut miss: Miss<&str> = Miss::new(PoolId::DEFAULT, stream, 512, Captured::Own);
    pools.observe(0, 0);
    let Next::CarryOut(pending) = pools.next(&mut miss) else { panic!("{miss:?}") };
    assert!(pools.allocated(&mut miss, pending, Err(refused(false, 0))).is_none());
    assert!(matches!(pools.next(&mut miss), Next::GiveUp(Refusal::Driver(ERROR))));
}
