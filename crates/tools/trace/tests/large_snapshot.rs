//! A snapshot of 200,000 entries with stacks, as a long training run leaves it behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::timed;
use drystone_trace::codec::{self, Limits};
use drystone_trace::snapshot::{Action, DistinctStacks, Entry, Frame, Snapshot};

/// Entries with 28 frames each out of 400, nearly every stack another one.
fn large(entries: u64) -> Snapshot {
    let mut stacks = DistinctStacks::default();
    let frames: Vec<u32> = (0..400)
        .map(|line| {
            let filename = format!("/usr/lib/python3/site-packages/torch/nn/modules/m{line}.py");
            let name = format!("forward_{line}").into();
            let frame = Frame { filename: filename.into(), line, name, ..Frame::default() };
            stacks.add_frame(frame)
        })
        .collect();
    let trace = (0..entries).map(|n| {
        let numbers: Vec<u32> =
            (0..28).map(|depth| frames[(n * 31 + depth * (n % 389)) as usize % 400]).collect();
        Entry {
            action: Action::Alloc,
            address: 0x7f00_0000_0000 + n * 512,
            bytes: 1 + n * 7919 % (1 << 24),
            stream: 0,
            time_us: 1_795_220_877_484_203 + n as i64 * 3,
            pool: None,
            stack: Some(stacks.add(&numbers)),
            note: None,
        }
    });
    let device_traces = vec![trace.collect()];
    Snapshot { device_traces, stacks: stacks.into_stacks(), ..Snapshot::default() }
}

#[test]
fn a_large_snapshot_reads_well_under_a_second() {
    let mut snapshot = large(200_000);
    snapshot.notes.push(serde_json::Map::from_iter([
        ("compile_context".to_owned(), "N/A".into()),
        ("user_metadata".to_owned(), "".into()),
    ]));
    for entry in &mut snapshot.device_traces[0] {
        entry.note = Some(0);
    }
    let mut file = Vec::new();
    snapshot.write_pickle(&mut file).unwrap();
    assert!(file.len() > 26 << 20, "{} bytes", file.len());
    let (read, took) = timed(|| codec::read(&file[..], "large.pickle", &Limits::default()));
    let traces = read.unwrap();
    println!("{} bytes, {} events in {took:?}", file.len(), traces[0].events.len());
    assert_eq!(traces[0].events.len(), 200_000);
    let recording = traces[0].recording.as_ref().unwrap();
    assert!(recording.snapshot.device_traces == snapshot.device_traces);
    // Generous: development builds. Release builds take a third of a second.
    assert!(took < Duration::from_secs(5), "{took:?}");
}
