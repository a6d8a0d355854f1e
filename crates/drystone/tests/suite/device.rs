//! [`TestDevice`]: what the behaviour suite asks of a device. The simulated one is in `sim`; a
//! real one answers the same questions with kernels that spin and fill blocks with cookies.

use std::sync::Arc;

use drystone::driver::{CaptureMode, Driver, Stream};

/// A device to test on, seen as the program around an allocator sees it. None of the methods
/// counts as a driver call of the allocator.
pub trait TestDevice: Send + Sync {
    /// What the allocator is given.
    fn driver(&self) -> Arc<dyn Driver>;

    /// Creates a stream. Its handle may be one that was destroyed before.
    fn create_stream(&self) -> Stream;

    /// Destroys a stream; what it has queued still runs.
    fn destroy_stream(&self, stream: Stream);

    /// Queues work on a stream that takes about this long.
    fn work(&self, stream: Stream, duration_us: u64);

    /// Lets time pass on the host.
    fn pass(&self, duration_us: u64);

    /// Begins a capture by the calling thread.
    fn begin_capture(&self, stream: Stream, mode: CaptureMode);

    /// Ends a capture. Whether nothing had broken it.
    fn end_capture(&self, stream: Stream) -> bool;

    /// Ends the life of the graphs of all captures so far, and of the memory they own.
    fn end_graphs(&self);

    /// Driver calls the allocator has made so far; questions are not counted.
    fn calls(&self) -> u64;

    /// A block was handed out for a stream; a kernel uses it at once.
    fn handed_out(&self, address: u64, bytes: u64, stream: Stream);

    /// A kernel on the stream uses a live block.
    fn used(&self, address: u64, stream: Stream);

    /// A block is about to be freed: a last kernel uses it on every stream that used it.
    fn taken_back(&self, address: u64);

    /// Fails with what was illegal or unsafe so far.
    fn verdict(&self) -> Result<(), String>;

    /// Fails with what the allocator has not given back.
    fn emptiness(&self) -> Result<(), String>;
}
