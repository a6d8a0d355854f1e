//! Instructions of the hit path, counted by valgrind: the same twice on any machine, so a change of
//! a few instructions shows. Needs `valgrind` and `gungraun-runner` of the same version.
#![allow(missing_docs, unused_qualifications, reason = "gungraun expands to both")]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;

use drystone_benches::Warm;
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

library_benchmark_group!(name = hit_path; benchmarks = hundred_pairs);
main!(library_benchmark_groups = hit_path);
