//! Small pickles that claim, share or nest so much that an incautious reader would not end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::timed;
use drystone_trace::codec::{self, Limits};

fn error(pickle: &[u8]) -> String {
    let (read, took) = timed(|| codec::read(pickle, "x", &Limits::default()));
    let error = read.unwrap_err().to_string();
    assert!(took < Duration::from_secs(5), "{took:?} for {error}");
    assert!(!error.contains('\n') && error.len() < 300, "{error}");
    error
}

/// `doublings` lists, each of which holds the one before it twice; memo entry 0 is the last.
fn billions(innermost: &[u8], doublings: usize) -> Vec<u8> {
    let mut pickle = innermost.to_vec();
    for _ in 0..doublings {
        pickle.extend_from_slice(b"q\x000](h\x00h\x00e");
    }
    pickle
}

fn with(key: &str, value: &[u8]) -> Vec<u8> {
    let mut pickle = format!("}}(S'{key}'\n").into_bytes();
    pickle.extend_from_slice(value);
    pickle.extend_from_slice(b"u.");
    pickle
}

#[test]
fn repetition_does_not_unfold() {
    for key in ["allocator_settings", "external_annotations"] {
        let message = error(&with(key, &billions(b"]", 60)));
        assert!(message.contains("unfold") || message.contains("nested"), "{message}");
    }
    // A trace of a million entries, all of them the same value, a thousand times over.
    let entry = b"}(S'action'\nS'alloc'\nS'addr'\nK\x01S'size'\nK\x01uq\x000](";
    let mut trace = entry.to_vec();
    trace.extend(b"h\x00".repeat(1_000_000));
    trace.extend_from_slice(b"eq\x010](");
    trace.extend(b"h\x01".repeat(1000));
    trace.push(b'e');
    let message = error(&with("device_traces", &trace));
    assert!(message.contains("unfold"), "{message}");
}

#[test]
fn a_long_text_named_often_is_not_copied_often() {
    let mut notes = b"X\x00\x00\x10\x00".to_vec();
    notes.extend(b"x".repeat(1 << 20));
    notes.extend_from_slice(b"q\x000](");
    notes.extend(b"h\x00".repeat(1_000_000));
    notes.push(b'e');
    let message = error(&with("external_annotations", &notes));
    assert!(message.contains("unfold"), "{message}");
}

#[test]
fn a_value_that_contains_itself_ends() {
    for key in ["allocator_settings", "external_annotations", "device_traces", "segments"] {
        error(&with(key, b"]q\x00h\x00a"));
        error(&with(key, b"}q\x00(S'segments'\nh\x00S'blocks'\nh\x00u"));
    }
}

#[test]
fn a_key_that_is_huge_or_no_text_is_an_error() {
    error(b"}(]Nu.");
    error(&with("device_traces", b"](](}(NNuee"));
}

#[test]
fn json_nests_only_so_deep() {
    let mut text = b"{\"segments\": ".to_vec();
    text.extend(b"[".repeat(1_000_000));
    let message = error(&text);
    assert!(message.starts_with("x: line 1: recursion limit exceeded"), "{message}");
}

/// A small snapshot with a bit of everything.
const WHOLE: &str = r#"{"segments": [{"device": 0, "address": 4096, "total_size": 1024,
    "stream": 0, "segment_type": "small", "segment_pool_id": [0, 1], "is_expandable": true,
    "frames": [], "blocks": [
        {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated",
         "frames": [{"filename": "a.py", "line": 7, "name": "f"}]},
        {"address": 4608, "size": 512, "requested_size": 9, "state": "inactive", "frames": []}]}],
    "device_traces": [[
        {"action": "segment_map", "addr": 4096, "size": 1024, "stream": 0, "time_us": 5},
        {"action": "alloc", "addr": 4608, "size": 9, "stream": 3, "time_us": 6, "pool_id": [0, 1],
         "user_metadata": "x", "frames": [{"filename": "a.py", "line": 8, "name": "f"}]},
        {"action": "free_requested", "addr": 4608, "size": 9, "stream": 3, "time_us": 7},
        {"action": "oom", "device_free": 77, "size": 999, "stream": 0, "time_us": 8},
        {"action": "free_completed", "addr": 4608, "size": 9, "stream": 3, "time_us": 9}]],
    "allocator_settings": {"max_split_size": -1, "x": [1.5, null, true]},
    "external_annotations": [
        {"device": 0, "time_us": 8, "name": "Optimizer.step", "stage": "END"}]}"#;

#[test]
fn damage_is_an_error_or_another_trace_that_keeps_the_model() {
    let whole = codec::read(WHOLE.as_bytes(), "x", &Limits::default()).unwrap().remove(0);
    whole.check().unwrap();
    let mut pickle = Vec::new();
    whole.recording.unwrap().snapshot.write_pickle(&mut pickle).unwrap();
    for file in [pickle, WHOLE.as_bytes().to_vec()] {
        for seed in 0..20_000_u64 {
            // Splitmix: each seed damages one to four bytes.
            let mut state = seed;
            let mut random = || {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (mixed ^ (mixed >> 31)) as usize
            };
            let mut damaged = file.clone();
            for _ in 0..=random() % 4 {
                let at = random() % damaged.len();
                match random() % 4 {
                    0 => damaged[at] = random() as u8,
                    1 => damaged[at] ^= 1 << (random() % 8),
                    2 => drop(damaged.remove(at)),
                    _ => damaged[at] = damaged[random() % damaged.len()],
                }
            }
            for trace in codec::read(&damaged[..], "x", &Limits::default()).unwrap_or_default() {
                trace.check().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
            }
        }
    }
}
