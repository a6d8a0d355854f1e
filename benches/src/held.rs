//! A heap in the middle of a program, and a device that does at once what the heap plans.
//!
//! Keeps: each call of the heap is timed by itself, in processor time. It is what the library does
//! with the heap's lock held, so no other thread's hit is served meanwhile.
#![expect(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark fails by panicking"
)]

use std::collections::BTreeMap;

use drystone_core::{
    Captured, Committed, Config, CrossStream, Fence, Freed, Heap, Miss, Next, Plan, PoolId, Prefer,
    SegmentKind, SnapshotBuffer, StateMachine, Step, StreamId,
};
use rustix::time::{ClockId, clock_gettime};

const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 80 << 30;

/// Longest stretches in ns, with the number of stretches, by operation.
pub type Stretches = BTreeMap<&'static str, (u64, usize)>;

/// A heap, and a device that does what it plans at once.
#[derive(Debug)]
pub struct Held {
    /// The heap.
    pub heap: Heap,
    next_address: u64,
    /// Fences that were recorded; what has passed is told by `pass_all`.
    recorded: Vec<Fence>,
    /// How long its calls took.
    pub stretches: Stretches,
}

impl Held {
    /// A heap of a program that prefers memory, with so many holes of a granule between live
    /// blocks, of the first of two streams.
    pub fn with_holes(holes: usize) -> (Self, [StreamId; 2]) {
        let mut held = Self::new(Prefer::Memory, CrossStream::Wait);
        let streams = [(); 2].map(|()| held.heap.add_stream());
        let blocks: Vec<u64> = (0..2 * holes)
            .map(|_| held.allocate("miss while it grows", streams[0], 2 * MIB))
            .collect();
        blocks.iter().step_by(2).for_each(|&block| held.free("free", block));
        (held, streams)
    }

    /// An empty heap of a device of 80 GiB, in granules of 2 MiB.
    pub fn new(prefer: Prefer, cross_stream: CrossStream) -> Self {
        let config = Config::new(SegmentKind::Mapped, 2 * MIB, DEVICE_BYTES);
        Self {
            heap: Heap::new(config.with_prefer(prefer).with_cross_stream(cross_stream)),
            next_address: 1 << 41,
            recorded: Vec::new(),
            stretches: Stretches::new(),
        }
    }

    /// One call of the heap.
    pub fn hold<T>(&mut self, operation: &'static str, call: impl FnOnce(&mut Heap) -> T) -> T {
        let start = thread_ns();
        let result = call(&mut self.heap);
        let spent = thread_ns() - start;
        let (longest, count) = self.stretches.entry(operation).or_default();
        (*longest, *count) = (spent.max(*longest), *count + 1);
        result
    }

    /// Does what a plan says. Returns the address that was reserved, if any.
    fn carry_out(&mut self, plan: &Plan) -> u64 {
        let mut reserved = 0;
        for step in plan.steps() {
            match *step {
                Step::Reserve { bytes, alignment } => {
                    reserved = self.next_address.next_multiple_of(alignment);
                    self.next_address = reserved + bytes;
                }
                Step::Record { fence } => self.recorded.push(fence),
                _ => {}
            }
        }
        reserved
    }

    /// Serves a request, with all the plans that takes.
    pub fn allocate(&mut self, operation: &'static str, stream: StreamId, bytes: u64) -> u64 {
        let pool = PoolId::DEFAULT;
        let served = self.hold("hit, or none", |heap| heap.allocate(pool, stream, bytes));
        if let Some(granted) = served.unwrap() {
            return granted.address;
        }
        let mut miss: Miss<()> = Miss::new(pool, stream, bytes, Captured::None);
        loop {
            match self.hold(operation, |heap| heap.next(&mut miss)) {
                Next::Granted(granted) => return granted.address,
                Next::CarryOut(plan) => {
                    let address = self.carry_out(&plan);
                    self.hold(operation, |heap| heap.carried_out(&mut miss, plan, Ok(address)));
                }
                Next::LookAtDevice => {
                    let reserved = self.heap.stats().all.reserved_bytes.current;
                    miss.note_free(Some(DEVICE_BYTES - reserved));
                }
                Next::CollectFences => {}
                next => panic!("{bytes} bytes: {next:?}"),
            }
        }
    }

    /// Frees a block.
    pub fn free(&mut self, operation: &'static str, address: u64) {
        match self.hold(operation, |heap| heap.free(address)).unwrap() {
            Freed::Done => {}
            Freed::Plan(plan) => {
                let address = self.carry_out(&plan);
                self.hold(operation, |heap| heap.commit(*plan, address));
            }
        }
    }

    /// Carries a plan out, and hands it back.
    pub fn commit(&mut self, operation: &'static str, plan: Plan) -> Committed {
        let address = self.carry_out(&plan);
        self.hold(operation, |heap| heap.commit(plan, address))
    }

    /// The device has come to the end of everything: told as the library does, stream by stream and
    /// in parts.
    pub fn pass_all(&mut self) {
        let mut last = BTreeMap::new();
        for fence in std::mem::take(&mut self.recorded) {
            last.insert(fence.stream, fence);
        }
        for fence in last.into_values() {
            let tell = |heap: &mut Heap| {
                let part = heap.part_of(fence);
                heap.fence_passed(part);
                part
            };
            while self.hold("fences have passed", tell) != fence {}
        }
    }

    /// Waits for the device, then gives back what is unused.
    pub fn trim(&mut self) {
        let plan = self.hold("trim: wait for the device", StateMachine::plan_synchronize);
        self.commit("trim: wait for the device", plan);
        while let Some(plan) = self.hold("trim: plan", |heap| heap.plan_trim()) {
            self.commit("trim: commit", plan);
        }
    }

    /// What is asked of a heap.
    pub fn ask(&mut self) {
        let mut blocks = 0;
        loop {
            let buffer = SnapshotBuffer::for_blocks(blocks);
            match self.hold("snapshot: copy", |heap| heap.copy(buffer)) {
                Ok(copy) => break assert!(!copy.views().is_empty()),
                Err(missing) => blocks = missing,
            }
        }
        self.hold("statistics by pool and stream", |heap| drop(heap.pool_stream_stats()));
        self.hold("largest free block", |heap| heap.largest_free_bytes());
        self.hold("budget", |heap| heap.unused_bytes());
    }
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
