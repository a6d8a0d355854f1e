//! Work on a simulated stream, as a recording shows it: from now until a time.

use drystone_driver::Stream;
use drystone_sim::SimDevice;

/// Queues work on a stream that keeps it busy until `time_ns`, if it is not already.
pub(crate) fn keep_busy(device: &SimDevice, stream: Stream, time_ns: u64) {
    if let Ok(busy_until_ns) = device.busy_until_ns(stream) {
        let begin_ns = busy_until_ns.max(device.now_ns());
        // Only an unknown stream fails, and these are the device's own.
        let _ = device.launch(stream, time_ns.saturating_sub(begin_ns));
    }
}
