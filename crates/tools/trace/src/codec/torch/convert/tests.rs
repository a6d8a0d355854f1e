//! Snapshots put together by hand, as JSON.

use serde_json::{Value, json};

use crate::codec::{self, Limits};
use crate::model::{Completion, Kind, Trace};
use crate::snapshot::{Action, PoolId};

fn load(snapshot: &Value) -> Result<Vec<Trace>, String> {
    let text = snapshot.to_string();
    let traces = codec::read(text.as_bytes(), "s.json", &Limits::default());
    let traces = traces.map_err(|error| error.to_string())?;
    traces.iter().for_each(|trace| trace.check().unwrap());
    Ok(traces)
}

fn one(snapshot: &Value) -> Trace {
    let mut traces = load(snapshot).unwrap();
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

fn entry(action: &str, addr: u64, size: u64, time_us: i64) -> Value {
    json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us})
}

fn note(name: &str, stage: &str, time_us: i64) -> Value {
    json!({"device": 0, "name": name, "stage": stage, "time_us": time_us})
}

fn traces(entries: &[Value]) -> Value {
    json!({"segments": [], "device_traces": [entries]})
}

fn segment(device: u32, address: u64, blocks: &[(u64, &str)]) -> Value {
    let mut at = address;
    let blocks: Vec<Value> = blocks
        .iter()
        .map(|(size, state)| {
            let frames = json!([{"filename": "a.py", "line": at, "name": "f"}]);
            at += size;
            json!({"address": at - size, "size": size, "requested_size": size - 1, "state": state,
                "frames": frames})
        })
        .collect();
    json!({"device": device, "address": address, "total_size": at - address, "stream": 7,
        "segment_type": "large", "segment_pool_id": [0, 0], "blocks": blocks})
}

fn kinds(trace: &Trace) -> Vec<(Kind, u64, u32, u16, u64)> {
    let of = |e: &crate::model::Event| (e.kind, e.bytes, e.block, e.stream, e.time_ns);
    trace.events.iter().map(of).collect()
}

#[test]
fn a_free_that_completes_at_once_is_a_free() {
    let trace = one(&traces(&[
        entry("alloc", 512, 100, 1000),
        entry("free_requested", 512, 100, 1003),
        entry("free_completed", 512, 100, 1003),
    ]));
    assert_eq!(kinds(&trace), [(Kind::Allocate, 100, 0, 0, 0), (Kind::Free, 100, 0, 0, 3000)]);
    assert_eq!((trace.streams, trace.completions.len()), (1, 0));
    let recording = trace.recording.unwrap();
    assert_eq!((recording.addresses, recording.base_us), (vec![512, 512], 1000));
}

#[test]
fn a_free_that_completes_later_was_used_on_another_stream() {
    let trace = one(&traces(&[
        entry("alloc", 512, 100, 0),
        entry("alloc", 1024, 200, 1),
        entry("free_requested", 512, 100, 2),
        entry("free_requested", 1024, 200, 3),
        entry("alloc", 2048, 300, 4),
        entry("free_completed", 512, 100, 5),
        entry("segment_free", 0, 0, 6),
    ]));
    assert_eq!(
        kinds(&trace),
        [
            (Kind::Allocate, 100, 0, 0, 0),
            (Kind::Allocate, 200, 1, 0, 1000),
            (Kind::RecordStream, 100, 0, 1, 2000),
            (Kind::Free, 100, 0, 0, 2000),
            (Kind::RecordStream, 200, 1, 1, 3000),
            (Kind::Free, 200, 1, 0, 3000),
            (Kind::Allocate, 300, 0, 0, 4000),
        ]
    );
    // The second was still pending at the end of the recording.
    let done = |event, time_ns| Completion { event, time_ns };
    assert_eq!(trace.completions, [done(3, 5000), done(5, 6000)]);
    assert_eq!((trace.streams, trace.recording.unwrap().streams.len()), (2, 1));
}

#[test]
fn blocks_live_before_recording_come_first_by_address() {
    let mut snapshot = traces(&[
        // Allocated and freed before and after the start of recording.
        entry("free_requested", 4096, 50, 100),
        entry("free_completed", 4096, 50, 100),
        // The end of a free from before: not live.
        entry("free_completed", 9000, 70, 101),
        entry("alloc", 4096, 60, 102),
    ]);
    snapshot["segments"] = json!([
        segment(0, 8192, &[(512, "active_allocated"), (512, "inactive")]),
        segment(0, 1024, &[(512, "active_allocated"), (512, "active_pending_free")]),
        segment(0, 4096, &[(512, "active_allocated")]),
    ]);
    let trace = one(&snapshot);
    assert_eq!(
        kinds(&trace),
        [
            (Kind::Allocate, 511, 0, 1, 0),
            (Kind::Allocate, 50, 1, 0, 0),
            (Kind::Allocate, 511, 2, 1, 0),
            (Kind::Iteration, 0, 0, 0, 0),
            (Kind::Free, 50, 1, 0, 0),
            (Kind::Allocate, 60, 1, 0, 2000),
        ]
    );
    let recording = trace.recording.unwrap();
    assert_eq!(recording.addresses, [1024, 4096, 8192, 0, 4096, 4096]);
    assert_eq!((recording.live_at_start, recording.streams), (3, vec![0, 7]));
    let stack = recording.stacks[2].unwrap();
    let lines: Vec<u64> = recording.snapshot.stacks.frames(stack).map(|f| f.line).collect();
    assert_eq!(lines, [8192], "the block's own stack");
}

#[test]
fn segments_alone_are_a_trace_of_what_is_live() {
    let blocks = [(512, "active_allocated"), (512, "inactive")];
    let trace = one(&json!([segment(0, 1024, &blocks)]));
    assert_eq!(kinds(&trace), [(Kind::Allocate, 511, 0, 1, 0), (Kind::Iteration, 0, 0, 0, 0)]);
    assert_eq!(trace.recording.unwrap().peak_reserved_bytes(), 1024);
}

#[test]
fn the_reserved_curve_ends_at_the_segments() {
    let mut snapshot = traces(&[
        entry("segment_alloc", 1 << 20, 2048, 10),
        entry("segment_map", 2 << 20, 512, 11),
        entry("segment_free", 1 << 20, 2048, 12),
        entry("segment_unmap", 2 << 20, 256, 13),
    ]);
    snapshot["segments"] =
        json!(
            [segment(0, 4096, &[(1024, "inactive")]), segment(0, 2 << 20, &[(256, "inactive")]),]
        );
    let recording = one(&snapshot).recording.unwrap();
    let points: Vec<_> = recording.reserved.iter().map(|p| (p.time_ns, p.bytes)).collect();
    assert_eq!(points, [(0, 1024), (0, 3072), (1000, 3584), (2000, 1536), (3000, 1280)]);
    assert_eq!(recording.peak_reserved_bytes(), 3584);
}

#[test]
fn every_device_is_a_trace() {
    let mut snapshot = json!({"device_traces": [[], [entry("alloc", 1, 2, 3)], [], []]});
    snapshot["segments"] = json!([segment(3, 64, &[(8, "active_allocated")])]);
    let traces = load(&snapshot).unwrap();
    let names: Vec<_> = traces.iter().map(|trace| trace.name.as_str()).collect();
    assert_eq!(names, ["s-1", "s-3"]);
    assert_eq!(traces[1].recording.as_ref().unwrap().device, 3);
    assert_eq!(traces[0].events.len(), 1);
}

#[test]
fn pools_and_streams_become_dense() {
    let alloc = |addr: u64, stream: i64, pool: Value| {
        json!({"action": "alloc", "addr": addr, "size": 1, "stream": stream, "time_us": 0,
            "pool_id": pool})
    };
    let trace = one(&traces(&[
        alloc(1, -1, json!([0, 3])),
        alloc(2, 0x5500_0000_1234, json!([0, 0])),
        alloc(3, 0, json!([7, 0])),
        alloc(4, 0, json!([0, 3])),
    ]));
    let of: Vec<_> = trace.events.iter().map(|event| (event.stream, event.pool)).collect();
    assert_eq!(of, [(2, 1), (1, 0), (0, 2), (0, 1)]);
    let recording = trace.recording.unwrap();
    assert_eq!(recording.streams, [0, 0x5500_0000_1234, u64::MAX]);
    assert_eq!(recording.pools, [PoolId(0, 0), PoolId(0, 3), PoolId(7, 0)]);
}

#[test]
fn entries_without_pools_take_their_segments() {
    let mut snapshot = traces(&[entry("alloc", 1100, 2, 3)]);
    snapshot["segments"] = json!([segment(0, 1024, &[(512, "inactive")])]);
    snapshot["segments"][0]["segment_pool_id"] = json!([4, 0]);
    assert_eq!(one(&snapshot).events[0].pool, 1);
}

#[test]
fn an_earlier_segment_at_the_same_address_was_of_no_pool_that_is_known() {
    let mut snapshot = traces(&[
        entry("free_requested", 1008, 7, 0),
        entry("alloc", 1000, 7, 1),
        entry("free_requested", 1000, 7, 2),
        entry("segment_free", 1000, 16, 3),
        entry("segment_alloc", 1000, 16, 4),
        entry("alloc", 1000, 7, 5),
    ]);
    snapshot["segments"] = json!([segment(0, 1000, &[(8, "active_allocated"), (8, "inactive")])]);
    snapshot["segments"][0]["segment_pool_id"] = json!([4, 0]);
    let trace = one(&snapshot);
    let requests = trace.events.iter().filter(|event| event.kind == Kind::Allocate);
    assert_eq!(requests.map(|event| event.pool).collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn failures_and_strangers_are_kept_or_passed_over() {
    let mut oom = entry("oom", 0, 999, 5);
    oom.as_object_mut().unwrap().remove("addr");
    oom["device_free"] = json!(12345);
    let trace = one(&traces(&[
        entry("snapshot", 0, 5, 4),
        oom,
        entry("annotate", 0, 0, 6),
        entry("segment_map", 0, 0, 7),
    ]));
    assert_eq!(kinds(&trace), [(Kind::OutOfMemory, 999, 0, 0, 0)]);
    let recording = trace.recording.unwrap();
    let entry = recording.snapshot.device_traces[0][1];
    assert_eq!((entry.action, entry.address), (Action::OutOfMemory, 12345));
}

#[test]
fn an_address_given_out_again_was_freed_unseen() {
    let trace = one(&traces(&[
        entry("alloc", 512, 100, 0),
        entry("alloc", 512, 200, 1),
        entry("free_requested", 512, 200, 2),
        entry("alloc", 512, 300, 3),
    ]));
    let kinds: Vec<_> = trace.events.iter().map(|event| event.kind).collect();
    use Kind::{Allocate, Free, RecordStream};
    assert_eq!(kinds, [Allocate, Free, Allocate, RecordStream, Free, Allocate]);
    assert_eq!(trace.recording.as_ref().unwrap().missed_frees, 1);
    assert_eq!(trace.completions, [Completion { event: 4, time_ns: 3000 }]);
}

#[test]
fn time_that_goes_back_is_raised() {
    let trace = one(&traces(&[
        entry("alloc", 1, 1, 1000),
        entry("alloc", 2, 1, 998),
        entry("alloc", 3, 1, 1002),
    ]));
    let times: Vec<u64> = trace.events.iter().map(|event| event.time_ns).collect();
    assert_eq!(times, [0, 0, 2000]);
}

#[test]
fn annotations_end_iterations() {
    let entries: Vec<Value> = (0..4).map(|n| entry("alloc", n + 1, 1, n as i64 * 10)).collect();
    let mut snapshot = traces(&entries);
    snapshot["external_annotations"] = json!([
        note("Optimizer.step#A.step", "END", -4),
        note("Optimizer.step#A.step", "START", 4),
        note("Optimizer.step#A.step", "END", 5),
        note("Optimizer.step#B.step", "END", 6),
        note("Optimizer.step#A.step", "END", 25),
        note("Optimizer.step#A.step", "END", 99),
    ]);
    let marks = |snapshot: &Value| -> Vec<u64> {
        let trace = one(snapshot);
        let marks = trace.events.iter().filter(|event| event.kind == Kind::Iteration);
        marks.map(|event| event.time_ns).collect()
    };
    assert_eq!(marks(&snapshot), [5000, 25_000, 99_000]);
    let notes = snapshot["external_annotations"].as_array_mut().unwrap();
    notes.push(note("ProfilerStep#2", "END", 15));
    assert_eq!(marks(&snapshot), [15_000]);
}

#[test]
fn annotations_of_the_program_tell_of_waits_and_captures() {
    let mut entries: Vec<Value> = (0..4).map(|n| entry("alloc", n + 1, 1, n as i64 * 10)).collect();
    entries[2]["stream"] = json!(94);
    entries[2]["pool_id"] = json!([0, 1]);
    let mut snapshot = traces(&entries);
    let graph = "torch.cuda.graph stream=94 pool=0,1";
    snapshot["external_annotations"] = json!([
        note("torch.cuda.synchronize", "START", 2),
        note("torch.cuda.synchronize", "END", 5),
        note("torch.cuda.empty_cache", "START", 6),
        note("torch.cuda.empty_cache", "END", 7),
        // Of a capture that began before, one that is, one of the default stream, and a repetition.
        note(graph, "END", 8),
        note(graph, "START", 15),
        note("torch.cuda.graph stream=0 pool=0,1", "START", 16),
        note(graph, "START", 17),
        note(graph, "END", 25),
        note("torch.cuda.graph stream=x", "END", 26),
    ]);
    let trace = one(&snapshot);
    let told: Vec<_> = kinds(&trace).into_iter().filter(|one| one.0 != Kind::Allocate).collect();
    assert_eq!(
        told,
        [
            (Kind::HostWait, 0, 0, 0, 5000),
            (Kind::EmptyCache, 0, 0, 0, 7000),
            (Kind::CaptureBegin, 0, 0, 1, 15_000),
            (Kind::CaptureEnd, 0, 0, 1, 25_000),
        ]
    );
    assert_eq!((trace.events[4].pool, trace.events[5].pool, trace.pools), (1, 1, 2));
}

#[test]
fn entries_of_actions_that_are_not_known_are_counted_and_left_out() {
    let unknown = json!({"action": "user_defined", "size": "whatever"});
    let (first, last) = (entry("alloc", 1, 9, 1), entry("free_requested", 1, 9, 2));
    let without = one(&traces(&[first.clone(), last.clone()]));
    let with = one(&traces(&[first, unknown, last]));
    assert_eq!(with.events, without.events);
    assert_eq!(with.recording.unwrap().snapshot.unknown_entries, 1);
}

#[test]
fn bad_values_are_named_by_their_path() {
    let with = |key: &str, value: Value| {
        let mut bad = entry("alloc", 1, 1, 1);
        bad[key] = value;
        traces(&[entry("alloc", 9, 1, 1), bad])
    };
    let mut short = segment(0, 64, &[(8, "inactive"), (8, "inactive")]);
    short["total_size"] = json!(12);
    let mut overlap = segment(0, 64, &[(8, "inactive"), (8, "inactive")]);
    overlap["blocks"][1]["address"] = json!(70);
    let cases = [
        (with("size", json!(-5)), "device_traces[0][1].size: -5, expected a whole number"),
        (with("size", json!(0)), "device_traces[0][1]: a request of 0 bytes"),
        (with("size", json!("x")), "device_traces[0][1].size: `x`, expected"),
        (with("action", json!(5)), "device_traces[0][1].action: 5, expected a text"),
        (with("frames", json!([1])), "device_traces[0][1].frames[0]: 1, expected a dictionary"),
        (with("pool_id", json!([1])), "device_traces[0][1].pool_id: a list, expected a pair"),
        (json!({"segments": 5}), "segments: 5, expected a list"),
        (json!({"segments": [{}]}), "segments[0].address: missing, expected a value"),
        (json!({"segments": [short]}), "segments[0].blocks[1]: 0x48, expected a block"),
        (json!({"segments": [overlap]}), "segments[0].blocks[1]: 0x46, expected a block"),
        (json!({"segments": [segment(0, 64, &[(8, "lost")])]}), "segments[0].blocks[0].state: `lo"),
        (json!({}), "the snapshot holds neither segments nor trace entries"),
        (
            traces(&[
                entry("alloc", 1, 1, 1),
                entry("free_requested", 1, 1, 1),
                entry("free_requested", 1, 1, 1),
            ]),
            "device_traces[0][2]: no block is live at address 0x1 here",
        ),
    ];
    for (snapshot, message) in cases {
        let error = load(&snapshot).unwrap_err();
        assert!(error.starts_with(&format!("s.json: {message}")), "{error}, not {message}");
    }
    let text = &b"{\"segments\": [\n{\"address\": nope}]}"[..];
    let error = codec::read(text, "s.json", &Limits::default()).unwrap_err().to_string();
    assert!(error.starts_with("s.json: line 2: expected ident"), "{error}");
}
