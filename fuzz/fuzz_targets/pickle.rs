//! Any bytes as a pickled snapshot: an error or a valid trace, never a panic or a memory bomb.
#![no_main]

use drystone_fuzz::read_checked;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read_checked(b"\x80\x02", bytes);
});
