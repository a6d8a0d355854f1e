//! Any sequence of operations on a heap, with plans that succeed and plans that fail: every
//! invariant holds after each, and no two live blocks overlap.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use drystone_core::{
    Outcome, Committed, Config, CrossStream, Fence, Freed, Heap, Plan, PoolId, Reuse, SegmentKind,
    Step, StreamId,
};
use libfuzzer_sys::fuzz_target;

/// Operations beyond this say nothing new and make `check` slow.
const OPERATIONS_MAX: usize = 200;
const GRANULE_BYTES: u64 = 2 << 20;

#[derive(Arbitrary, Debug)]
struct Input {
    is_plain: bool,
    cross_stream: u8,
    held_per_handle: u8,
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
        let mut heap = Heap::new(Config {
            kind: if input.is_plain { SegmentKind::Plain } else { SegmentKind::Mapped },
            granule_bytes: GRANULE_BYTES,
            device_bytes: 1 << 30,
            limit_bytes: u64::from(input.limit_mib) << 20,
            cross_stream: [CrossStream::Never, CrossStream::Passed, CrossStream::Wait]
                [input.cross_stream as usize % 3],
            held_per_handle: u64::from(input.held_per_handle),
        });
        let streams = vec![heap.add_stream()];
        Self { heap, streams, live: BTreeMap::new(), fences: Vec::new(), next_address: 1 << 30 }
    }

    /// Hands a plan back as done or as undone; fences of done ones are recorded.
    fn settle(&mut self, plan: Plan, fails: bool) -> Option<Committed> {
        if fails {
            self.heap.abandon(plan, 0);
            return None;
        }
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
        Some(self.heap.commit(plan, address))
    }

    fn allocate(&mut self, stream: StreamId, bytes: u64, fails: bool) {
        // Two preparations at the most (a wait, a reservation), then the growth itself.
        for attempt in 0..4 {
            let reuse = if attempt == 0 { Reuse::MayWait } else { Reuse::Ordered };
            let grant = match self.heap.request(PoolId::DEFAULT, stream, bytes, reuse) {
                Ok(Outcome::Granted(grant)) => Some(grant),
                Ok(Outcome::Plan(plan)) => match self.settle(plan, fails) {
                    Some(Committed::Granted(grant)) => Some(grant),
                    Some(_) => continue, // prepared, or fences recorded
                    None => return,
                },
                Err(_) => return,
            };
            if let Some(grant) = grant {
                assert!(grant.bytes >= bytes);
                let end = grant.address + grant.bytes;
                let before = self.live.range(..end).next_back();
                assert!(before.is_none_or(|(_, &before_end)| before_end <= grant.address));
                self.live.insert(grant.address, end);
                return;
            }
        }
        panic!("a request was prepared four times and never served");
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
                    self.settle(plan, fails);
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
            Freed::Plan(plan) => drop(world.settle(plan, false)),
        }
    }
    let plan = world.heap.plan_synchronize();
    world.settle(plan, false);
    while let Some(plan) = world.heap.plan_trim() {
        world.heap.commit(plan, 0);
    }
    assert_eq!(world.heap.stats().all.reserved_bytes.current, 0, "everything was given back");
});
