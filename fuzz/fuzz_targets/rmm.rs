//! Any text as an RMM log: an error or a valid trace, never a panic.
#![no_main]

use drystone_fuzz::read_checked;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read_checked(b"Thread,Time,Action,Pointer,Size,Stream\n", bytes);
});
