//! Replay speed in events per second, decoding excluded, over the traces shipped in `traces/`.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::path::Path;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drystone_models::drystone::Replay;
use drystone_sim::{SimConfig, SimDevice};
use drystone_trace::codec::{Limits, read_path};
use drystone_trace::replay::{Options, run};

/// One pass, with all figures of the first pass and no further timed ones.
const ONE_PASS: Options = Options { curve_points: 2048, timed_passes: 0 };

fn replays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay_events");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "zst"));
    paths.sort();
    for path in paths {
        for trace in read_path(&path, &Limits::default()).unwrap() {
            group.throughput(Throughput::Elements(trace.events.len() as u64));
            let set_up = || {
                let device = SimDevice::new(SimConfig::default());
                let options = drystone::Options::default();
                Replay::new(&options, &device, trace.streams, trace.pools).unwrap()
            };
            group.bench_function(BenchmarkId::from_parameter(&trace.name), |bencher| {
                bencher.iter_batched(
                    set_up,
                    |mut replay| run(&trace, &mut replay, &ONE_PASS),
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, replays);
criterion_main!(benches);
