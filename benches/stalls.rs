//! How long the heap is held at a time: the longest stretch of each operation of a large heap, in
//! processor time. No other thread's hit is served meanwhile.
//!
//! Keeps: what is slow by chance is taken out. Each scenario runs several times, and counted is the
//! shortest time that its longest stretch took.
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use drystone_benches::held::{Held, Stretches};
use drystone_core::{CrossStream, PinKey, PoolId, Prefer, StateMachine, StreamId};

const MIB: u64 = 1 << 20;
/// How often a scenario runs.
const RUNS: usize = 3;

/// A name, and what makes the heap and asks it.
type Scenario = (&'static str, fn() -> Stretches);

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
    let (mut held, [a, b]) = Held::with_holes(10_000);
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
        held.hold("unpin", |heap| heap.unpin(PinKey::Block(block)));
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
