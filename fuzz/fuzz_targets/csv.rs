//! Any text as a CSV trace: an error, or a valid trace that is written and read again the same.
#![no_main]

use drystone_fuzz::read_checked;
use drystone_trace::codec::csv;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for trace in read_checked(b"# gpu-alloc-trace v1\nop,id,bytes,stream,time_ns\n", bytes) {
        let mut written = Vec::new();
        csv::write(&trace, &mut written).expect("memory takes any trace");
        let again = read_checked(&[], &written);
        assert_eq!(again[0].events, trace.events);
    }
});
