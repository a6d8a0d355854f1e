//! Decoding speed: traces and snapshots from disk into events. Files beside the repository are
//! timed where they are at hand.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drystone_trace::codec::{Limits, read_path};

const FILES: [&str; 4] = [
    "../traces/convnext_base_multires_train.csv.zst",
    "../traces/llama3_8b_generate_dyncache.csv.zst",
    "../../shared/snapshots/gpt2_train.pickle",
    "../../shared/snapshots/resnet50_train.pickle",
];

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode_events");
    group.sample_size(20);
    for file in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        if !path.exists() {
            eprintln!("{file} is not at hand: not timed");
            continue;
        }
        let events: usize =
            read_path(&path, &Limits::default()).unwrap().iter().map(|t| t.events.len()).sum();
        group.throughput(Throughput::Elements(events as u64));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        group.bench_function(name, |bencher| {
            bencher.iter(|| read_path(&path, &Limits::default()).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, decoding);
criterion_main!(benches);
