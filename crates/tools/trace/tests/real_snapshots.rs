//! Reads the snapshots of `../shared/snapshots`, where that folder exists, and writes them again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use drystone_trace::codec::{self, Limits};
use drystone_trace::model::{Kind, Trace};
use drystone_trace::snapshot::Action;

fn snapshots() -> Vec<(PathBuf, Trace)> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/snapshots"));
    let mut found = Vec::new();
    for entry in fs::read_dir(&root).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "pickle") {
            let started = Instant::now();
            let mut traces = codec::read_path(&path, &Limits::default()).unwrap();
            let took = started.elapsed();
            assert_eq!(traces.len(), 1, "{}", path.display());
            let trace = traces.remove(0);
            println!("{}: {} events in {took:?}", trace.name, trace.events.len());
            found.push((path, trace));
        }
    }
    if found.is_empty() {
        println!("skipped: needs recorded snapshots in {}", root.display());
    }
    found
}

#[test]
fn peak_reserved_is_what_the_segment_entries_say() {
    for (path, trace) in snapshots() {
        let recording = trace.recording.as_ref().unwrap();
        // These two recordings began before the first allocation: the sum starts at nothing.
        let (mut held, mut peak) = (0, 0);
        for entry in &recording.snapshot.device_traces[0] {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => held += entry.bytes,
                Action::SegmentFree | Action::SegmentUnmap => held -= entry.bytes,
                _ => {}
            }
            peak = peak.max(held);
        }
        assert_eq!(recording.peak_reserved_bytes(), peak, "{}", path.display());
        let total: u64 = recording.snapshot.segments.iter().map(|s| s.bytes).sum();
        assert_eq!(recording.reserved.last().unwrap().bytes, total);
        assert_eq!(recording.reserved[0].bytes, 0);
    }
}

#[test]
fn every_entry_becomes_its_event() {
    for (path, trace) in snapshots() {
        let recording = trace.recording.as_ref().unwrap();
        let entries = &recording.snapshot.device_traces[0];
        let count = |action| entries.iter().filter(|entry| entry.action == action).count();
        let events = |kind| trace.events.iter().filter(|event| event.kind == kind).count();
        assert_eq!(events(Kind::Allocate), count(Action::Alloc), "{}", path.display());
        assert_eq!(events(Kind::Free), count(Action::FreeRequested));
        assert_eq!(events(Kind::Iteration), 3, "an optimiser step each");
        assert_eq!(events(Kind::RecordStream), 0);
        assert_eq!((trace.streams, trace.pools), (1, 1));
        assert_eq!(recording.addresses.len(), trace.events.len());
        assert_eq!(recording.stacks.len(), trace.events.len());
        let stacks = &recording.snapshot.stacks;
        let deepest = recording.stacks.iter().flatten().map(|s| stacks.frames(*s).count()).max();
        assert!(deepest > Some(4), "stacks were recorded");
    }
}

#[test]
fn snapshots_survive_pickle_and_json() {
    for (path, trace) in snapshots() {
        let before = &trace.recording.as_ref().unwrap().snapshot;
        let (mut pickle, mut json) = (Vec::new(), Vec::new());
        before.write_pickle(&mut pickle).unwrap();
        before.write_json(&mut json).unwrap();
        for text in [pickle, json] {
            let again = codec::read(&text[..], "again.pickle", &Limits::default()).unwrap();
            let after = &again[0].recording.as_ref().unwrap().snapshot;
            assert!(before == after, "{}", path.display());
            assert_eq!(again[0].events, trace.events);
            assert_eq!(again[0].recording.as_ref().unwrap().stacks.len(), trace.events.len());
        }
    }
}
