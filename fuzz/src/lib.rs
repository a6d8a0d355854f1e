//! What the codec targets share: small limits, and that whatever was read is valid.

use drystone_trace::codec::{Limits, read};
use drystone_trace::model::Trace;

/// Far above what a fuzzer makes, far below what a machine has.
const LIMITS: Limits = Limits { events: 1 << 20, decoded_bytes: 1 << 24, snapshot_bytes: 1 << 22 };

/// Reads `head` and then `bytes` as a file; none if that is an error.
pub fn read_checked(head: &[u8], bytes: &[u8]) -> Vec<Trace> {
    let file = [head, bytes].concat();
    let traces = read(&file[..], "fuzz", &LIMITS).unwrap_or_default();
    for trace in &traces {
        trace.check().expect("a trace that was read is valid");
    }
    traces
}
