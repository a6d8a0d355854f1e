//! A block that grows, step by step: what a program may say of it meanwhile.

use crate::heap::{Freed, Heap};
use crate::plan::Step;
use crate::{Committed, Config, Outcome, PoolId, Reuse, SegmentKind, StateMachine, StreamId};

const GRANULE: u64 = 2 << 20;
const ADDRESS: u64 = 1 << 40;

fn grow(heap: &mut Heap, pool: PoolId, stream: StreamId) -> u64 {
    loop {
        match heap.request(pool, stream, GRANULE, Reuse::MayWait).unwrap() {
            Outcome::Granted(granted) => return granted.address,
            Outcome::Plan(plan) => {
                if let Committed::Granted(granted) = heap.commit(plan, ADDRESS) {
                    return granted.address;
                }
            }
        }
    }
}

#[test]
fn a_use_that_is_told_of_between_growth_and_join_stays() {
    let mut heap = Heap::new(Config::new(SegmentKind::Mapped, GRANULE, 1 << 40));
    let (stream, other) = (heap.add_stream(), heap.add_stream());
    let pool = heap.add_growing_pool(8 * GRANULE).unwrap();
    let room = heap.plan_room(pool, stream).unwrap();
    heap.commit(room, ADDRESS);
    let block = grow(&mut heap, pool, stream);
    let given = grow(&mut heap, pool, stream);
    heap.record_stream(given, other).unwrap();
    heap.join_live(block, given).unwrap();
    heap.check().unwrap();
    let Freed::Plan(plan) = heap.free(block).unwrap() else { panic!("the use is forgotten") };
    assert!(matches!(plan.steps(), [Step::Record { fence }] if fence.stream == other));
    heap.commit(*plan, 0);
    heap.check().unwrap();
}
