//! How long the heap is held at a time: the longest stretch of each operation of a large heap, in
//! processor time. No other thread's hit is served meanwhile.
//!
//! Keeps: a stretch is one call of the heap, which is what the library does with the heap's lock
//! held. What is slow by chance is taken out: each scenario runs several times, and counted is the
//! shortest time that its longest stretch took.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::collections::BTreeMap;

use drystone_core::{
    Captured, Committed, Config, CrossStream, Fence, Freed, Heap, Miss, Next, Plan, PoolId, Prefer,
    SegmentKind, SnapshotBuffer, StateMachine, Step, StreamId,
};
use rustix::time::{ClockId, clock_gettime};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DEVICE_BYTES: u64 = 80 * GIB;
/// How often a scenario runs.
const RUNS: usize = 3;

/// Longest stretches in ns, with the number of stretches, by operation.
type Stretches = BTreeMap<&'static str, (u64, usize)>;

/// A name, and what makes the heap and asks it.
type Scenario = (&'static str, fn() -> Stretches);

/// A heap, and a device that does what it plans at once.
struct Held {
    heap: Heap,
    next_address: u64,
    /// Fences that were recorded; what has passed is told by `pass_all`.
    recorded: Vec<Fence>,
    stretches: Stretches,
}

impl Held {
    fn new(prefer: Prefer, cross_stream: CrossStream) -> Self {
        let config = Config::new(SegmentKind::Mapped, 2 * MIB, DEVICE_BYTES);
        Self {
            heap: Heap::new(config.with_prefer(prefer).with_cross_stream(cross_stream)),
            next_address: 1 << 41,
            recorded: Vec::new(),
            stretches: Stretches::new(),
        }
    }

    /// One call of the heap.
    fn hold<T>(&mut self, operation: &'static str, call: impl FnOnce(&mut Heap) -> T) -> T {
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

    fn allocate(&mut self, operation: &'static str, stream: StreamId, bytes: u64) -> u64 {
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

    fn free(&mut self, operation: &'static str, address: u64) {
        match self.hold(operation, |heap| heap.free(address)).unwrap() {
            Freed::Done => {}
            Freed::Plan(plan) => {
                let address = self.carry_out(&plan);
                self.hold(operation, |heap| heap.commit(*plan, address));
            }
        }
    }

    fn commit(&mut self, operation: &'static str, plan: Plan) -> Committed {
        let address = self.carry_out(&plan);
        self.hold(operation, |heap| heap.commit(plan, address))
    }

    /// The device has come to the end of everything: told as the library does, stream by stream and
    /// in parts.
    fn pass_all(&mut self) {
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
    fn trim(&mut self) {
        let plan = self.hold("trim: wait for the device", StateMachine::plan_synchronize);
        self.commit("trim: wait for the device", plan);
        while let Some(plan) = self.hold("trim: plan", Heap::plan_trim) {
            self.commit("trim: commit", plan);
        }
    }

    /// What is asked of a heap.
    fn ask(&mut self) {
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

/// A million free blocks of one stream, none beside another, and a million live ones.
fn comb() -> Stretches {
    let mut held = Held::new(Prefer::Balanced, CrossStream::Wait);
    let [a, b] = [(); 2].map(|()| held.heap.add_stream());
    let blocks: Vec<u64> =
        (0..2_000_000).map(|_| held.allocate("miss while it grows", a, 1024)).collect();
    blocks.iter().step_by(2).for_each(|&block| held.free("free", block));
    for _ in 0..8 {
        held.allocate("miss of another stream, small", b, MIB);
    }
    for n in 1..8 {
        held.allocate("miss of another stream, large", b, n * 30 * MIB);
    }
    for &block in blocks.iter().step_by(200_001) {
        held.hold("bad free", |heap| drop(heap.free(block + 512)));
    }
    for n in [1, 500_001, 1_999_999] {
        let place = blocks[n - 1]..blocks[n - 1] + 1024;
        held.hold("allocate_at", |heap| {
            heap.allocate_at(PoolId::DEFAULT, a, 1024, place).unwrap();
        });
    }
    held.ask();
    held.trim();
    held.stretches
}

/// Ten thousand holes between live blocks, of one stream: a remap takes from many.
fn holes() -> Stretches {
    let mut held = Held::new(Prefer::Memory, CrossStream::Wait);
    let [a, b] = [(); 2].map(|()| held.heap.add_stream());
    let blocks: Vec<u64> =
        (0..20_000).map(|_| held.allocate("miss while it grows", a, 2 * MIB)).collect();
    blocks.iter().step_by(2).for_each(|&block| held.free("free", block));
    for n in 1..8 {
        let block = held.allocate("remap", a, n * 32 * MIB);
        held.free("free of a remap", block);
        let block = held.allocate("remap again", a, n * 32 * MIB);
        held.free("free of a remap", block);
    }
    for n in 1..8 {
        let block = held.allocate("remap by another stream", b, n * 34 * MIB);
        held.free("free of a remap", block);
        held.pass_all();
        held.allocate("miss with memory to take home", a, n * 36 * MIB);
    }
    held.ask();
    held.trim();
    held.stretches
}

/// A thousand streams, each with something free.
fn streams() -> Stretches {
    let mut held = Held::new(Prefer::Balanced, CrossStream::Wait);
    let streams: Vec<StreamId> =
        (0..1000).map(|_| held.hold("add a stream", StateMachine::add_stream)).collect();
    for &stream in &streams {
        for bytes in [4096, 3 * MIB] {
            let block = held.allocate("first miss of a stream", stream, bytes);
            held.free("free", block);
        }
    }
    for n in 0..20 {
        held.allocate("miss", streams[n * 50], (8 + n as u64) * MIB);
    }
    held.ask();
    for &stream in &streams[500..] {
        let plan = held.hold("release of a stream", |heap| heap.retire_stream(stream)).unwrap();
        held.commit("release of a stream", plan);
    }
    held.pass_all();
    for _ in 0..100 {
        held.hold("add a stream", StateMachine::add_stream);
    }
    held.trim();
    held.stretches
}

/// A hundred thousand blocks that another stream uses, freed before it has passed anything.
fn pending() -> Stretches {
    let mut held = Held::new(Prefer::Balanced, CrossStream::Wait);
    let [a, b] = [(); 2].map(|()| held.heap.add_stream());
    let blocks: Vec<u64> =
        (0..100_000).map(|_| held.allocate("miss while it grows", a, 4096)).collect();
    for &block in &blocks {
        held.hold("record_stream", |heap| heap.record_stream(block, b)).unwrap();
        held.free("free", block);
    }
    held.pass_all();
    held.stretches
}

/// Twenty thousand pinned blocks, each in handles of its own.
fn pins() -> Stretches {
    let mut held = Held::new(Prefer::Memory, CrossStream::Wait);
    let a = held.heap.add_stream();
    let blocks: Vec<u64> =
        (0..40_000).map(|_| held.allocate("miss while it grows", a, 2 * MIB)).collect();
    for &block in blocks.iter().rev().step_by(2) {
        held.hold("pin", |heap| heap.pin_mapping(block)).unwrap();
    }
    for &block in blocks.iter().rev().step_by(2) {
        held.hold("unpin", |heap| heap.unpin_mapping(block));
    }
    held.stretches
}

fn main() {
    let scenarios: [Scenario; 5] = [
        ("1,000,000 free blocks, as many live", comb),
        ("10,000 holes of 2 MiB", holes),
        ("1,000 streams", streams),
        ("100,000 pending blocks", pending),
        ("20,000 pins", pins),
    ];
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for (name, scenario) in scenarios {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        println!("{name}");
        let mut best = scenario();
        for _ in 1..RUNS {
            for (operation, (longest, _)) in scenario() {
                best.entry(operation).and_modify(|best| best.0 = best.0.min(longest));
            }
        }
        for (operation, (longest, count)) in best {
            println!("  {operation:34} {:>10.1} us  {count:>8} stretches", longest as f64 / 1e3);
        }
    }
}
