//! Time of a malloc and its free on the hit path, one thread, lock included, simulated device.
//!
//! Fails if a pair makes a driver call: then it would not be the hit path that was timed.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drystone_benches::{SIZES, Warm};

fn pairs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("malloc_free_pair");
    group.throughput(Throughput::Elements(1));
    for bytes in SIZES {
        let warm = Warm::new().unwrap();
        let calls = warm.device.calls();
        group.bench_with_input(BenchmarkId::from_parameter(bytes), &bytes, |bencher, &bytes| {
            bencher.iter(|| warm.pair(black_box(bytes)));
        });
        assert_eq!(warm.device.calls(), calls, "a pair of {bytes} bytes called the driver");
    }
    group.finish();
}

criterion_group!(benches, pairs);
criterion_main!(benches);
