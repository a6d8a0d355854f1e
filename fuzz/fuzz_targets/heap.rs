//! Any sequence of operations on a heap, with plans that succeed and plans that fail: every
//! invariant holds after each, and no two live blocks overlap.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use drystone_core::{
    Captured, Config, CrossStream, Failure, Fence, Freed, Granted, Heap, Miss, Next, Plan, PoolId,
    SegmentKind, StateMachine, Step, StreamId,
};
use libfuzzer_sys::fuzz_target;

/// Operations beyond this say nothing new and make `check` slow.
const OPERATIONS_MAX: usize = 200;
const GRANULE_BYTES: u64 = 2 << 20;
/// More answers no miss gets: the plans of its tries, and the ladder.
const ANSWERS_MAX: usize = 24;
/// More plans no compaction takes: each moves a handle, or makes room for that.
const COMPACTION_PLANS_MAX: usize = 4096;

#[derive(Arbitrary, Debug)]
struct Input {
    is_plain: bool,
    cross_stream: u8,
    left_per_handle: u8,
    limit_mib: u16,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Allocate { stream: u8, kib: u16, more: u16, fails: bool },
    Free { block: u8, fails: bool },
    FreeAnything { address: u64 },
    RecordStream { block: u8, stream: u8 },
    Pass { fence: u8 },
    Trim { done: u8 },
    Compact { done: u8 },
    Synchronize { fails: bool },
    AddStream,
    RetireStream { stream: u8, fails: bool },
}

struct World {
    heap: Heap,
    streams: Vec<StreamId>,
    /// Address to end of every live block.
    live: BTreeMap<u64, u64>,
    fences: Vec<Fence>,
    next_address: u64,
}

impl World {
    fn new(input: &Input) -> Self {
        let kind = if input.is_plain { SegmentKind::Plain } else { SegmentKind::Mapped };
        let cross_stream = [CrossStream::Never, CrossStream::Passed, CrossStream::Wait]
            [input.cross_stream as usize % 3];
        let config = Config::new(kind, GRANULE_BYTES, 1 << 30)
            .with_limit_bytes(u64::from(input.limit_mib) << 20)
            .with_cross_stream(cross_stream)
            .with_left_per_handle(u64::from(input.left_per_handle));
        let mut heap = Heap::new(config);
        let streams = vec![heap.add_stream()];
        Self { heap, streams, live: BTreeMap::new(), fences: Vec::new(), next_address: 1 << 30 }
    }

    /// The address that a plan's step gives; fences are recorded.
    fn carry_out(&mut self, plan: &Plan) -> u64 {
        let mut address = 0;
        for step in plan.steps() {
            match *step {
                Step::Reserve { bytes, .. } | Step::Malloc { bytes } => {
                    address = self.next_address;
                    self.next_address += bytes.next_multiple_of(GRANULE_BYTES) + GRANULE_BYTES;
                }
                Step::Record { fence } => self.fences.push(fence),
                _ => {}
            }
        }
        address
    }

    /// Hands a plan back as done or as undone.
    fn settle(&mut self, plan: Plan, fails: bool) {
        if fails {
            self.heap.abandon(plan, 0);
        } else {
            let address = self.carry_out(&plan);
            self.heap.commit(plan, address);
        }
    }

    fn allocate(&mut self, stream: StreamId, bytes: u64, fails: bool) {
        let mut miss = Miss::new(PoolId::DEFAULT, stream, bytes, Captured::None);
        for _ in 0..ANSWERS_MAX {
            match self.heap.next(&mut miss) {
                Next::Granted(granted) => return self.take(granted, bytes),
                Next::CarryOut(plan) => {
                    let failure =
                        Failure { error: (), is_out_of_memory: true, failed_at: 0, in_effect: 0 };
                    let done = if fails { Err(failure) } else { Ok(self.carry_out(&plan)) };
                    self.heap.carried_out(&mut miss, plan, done);
                }
                Next::CollectFences => {}
                // A device that fails does not say, either.
                Next::LookAtDevice => miss.note_free((!fails).then_some(1 << 30)),
                Next::GiveUp(_) => return,
                Next::Compact => {
                    let has_moved = !fails && self.compact_for(bytes);
                    miss.note(has_moved);
                }
                Next::AwaitFences
                | Next::Synchronize
                | Next::Trim
                | Next::AskNeighbours(_)
                | Next::AskProgram => {
                    miss.note(false);
                }
            }
        }
        panic!("a request is neither served nor refused");
    }

    /// Moves what is live together for a request. True if anything has moved.
    fn compact_for(&mut self, bytes: u64) -> bool {
        let before = self.heap.stats().moves;
        for _ in 0..COMPACTION_PLANS_MAX {
            let Some(plan) = self.heap.plan_compaction_for(bytes) else {
                return self.heap.stats().moves > before;
            };
            self.settle(plan, false);
            self.heap.check().expect("every invariant holds");
        }
        panic!("a compaction does not end");
    }

    fn take(&mut self, granted: Granted, bytes: u64) {
        assert!(granted.bytes >= bytes);
        let end = granted.address + granted.bytes;
        let before = self.live.range(..end).next_back();
        assert!(before.is_none_or(|(_, &before_end)| before_end <= granted.address));
        self.live.insert(granted.address, end);
    }

    fn nth_live(&self, block: u8) -> Option<u64> {
        let at = usize::from(block) % self.live.len().max(1);
        self.live.keys().nth(at).copied()
    }

    fn stream(&self, stream: u8) -> StreamId {
        self.streams[usize::from(stream) % self.streams.len()]
    }

    fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Allocate { stream, kib, more, fails } => {
                let bytes = u64::from(kib) * 1024 + u64::from(more);
                self.allocate(self.stream(stream), bytes, fails);
            }
            Operation::Free { block, fails } => {
                let Some(address) = self.nth_live(block) else { return };
                self.live.remove(&address);
                let freed = self.heap.free(address).expect("a live block can be freed");
                assert!(self.heap.free(address).is_err());
                if let Freed::Plan(plan) = freed {
                    self.settle(*plan, fails);
                }
            }
            Operation::FreeAnything { address } => {
                if !self.live.contains_key(&address) {
                    assert!(self.heap.free(address).is_err());
                }
            }
            Operation::RecordStream { block, stream } => {
                if let Some(address) = self.nth_live(block) {
                    // A retired stream is refused, which is all right.
                    let _ = self.heap.record_stream(address, self.stream(stream));
                }
            }
            Operation::Pass { fence } => {
                if !self.fences.is_empty() {
                    let fence = self.fences.remove(usize::from(fence) % self.fences.len());
                    self.heap.fence_passed(fence);
                }
            }
            Operation::Trim { done } => {
                if let Some(plan) = self.heap.plan_trim() {
                    let steps = plan.steps().len();
                    match usize::from(done) {
                        done if done < steps => self.heap.abandon(plan, done),
                        _ => drop(self.heap.commit(plan, 0)),
                    }
                }
            }
            Operation::Compact { done } => {
                if let Some(plan) = self.heap.plan_full_compaction() {
                    // A move that fails is undone; what makes room for one stands.
                    let steps = if plan.is_all_or_nothing() { 1 } else { plan.steps().len() };
                    match usize::from(done) {
                        done if done < steps => self.heap.abandon(plan, done),
                        _ => drop(self.heap.commit(plan, 0)),
                    }
                }
            }
            Operation::Synchronize { fails } => {
                let plan = self.heap.plan_synchronize();
                self.settle(plan, fails);
            }
            Operation::AddStream => {
                let stream = self.heap.add_stream();
                self.streams.push(stream);
            }
            Operation::RetireStream { stream, fails } => {
                if let Ok(plan) = self.heap.retire_stream(self.stream(stream)) {
                    self.settle(plan, fails);
                }
            }
        }
    }
}

fuzz_target!(|input: Input| {
    let mut world = World::new(&input);
    for operation in input.operations.iter().take(OPERATIONS_MAX) {
        world.run(operation);
        world.heap.check().expect("every invariant holds");
    }
    for address in std::mem::take(&mut world.live).into_keys() {
        match world.heap.free(address).expect("a live block can be freed") {
            Freed::Done => {}
            Freed::Plan(plan) => world.settle(*plan, false),
        }
    }
    let plan = world.heap.plan_synchronize();
    world.settle(plan, false);
    while let Some(plan) = world.heap.plan_trim() {
        world.heap.commit(plan, 0);
    }
    assert_eq!(world.heap.stats().all.reserved_bytes.current, 0, "everything was given back");
});
