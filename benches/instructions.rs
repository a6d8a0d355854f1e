//! Instructions of the hit path, counted by valgrind: the same twice on any machine, so a change of
//! a few instructions shows. Needs `valgrind` and `gungraun-runner` of the same version.
#![allow(missing_docs, unused_qualifications, reason = "gungraun expands to both")]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;

use drystone_benches::Warm;
use drystone_benches::held::Held;
use drystone_core::StreamId;
use gungraun::{library_benchmark, library_benchmark_group, main};

/// Pairs counted at once, so that the count of one is exact to a hundredth.
const PAIRS: u32 = 100;

fn warm() -> Warm {
    Warm::new().unwrap()
}

#[library_benchmark]
#[bench::exact_bin(args = (1 << 10), setup = with_size)]
#[bench::wide_bin(args = (100_000), setup = with_size)]
#[bench::large(args = (5 << 20), setup = with_size)]
fn hundred_pairs((warm, bytes): (Warm, u64)) -> Warm {
    for _ in 0..PAIRS {
        warm.pair(black_box(bytes)).unwrap();
    }
    warm
}

fn with_size(bytes: u64) -> (Warm, u64) {
    (warm(), bytes)
}

// A miss of 64 MiB with so many holes of a granule: all the calls of the heap that it takes, from
// the search of the free list to the end of the remap.
#[library_benchmark]
#[bench::holes_1000(args = (1_000), setup = with_holes)]
#[bench::holes_10000(args = (10_000), setup = with_holes)]
fn remap((mut held, stream): (Held, StreamId)) -> Held {
    held.allocate("remap", stream, black_box(64 << 20));
    held
}

/// There are addresses for windows already, and an idle window.
fn with_holes(holes: usize) -> (Held, StreamId) {
    let (mut held, [stream, _]) = Held::with_holes(holes);
    let block = held.allocate("remap", stream, 32 << 20);
    held.free("free", block);
    (held, stream)
}

library_benchmark_group!(name = hit_path; benchmarks = hundred_pairs);
library_benchmark_group!(name = misses; benchmarks = remap);
main!(library_benchmark_groups = hit_path, misses);
