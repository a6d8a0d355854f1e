//! Tags, on device 7.

use std::ffi::{CStr, c_char};
use std::ptr;

use super::*;
use crate::tags::drystone_tag;

const DEVICE: c_int = 7;

fn tag(block: *mut c_void, name: &CStr) -> Status {
    // SAFETY: a C string.
    unsafe { drystone_tag(block, name.as_ptr()) }
}

fn tags() -> serde_json::Value {
    let mut text = vec![0_u8; 8192];
    let out = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: it has as many bytes.
    assert_eq!(unsafe { drystone_stats_json(DEVICE, out, 8192, ptr::null_mut()) }, Status::Ok);
    let text = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap();
    serde_json::from_str::<serde_json::Value>(text).unwrap()["tags"].take()
}

/// What a snapshot says of a block: `file:line name` of each frame.
fn stack(block: *mut c_void) -> Vec<String> {
    let snapshot = crate::snapshot::of_devices();
    let mut blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let found = blocks.find(|one| one.address == block as u64).unwrap();
    let frames = found.stack.into_iter().flat_map(|stack| snapshot.stacks.frames(stack));
    frames.map(|one| format!("{}:{} {}", one.filename, one.line, one.name)).collect()
}

fn frame(tag: &str) -> Vec<String> {
    vec![format!("tag:0 {tag}")]
}

#[test]
fn a_block_counts_under_its_tag_until_it_is_freed() {
    let _held = HELD.read();
    let (_, block) = allocate(300 * MIB, DEVICE, DEFAULT);
    let (_, other) = allocate(MIB, DEVICE, DEFAULT);
    let strange = c"the \"odd\" \\one";
    // What is refused makes no tag.
    assert_eq!(tag(block.wrapping_byte_add(512), c"kv"), Status::InteriorPointer);
    assert_eq!(tag(64 as *mut c_void, c"kv"), Status::UnknownPointer);
    assert_eq!(tag(block, c""), Status::InvalidValue);
    assert_eq!(tag(block, c"\xff"), Status::InvalidValue);
    assert_eq!(tag(block, c"k\nv"), Status::InvalidValue);
    assert_eq!(tags(), serde_json::json!({}));

    assert_eq!((tag(block, c"kv"), tag(other, strange)), (Status::Ok, Status::Ok));
    let (kv, odd) = (300 * MIB, MIB);
    let both = |kv_now, odd_now| {
        serde_json::json!({
            "kv": { "current": kv_now, "peak": kv },
            "the \"odd\" \\one": { "current": odd_now, "peak": odd },
        })
    };
    assert_eq!(tags(), both(kv, odd));
    assert_eq!((stack(block), stack(other)), (frame("kv"), frame("the \"odd\" \\one")));
    assert_eq!(allocate(900 * MIB, DEVICE, DEFAULT).0, Status::OutOfMemory);
    assert!(message().contains("By tag: kv 300.00 MiB"), "{}", message());
    // SAFETY: null takes the tag away.
    assert_eq!(unsafe { drystone_tag(other, ptr::null()) }, Status::Ok);
    assert_eq!((tags(), stack(other)), (both(kv, 0), Vec::new()));
    assert_eq!(drystone_deallocate(block), Status::Ok);
    assert_eq!(tags(), both(0, 0));
    assert_eq!(tag(block, c"kv"), Status::AlreadyFree);
    assert_eq!(drystone_reset_peaks(DEVICE), Status::Ok);
    assert_eq!(tags()["kv"], serde_json::json!({ "current": 0, "peak": 0 }));
    assert_eq!(drystone_deallocate(other), Status::Ok);
}
