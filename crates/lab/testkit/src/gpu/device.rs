//! [`Gpu`]: one device through its primary context, with streams and captures.

use std::ffi::CStr;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUevent_flags, CUstream, CUstream_flags, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};
use drystone_driver::{CaptureMode, Stream};

use super::cuda::{Result, cuda};

/// One device. The primary context is retained for the life of the process.
#[derive(Debug)]
pub struct Gpu {
    device: CUdevice,
    /// The context, as a number: any thread may make it current.
    context: usize,
}

/// A point in a stream's work.
#[derive(Debug)]
pub struct Mark {
    gpu: Arc<Gpu>,
    event: usize,
}

impl Drop for Mark {
    /// Waits that were queued stay. What fails here is only lost.
    fn drop(&mut self) {
        let event = with_exposed_provenance_mut(self.event);
        let _ = self.gpu.with(|| cuda!(cuEventDestroy_v2(event)));
    }
}

/// A captured graph.
#[derive(Debug)]
pub struct Graph(usize);

pub(crate) fn raw(stream: Stream) -> CUstream {
    with_exposed_provenance_mut(stream.0 as usize)
}

const fn mode_of(mode: CaptureMode) -> CUstreamCaptureMode {
    match mode {
        CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}

impl Gpu {
    /// Opens a device. The caller knows that there is a driver: cudarc panics where there is none.
    pub fn open(ordinal: u32) -> Result<Self> {
        let (mut device, mut context) = (0, null_mut());
        cuda!(cuInit(0))?;
        cuda!(cuDeviceGet(&raw mut device, ordinal.cast_signed()))?;
        cuda!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        Ok(Self { device, context: context.expose_provenance() })
    }

    /// Does something with the device's context current.
    pub(crate) fn with<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut before: CUcontext = null_mut();
        cuda!(cuCtxPushCurrent_v2(with_exposed_provenance_mut(self.context)))?;
        let done = body();
        cuda!(cuCtxPopCurrent_v2(&raw mut before))?;
        done
    }

    /// Makes the device's context the thread's current one, for good.
    pub fn make_current(&self) -> Result {
        cuda!(cuCtxSetCurrent(with_exposed_provenance_mut(self.context)))
    }

    /// Whether the device's context is the thread's current one.
    pub fn is_current(&self) -> Result<bool> {
        let mut current: CUcontext = null_mut();
        cuda!(cuCtxGetCurrent(&raw mut current))?;
        Ok(current.addr() == self.context)
    }

    /// The device's name.
    pub fn name(&self) -> Result<String> {
        let mut name = [0; 256];
        cuda!(cuDeviceGetName(name.as_mut_ptr(), 256, self.device))?;
        name[255] = 0;
        // SAFETY: there is a NUL at the end at the latest.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// The newest CUDA that the driver knows, such as 13.0.
    pub fn cuda_version(&self) -> Result<String> {
        let mut version = 0;
        cuda!(cuDriverGetVersion(&raw mut version))?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// Memory that nobody has, of any process, in bytes.
    pub fn free_bytes(&self) -> Result<u64> {
        self.with(|| {
            let (mut free, mut total) = (0, 0);
            cuda!(cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
            Ok(free as u64)
        })
    }

    /// Waits until the device is idle. Not while a stream is captured.
    pub fn synchronize(&self) -> Result {
        self.with(|| cuda!(cuCtxSynchronize()))
    }

    /// Creates a stream that has nothing to do with the default one.
    pub fn create_stream(&self) -> Result<Stream> {
        self.with(|| {
            let mut stream = null_mut();
            let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            cuda!(cuStreamCreate(&raw mut stream, flags))?;
            Ok(Stream(stream.expose_provenance() as u64))
        })
    }

    /// Destroys a stream; what it has queued still runs.
    pub fn destroy_stream(&self, stream: Stream) -> Result {
        self.with(|| cuda!(cuStreamDestroy_v2(raw(stream))))
    }

    /// Marks what a stream has queued so far.
    pub fn mark(self: &Arc<Self>, stream: Stream) -> Result<Mark> {
        self.with(|| {
            let mut event = null_mut();
            let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
            cuda!(cuEventCreate(&raw mut event, flags))?;
            let mark = Mark { gpu: Arc::clone(self), event: event.expose_provenance() };
            cuda!(cuEventRecord(event, raw(stream)))?;
            Ok(mark)
        })
    }

    /// Makes a stream wait for what was marked.
    pub fn wait(&self, stream: Stream, mark: &Mark) -> Result {
        let event = with_exposed_provenance_mut(mark.event);
        self.with(|| cuda!(cuStreamWaitEvent(raw(stream), event, 0)))
    }

    /// Begins a capture by the calling thread.
    pub fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> Result {
        self.with(|| cuda!(cuStreamBeginCapture_v2(raw(stream), mode_of(mode))))
    }

    /// Ends a capture, which may have been broken before.
    pub fn end_capture(&self, stream: Stream) -> Result<Graph> {
        self.with(|| {
            let mut graph = null_mut();
            cuda!(cuStreamEndCapture(raw(stream), &raw mut graph))?;
            Ok(Graph(graph.expose_provenance()))
        })
    }

    /// Whether a stream is being captured.
    pub fn is_captured(&self, stream: Stream) -> Result<bool> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.with(|| cuda!(cuStreamIsCapturing(raw(stream), &raw mut status)))?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Destroys a graph.
    pub fn destroy_graph(&self, graph: Graph) -> Result {
        self.with(|| cuda!(cuGraphDestroy(with_exposed_provenance_mut(graph.0))))
    }

    /// Copies memory of the device to the host.
    pub fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut copy = vec![0; bytes];
        self.with(|| cuda!(cuMemcpyDtoH_v2(copy.as_mut_ptr().cast(), address, bytes)))?;
        Ok(copy)
    }

    /// Queues a fill of words of 32 bits.
    pub fn fill(&self, address: u64, words: u64, pattern: u32, stream: Stream) -> Result {
        self.with(|| cuda!(cuMemsetD32Async(address, pattern, words as usize, raw(stream))))
    }
}
