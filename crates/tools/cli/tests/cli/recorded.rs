//! A program records itself, and the command reads it.

use std::sync::Arc;

use drystone::driver::Stream;
use drystone::{Allocator, Options};
use drystone_sim::{SimConfig, SimDevice};

use crate::tool::{drystone, file, folder};

#[test]
fn what_an_allocator_records_is_compared() {
    let (folder, _) = folder();
    let file = file(&folder, "program.csv");
    let device = Arc::new(SimDevice::new(SimConfig { total_bytes: 4 << 30, ..Default::default() }));
    let allocator = Allocator::new(Arc::<SimDevice>::clone(&device), &Options::default()).unwrap();
    let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
    let other = allocator.add_stream(device.create_stream()).unwrap();
    let older = allocator.allocate(stream, 40 << 20).unwrap();
    let recording = allocator.record(&file).unwrap();
    assert!(allocator.record(&file).is_err(), "recorded twice");
    let pool = allocator.add_pool();
    let graphs = allocator.allocate_raw(pool, other, 5 << 20).unwrap();
    let mut cache = allocator.reserve(stream, 1 << 30).unwrap();
    for round in 1..20 {
        cache.grow_to(round << 22).unwrap();
        let scratch = allocator.allocate(stream, 1000 * round).unwrap();
        scratch.record_stream(other).unwrap();
        recording.mark_iteration();
    }
    assert!(allocator.free_sized(graphs.address, 7).is_err());
    allocator.free(graphs.address).unwrap();
    assert!(allocator.free(graphs.address).is_err());
    assert!(allocator.allocate(stream, 5 << 30).is_err());
    drop((older, cache));
    allocator.trim().unwrap();
    // Before: one live block. 19 scratches with uses, marks, and growths of which all but the first
    // free first; the pool's block; a refusal, two frees and a trim at the end.
    let events = recording.end().unwrap();
    assert_eq!(events, 1 + 19 * (3 + 1) + 2 * 19 - 1 + 2 + 1 + 2 + 1);
    drop(allocator.allocate(stream, 1 << 20).unwrap());
    let runs = drystone(["compare", &file, "--json"]).expect(0).runs();
    assert!(runs.len() > 3, "{runs:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count() as u64, events + 2);
    assert!(text.contains("\no,0,5368709120,1,") && text.contains("\ne,0,0,0,"), "{text}");
}
