//! Lines written by hand, and random traces there and back.

use proptest::prelude::*;

use super::columns::{HEADER, HEADER_POOLS, TITLE};
use super::{write, write_zst};
use crate::codec::builder::Builder;
use crate::codec::{Limits, read};
use crate::model::{Kind, Trace};

fn load(text: &str) -> Result<Trace, String> {
    let traces = read(text.as_bytes(), "dir/x.csv", &Limits::default());
    traces.map(|mut traces| traces.remove(0)).map_err(|error| error.to_string())
}

fn rows(lines: &str) -> Result<Trace, String> {
    load(&format!("# gpu-alloc-trace v1\n{HEADER}\n{lines}"))
}

#[test]
fn reads_every_operation() {
    let trace = rows(
        "a,0,100,0,5\na,1,200,7,6\ns,1,200,0,6\nf,0,100,0,7\ne,0,0,0,7\nm,0,0,0,8\n\
         a,0,300,0,9\no,0,400,7,9\nf,1,200,7,10\nw,0,0,0,10\nc,0,0,7,11\nd,0,0,7,12",
    )
    .unwrap();
    let of = |e: &crate::model::Event| (e.kind, e.block, e.bytes, e.stream, e.time_ns);
    assert_eq!(
        trace.events.iter().map(of).collect::<Vec<_>>(),
        [
            (Kind::Allocate, 0, 100, 0, 0),
            (Kind::Allocate, 1, 200, 1, 1),
            (Kind::RecordStream, 1, 200, 0, 1),
            (Kind::Free, 0, 100, 0, 2),
            (Kind::EmptyCache, 0, 0, 0, 2),
            (Kind::Iteration, 0, 0, 0, 3),
            (Kind::Allocate, 0, 300, 0, 4),
            (Kind::OutOfMemory, 0, 400, 1, 4),
            (Kind::Free, 1, 200, 1, 5),
            (Kind::HostWait, 0, 0, 0, 5),
            (Kind::CaptureBegin, 0, 0, 1, 6),
            (Kind::CaptureEnd, 0, 0, 1, 7),
        ]
    );
    assert_eq!((trace.name.as_str(), trace.blocks, trace.streams, trace.pools), ("x", 2, 2, 1));
    trace.check().unwrap();
}

#[test]
fn takes_carriage_returns_empty_lines_and_comments() {
    let trace = load("op,id,bytes,stream,time_ns\r\n\r\n# note\r\na,0,1,0,0\r\nf,0,1,0,0\r\n\n");
    assert_eq!(trace.unwrap().events.len(), 2);
}

#[test]
fn ids_are_renumbered_to_the_smallest_free_one() {
    let trace = rows("a,0,1,0,0\na,1,1,0,0\na,2,1,0,0\nf,1,1,0,0\nf,0,1,0,0\na,1,1,0,0\n").unwrap();
    assert_eq!(trace.events[5].block, 0);
    trace.check().unwrap();
}

#[test]
fn pools_have_a_column_of_their_own() {
    let text = format!("{HEADER_POOLS}\na,0,1,0,0,2\nf,0,1,0,0,2\n");
    let trace = load(&text).unwrap();
    assert_eq!((trace.pools, trace.events[1].pool), (3, 2));
    let mut written = Vec::new();
    write(&trace, &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), format!("{TITLE}; name=x\n{text}"));
}

#[test]
fn compressed_traces_survive() {
    let trace = rows("a,0,100,0,0\nm,0,0,0,9\nf,0,100,0,10\n").unwrap();
    let mut file = Vec::new();
    write_zst(&trace, &mut file).unwrap();
    let again = read(&file[..], "a/x.csv.zst", &Limits::default()).unwrap().remove(0);
    assert_eq!((again.events, again.name), (trace.events, trace.name));
}

#[test]
fn bad_lines_are_named() {
    let cases = [
        ("x,0,1,0,0\n", "line 3: unknown operation `x`"),
        ("alloc,0,1,0,0\n", "line 3: unknown operation `alloc`"),
        ("a,0,1,0,0\nf,1,1,0,0\n", "line 4: id 1 is not live here"),
        ("a,0,1,0,0\nf,0,1,0,0\nf,0,1,0,0\n", "line 5: id 0 is not live here"),
        ("s,0,1,0,0\n", "line 3: id 0 is not live here"),
        ("f,18446744073709551615,1,0,0\n", "line 3: id 18446744073709551615 is not live"),
        ("a,0,1,0,0\na,0,1,0,0\n", "line 4: id 0 is allocated again while it is live"),
        ("a,5,1,0,0\n", "line 3: id 5 leaves ids out; the next new one is 0"),
        ("a,0,0,0,0\n", "line 3: a request of 0 bytes"),
        ("a,0,281474976710657,0,0\n", "line 3: a request of 281474976710657 bytes"),
        ("a,0,-1,0,0\n", "line 3: field `bytes` is `-1`, expected a number from 0 to 2^64 - 1"),
        ("a,0,1e3,0,0\n", "line 3: field `bytes` is `1e3`"),
        ("a,0,18446744073709551616,0,0\n", "line 3: field `bytes` is `18446744073709551616`"),
        ("a,0,1,,0\n", "line 3: field `stream` is ``"),
        ("a,0,1,0, 0\n", "line 3: field `time_ns` is ` 0`"),
        ("a,0,1,0\n", "line 3: 4 fields, expected 5"),
        ("a,0,1,0,0,0\n", "line 3: 6 fields, expected 5"),
        ("a\n", "line 3: 1 fields, expected 5"),
        ("a,0,1,0,9\nf,0,1,0,8\n", "line 4: time goes back from 9 ns to 8 ns"),
        ("a,0,1,0,0\nf,0,2,0,0\n", "line 4: bytes 2 differs from the block's allocation (1)"),
        ("c,0,0,0,0\n", "line 3: stream 0 cannot be captured here"),
        ("c,0,0,9,0\nc,0,0,9,0\n", "line 4: stream 9 cannot be captured here"),
        ("d,0,0,9,0\n", "line 3: stream 9 is not captured here"),
        ("a,0,1,3,0\nf,0,1,4,0\n", "line 4: stream 4 differs from the block's allocation (3)"),
    ];
    for (lines, message) in cases {
        let error = rows(lines).unwrap_err();
        assert!(error.starts_with(&format!("dir/x.csv: {message}")), "{error}, not {message}");
        assert!(!error.contains('\n'));
    }
}

#[test]
fn a_missing_header_is_named() {
    for text in ["# gpu-alloc-trace v1\n", "# only\na,0,1,0,0\n", "a,0,1,0,0\n", "op,id\n"] {
        let error = load(text).unwrap_err();
        assert!(error.contains("expected the header `op,id,bytes,stream,time_ns`"), "{error}");
    }
}

#[test]
fn lines_without_end_are_refused() {
    let error = rows(&"a,0,1,0,".repeat(1 << 16)).unwrap_err();
    assert!(error.contains("line longer than 262144 bytes"), "{error}");
    let error = rows(&format!("a,0,1,0,{}\n", "9".repeat(1000))).unwrap_err();
    assert!(error.len() < 200, "{error}");
}

#[test]
fn events_are_limited() {
    let text = format!("{HEADER}\nm,0,0,0,0\nm,1,0,0,0\nm,2,0,0,0\n");
    let limits = Limits { events: 2, ..Limits::default() };
    let error = read(text.as_bytes(), "x", &limits).unwrap_err();
    assert_eq!(error.to_string(), "x: line 4: more than 2 events");
}

#[test]
fn more_streams_than_numbers_are_refused() {
    let mut text = format!("{HEADER}\n");
    for stream in 0..70_000 {
        text.push_str(&format!("a,{stream},1,{stream},0\n"));
    }
    assert!(load(&text).unwrap_err().ends_with("more than 65535 streams"));
}

/// One step of a random program; the numbers choose among what is possible.
fn step() -> impl Strategy<Value = (u8, u32, u64, u16, u8, u64)> {
    (0..15_u8, any::<u32>(), 1..=1_u64 << 48, 0..5_u16, 0..4_u8, 0..1000_u64)
}

/// A trace that keeps every invariant.
fn build(steps: &[(u8, u32, u64, u16, u8, u64)]) -> Trace {
    let mut builder = Builder::new(&Limits::default());
    let mut live = Vec::new();
    let mut time_ns = 0;
    for &(what, which, bytes, stream, pool, later_ns) in steps {
        if builder.len() > 0 {
            time_ns += later_ns;
        }
        let mut stream = || builder.stream(u64::from(stream)).unwrap();
        let at = which as usize % live.len().max(1);
        match what {
            0..5 => {
                let stream = stream();
                live.push(builder.allocate(time_ns, bytes, stream, pool).unwrap());
            }
            5..8 if !live.is_empty() => builder.free(time_ns, live.swap_remove(at)).unwrap(),
            8 if !live.is_empty() => {
                let stream = stream();
                builder.record_stream(time_ns, live[at], stream).unwrap();
            }
            9 => builder.mark(time_ns, Kind::EmptyCache).unwrap(),
            12 => builder.mark(time_ns, Kind::HostWait).unwrap(),
            // Refused where the stream is captured, or is not.
            13 | 14 => {
                let stream = stream();
                let changed = match what {
                    13 => builder.begin_capture(time_ns, stream, pool),
                    _ => builder.end_capture(time_ns, stream),
                };
                // Where the stream is captured, or is not: each stream is in some event.
                if changed.is_err() {
                    builder.out_of_memory(time_ns, bytes, stream, pool).unwrap();
                }
            }
            _ => builder.mark(time_ns, Kind::Iteration).unwrap(),
        }
    }
    builder.finish("x".into()).trace
}

proptest! {
    #[test]
    fn random_traces_survive(steps in prop::collection::vec(step(), 0..200)) {
        let trace = build(&steps);
        trace.check().unwrap();
        let mut text = Vec::new();
        write(&trace, &mut text).unwrap();
        let again = read(&text[..], "x.csv", &Limits::default()).unwrap().remove(0);
        prop_assert_eq!(&again.events, &trace.events);
        prop_assert_eq!((again.blocks, &again.name), (trace.blocks, &trace.name));
        again.check().unwrap();
    }

    #[test]
    fn damaged_text_never_panics(at in 0..200_usize, byte in any::<u8>(), cut in 0..200_usize) {
        let mut text = format!("{HEADER}\na,0,1,0,0\na,1,9,0,4\nf,0,1,0,5\ns,1,9,1,5\nf,1,9,0,6\n")
            .into_bytes();
        let len = text.len();
        text[at % len] = byte;
        let _ = read(&text[..], "x", &Limits::default());
        let _ = read(&text[..cut % len], "x", &Limits::default());
    }
}
