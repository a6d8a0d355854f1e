//! Small pickles that claim, share or nest so much that an incautious reader would not end.

use std::time::{Duration, Instant};

use drystone_trace::codec::{self, Limits};

fn error(pickle: &[u8]) -> String {
    let started = Instant::now();
    let error = codec::read(pickle, "x", &Limits::default()).unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(5), "{error}");
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
