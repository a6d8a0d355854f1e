//! Tags: what blocks are for, in the program's words.

use std::ffi::{CStr, c_char, c_void};

use crate::barrier::answer;
use crate::status::{Failure, Status};
use crate::{free, process};

/// Counts a live block of any device under a tag until it is freed, and under no other: "weights",
/// "kv", "scratch". A null `name` takes its tag away. `drystone_stats_json` says how much each tag
/// has and had at most, the message of OUT_OF_MEMORY how much it has. While any block has a tag,
/// every free takes a lock more. Memory reserved by `drystone_growable_reserve` is a block while it
/// has some, and keeps its tag when it has none.
///
/// Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, INVALID_VALUE (the name is empty, not
/// UTF-8, or has control characters), EXITING, FORKED. Any thread; none may free, grow or shrink
/// the block meanwhile.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_tag(ptr: *mut c_void, name: *const c_char) -> Status {
    answer(|| {
        process::check()?;
        // SAFETY: a C string by the caller's word.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_str());
        let name = match name.transpose() {
            // One that is told within a line.
            Ok(name)
                if name.is_none_or(|name| !name.is_empty() && !name.contains(char::is_control)) =>
            {
                name
            }
            _ => {
                let message = "a tag's name is empty, not UTF-8, or has control characters";
                return Err(Failure::new(Status::InvalidValue, message));
            }
        };
        let allocator = &free::owner(ptr as u64)?.allocator;
        // Asked first, so that no tag is made for a block that is none.
        allocator.block_at(ptr as u64)?;
        let tag = name.map(|name| allocator.tag(name));
        Ok(allocator.tag_block(ptr as u64, tag.as_ref())?)
    })
}
