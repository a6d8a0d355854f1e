//! Reads every trace of `traces/`, and of `../shared/traces` where that folder exists, and writes
//! it again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use drystone_trace::codec::{self, Limits};

/// Those traces by the names of their files, each once.
fn traces() -> BTreeMap<OsString, PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let shared = root.join("../shared/traces");
    let folders = [shared.join("public"), shared.join("minimalloc"), shared, root.join("traces")];
    folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), entry.path()))
        .filter(|(name, _)| name.to_string_lossy().ends_with(".csv.zst"))
        .collect()
}

/// The lines of a file as operation, id, size, stream and time, streams numbered from 0 without
/// gaps and times counted from the first.
fn rows(text: &[u8]) -> Vec<(char, [u64; 4])> {
    let text = std::str::from_utf8(text).unwrap();
    let rows = text.lines().skip_while(|line| line.starts_with('#')).skip(1);
    let mut rows: Vec<(char, [u64; 4])> = rows
        .map(|row| {
            let mut fields = row.split(',');
            let op = fields.next().unwrap().chars().next().unwrap();
            (op, std::array::from_fn(|_| fields.next().unwrap().parse().unwrap()))
        })
        .collect();
    let first_ns = rows[0].1[3];
    let streams: BTreeSet<u64> = rows.iter().map(|row| row.1[2]).chain([0]).collect();
    let numbers: HashMap<u64, u64> = streams.into_iter().zip(0..).collect();
    for (_, [.., stream, time_ns]) in &mut rows {
        *stream = numbers[stream];
        *time_ns -= first_ns;
    }
    rows
}

#[test]
fn real_traces_round_trip_to_the_same_lines() {
    let traces = traces();
    assert!(traces.len() >= 15, "those of this repository: {traces:?}");
    for path in traces.into_values() {
        let started = Instant::now();
        let traces = codec::read_path(&path, &Limits::default()).unwrap();
        let took = started.elapsed();
        let [trace] = traces.as_slice() else { panic!("{} has one trace", path.display()) };
        println!("{}: {} events in {took:?}", trace.name, trace.events.len());
        let text = zstd::decode_all(fs::File::open(&path).unwrap()).unwrap();
        let mut written = Vec::new();
        codec::csv::write(trace, &mut written).unwrap();
        let (before, after) = (rows(&text), rows(&written));
        assert_eq!(before.len(), after.len());
        // Not every file takes the smallest free id, but ids correspond one to one while live.
        let mut ids = HashMap::new();
        for ((op, old), (new_op, new)) in before.into_iter().zip(after) {
            assert_eq!((op, &old[1..]), (new_op, &new[1..]), "{}", path.display());
            match op {
                'a' => assert_eq!(ids.insert(old[0], new[0]), None),
                'f' => assert_eq!(ids.remove(&old[0]), Some(new[0])),
                _ => assert_eq!(old[0], new[0]),
            }
        }
    }
}
