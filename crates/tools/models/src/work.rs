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

/// The streams of a trace with that many: the default one, and others made on the device.
pub(crate) fn streams(device: &SimDevice, count: u16) -> Vec<Stream> {
    let others = (1..count).map(|_| device.create_stream());
    std::iter::once(Stream::DEFAULT).chain(others).collect()
}

/// What each allocator with a `device` and its streams does for the program, as `Replayed` has it.
macro_rules! works_on_device {
    ($streams:ident) => {
        #[inline]
        fn advance(&mut self, time_ns: u64) {
            self.device.advance_to(time_ns);
        }

        fn busy_until(&mut self, stream: u16, time_ns: u64) {
            $crate::work::keep_busy(&self.device, self.$streams[usize::from(stream)], time_ns);
        }

        fn launch(&mut self, stream: u16, duration_ns: u64) {
            // Fails in a capture that is broken, and nowhere else: the streams are the device's.
            let _ = self.device.launch(self.$streams[usize::from(stream)], duration_ns);
        }

        fn join_capture(&mut self, stream: u16, origin: u16) {
            let [stream, origin] = [stream, origin].map(|one| self.$streams[usize::from(one)]);
            // A broken capture is told of at its end.
            let _ = self.device.join_capture(stream, origin);
        }
    };
}
pub(crate) use works_on_device;

/// Begins a capture in the mode that `torch.cuda.graph` has by default, which forbids most.
pub(crate) fn begin_capture(device: &SimDevice, stream: Stream) {
    let begun = device.begin_capture(stream, CaptureMode::Global);
    debug_assert_eq!(begun, Ok(()));
}

/// Ends a capture; fails where a call in it has broken it.
pub(crate) fn end_capture(device: &SimDevice, origin: Stream) -> Result<(), ErrorCode> {
    device.end_joined_capture(origin).map(drop)
}
