//! What the program around an allocator does on the simulated device, as a trace shows it: work
//! that keeps a stream busy, and captures.
//!
//! Invariant: none of it is a call of the allocator's, so none is counted.

use drystone_driver::{CaptureMode, ErrorCode, Stream};
use drystone_sim::SimDevice;

/// Queues work on a stream that keeps it busy until `time_ns`, if it is not already.
pub(crate) fn keep_busy(device: &SimDevice, stream: Stream, time_ns: u64) {
    if let Ok(busy_until_ns) = device.busy_until_ns(stream) {
        let begin_ns = busy_until_ns.max(device.now_ns());
        // Only an unknown stream fails, and these are the device's own.
        let _ = device.launch(stream, time_ns.saturating_sub(begin_ns));
    }
}

/// Begins a capture in the mode that `torch.cuda.graph` has by default, which forbids most.
pub(crate) fn begin_capture(device: &SimDevice, stream: Stream) {
    let begun = device.begin_capture(stream, CaptureMode::Global);
    debug_assert_eq!(begun, Ok(()));
}

/// Draws another stream into a capture.
pub(crate) fn join_capture(device: &SimDevice, stream: Stream, origin: Stream) {
    // A broken capture is told of at its end.
    let _ = device.join_capture(stream, origin);
}

/// Ends a capture; fails where a call in it has broken it.
pub(crate) fn end_capture(device: &SimDevice, origin: Stream) -> Result<(), ErrorCode> {
    device.end_joined_capture(origin).map(drop)
}
