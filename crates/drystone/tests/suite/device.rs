//! [`TestDevice`]: what the behaviour suite asks of a device, and [`FaultyDevice`]: one that can be
//! made to fail. The simulated one is in `sim`, the simulated driver library in `simcuda`; a real
//! device, in `gpu`, answers the same questions with kernels that spin and with patterns.

use std::sync::{Arc, Mutex};

use drystone::driver::{Call, CaptureMode, Driver, ErrorCode, Stream};
use drystone_sim::FaultMode;
use drystone_testkit::{Gpu, Graph};

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

/// A call of the device that is to fail.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// CUDA's name of what fails.
    pub function: &'static str,
    /// The call of the driver trait behind it, where it stands for just one.
    pub call: Option<Call>,
    /// Counted from 1.
    pub nth: u64,
    pub mode: FaultMode,
    pub code: ErrorCode,
}

/// A device that can be made to fail.
pub trait FaultyDevice: TestDevice {
    /// Plans a failure.
    fn plan(&self, fault: &Fault);

    /// Removes all planned failures.
    fn clear_faults(&self);

    /// How often a plan has struck since they were last removed.
    fn faults_fired(&self) -> u64;
}

/// What a program on CUDA makes for itself.
#[derive(Default)]
pub struct Made {
    /// Streams that are alive. A handle that comes again is another stream.
    pub streams: Mutex<Vec<Stream>>,
    graphs: Mutex<Vec<Graph>>,
}

impl Made {
    pub fn with(stream: Stream) -> Self {
        Self { streams: Mutex::new(vec![stream]), ..Self::default() }
    }

    pub fn create_stream(&self, gpu: &Gpu) -> Stream {
        let stream = gpu.create_stream().unwrap();
        self.streams.lock().unwrap().push(stream);
        stream
    }

    pub fn destroy_stream(&self, gpu: &Gpu, stream: Stream) {
        self.streams.lock().unwrap().retain(|&one| one != stream);
        gpu.destroy_stream(stream).unwrap();
    }

    pub fn destroy_streams(&self, gpu: &Gpu) {
        for stream in std::mem::take(&mut *self.streams.lock().unwrap()) {
            if stream != Stream::DEFAULT {
                gpu.destroy_stream(stream).unwrap();
            }
        }
    }

    pub fn end_capture(&self, gpu: &Gpu, stream: Stream) -> bool {
        let graph = gpu.end_capture(stream);
        graph.map(|graph| self.graphs.lock().unwrap().push(graph)).is_ok()
    }

    pub fn end_graphs(&self, gpu: &Gpu) {
        for graph in std::mem::take(&mut *self.graphs.lock().unwrap()) {
            gpu.destroy_graph(graph).unwrap();
        }
    }
}
