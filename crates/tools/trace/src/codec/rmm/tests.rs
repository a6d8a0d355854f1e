//! Logs written by hand, as RMM's versions write them.

use super::*;
use crate::model::{Event, Kind};

fn log(lines: &str) -> Result<Trace, String> {
    let text = format!("{HEADER}\n{lines}");
    read(text.as_bytes(), "x.log", "x".into(), &Limits::default()).map_err(|e| e.to_string())
}

fn kinds(trace: &Trace) -> Vec<(Kind, u32, u64, u16, u64)> {
    let of = |e: &Event| (e.kind, e.block, e.bytes, e.stream, e.time_ns);
    trace.events.iter().map(of).collect()
}

#[test]
fn reads_threads_streams_and_failures() {
    let trace = log("7,10:00:00.000001,allocate,0x7f0000000000,100,0x55d0\n\
         8,10:00:00.000003,allocate,0x7f0000000400,200,(nil)\n\
         8,10:00:00.000004,allocate failure,(nil),999,0x1\n\
         7,10:00:00.000005,free,0x7f0000000000,100,0x55d0\n\
         8,10:00:01.500000,free,0x7f0000000400,200,0x55d0\n")
    .unwrap();
    assert_eq!(
        kinds(&trace),
        [
            (Kind::Allocate, 0, 100, 1, 0),
            (Kind::Allocate, 1, 200, 0, 2000),
            (Kind::OutOfMemory, 0, 999, 0, 3000),
            (Kind::Free, 0, 100, 1, 4000),
            (Kind::RecordStream, 1, 200, 1, 1_499_999_000),
            (Kind::Free, 1, 200, 0, 1_499_999_000),
        ]
    );
    assert_eq!((trace.streams, trace.blocks), (2, 2));
}

#[test]
fn reads_every_form_of_time() {
    let times = |first: &str, second: &str| {
        let trace = log(&format!("1,{first},allocate,0x1,5,0x0\n1,{second},free,0x1,5,0x0\n"))?;
        Ok::<u64, String>(trace.events[1].time_ns)
    };
    assert_eq!(times("10:00:00:000001", "10:00:00:000003"), Ok(2000));
    assert_eq!(times("1634567890.123456", "1634567890.234567"), Ok(111_111_000));
    assert_eq!(times("23:59:59.999999", "00:00:00.000001"), Ok(2000), "past midnight");
    assert_eq!(times("10:00:00.5", "10:00:00.4"), Ok(0), "threads out of order");
    let back = times("10:00:00.5", "09:59:58.0").unwrap_err();
    assert!(back.starts_with("x.log: line 3: time goes back"), "{back}");
    for bad in ["", "10", "10:00", "1:2:3:4:5", "10:00:00.1234567891", "-1:00:00", "a:b:c"] {
        let text = times(bad, "10:00:00.5");
        assert!(bad == "10" || text.is_err(), "{bad}: {text:?}");
    }
}

#[test]
fn requests_of_nothing_are_passed_over() {
    let trace = log("1,10:00:00.1,allocate,(nil),0,0x0\n1,10:00:00.1,free,0x0,0,0x0\n").unwrap();
    assert_eq!(trace.events, []);
}

#[test]
fn bad_lines_are_named() {
    let cases = [
        ("1,10:00:00.1,free,0x1,5,0x0\n", "line 2: no block is live at address 0x1 here"),
        ("1,10:00:00.1,reallocate,0x1,5,0x0\n", "line 2: unknown operation `reallocate`"),
        ("1,10:00:00.1,allocate,0x1,5\n", "line 2: 5 fields, expected 6"),
        ("1,10:00:00.1,allocate,0x1,-5,0x0\n", "line 2: field `Size` is `-5`, expected a number"),
        ("1,10:00:00.1,allocate,0xg,5,0x0\n", "line 2: field `Pointer` is `0xg`"),
        ("1,10:00:00.1,allocate,0x1,5,+1\n", "line 2: field `Stream` is `+1`"),
        ("1,noon,allocate,0x1,5,0x0\n", "line 2: field `Time` is `noon`"),
        (
            "1,10:00:00.1,allocate,0x1,5,0x0\n1,10:00:00.1,allocate,0x1,5,0x0\n",
            "line 3: address 0x1 is given out again while it is live",
        ),
        (
            "1,10:00:00.1,allocate,0x1,5,0x0\n1,10:00:00.1,free,0x1,6,0x0\n",
            "line 3: Size 6 differs from the block's allocation (5)",
        ),
    ];
    for (lines, message) in cases {
        let error = log(lines).unwrap_err();
        assert!(error.starts_with(&format!("x.log: {message}")), "{error}");
    }
    let other = read(&b"Thread,Time\n"[..], "x.log", "x".into(), &Limits::default());
    assert!(other.unwrap_err().to_string().contains("expected the header"));
}
