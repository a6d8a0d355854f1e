//! One device's allocator, its streams ([`Lane`]), and blocks of memory on them ([`Block`]).
//!
//! Keeps: while a stream is captured into a graph, memory that the graph may use is not handed to
//! anybody else. What is asked for meanwhile comes from the pool of the capture's session, or,
//! where the program captures without one, from the driver, which makes it the graph's. What is
//! dropped meanwhile and is older goes to the session, to be kept as long as the graph; without a
//! session nobody knows how long that is, and it stays in use for good.
//!
//! Lock order: `lanes`, then those of the allocator, then a lane's `session`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUdeviceptr, CUresult, CUstreamCaptureStatus};
use cudarc::driver::{CudaSlice, CudaStream, result};
use drystone::driver::Stream;
use drystone::{Allocator, Held, PoolId, StreamId, Tag};
use parking_lot::Mutex;

use crate::error::MemoryError;

/// What the handles of one device's memory share.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) allocator: Allocator,
    pub(crate) ordinal: usize,
    lanes: Mutex<BTreeMap<StreamId, Weak<Lane>>>,
}

impl Device {
    pub(crate) fn new(allocator: Allocator, ordinal: usize) -> Self {
        Self { allocator, ordinal, lanes: Mutex::default() }
    }

    /// The lane of a stream: one for as long as anybody holds it.
    pub(crate) fn lane(
        self: &Arc<Self>,
        stream: &Arc<CudaStream>,
    ) -> Result<Arc<Lane>, MemoryError> {
        let mut lanes = self.lanes.lock();
        let id = self.allocator.add_stream(Stream(stream.cu_stream().addr() as u64))?;
        if let Some(lane) = lanes.get(&id).and_then(Weak::upgrade) {
            return Ok(lane);
        }
        let (device, stream) = (Arc::clone(self), Arc::clone(stream));
        let lane = Arc::new(Lane { device, stream, id, session: Mutex::default() });
        lanes.insert(id, Arc::downgrade(&lane));
        Ok(lane)
    }
}

/// A stream that memory is used in the order of. Retired when nobody holds it any more.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) device: Arc<Device>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) id: StreamId,
    pub(crate) session: Mutex<Option<Session>>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut lanes = self.device.lanes.lock();
        // Another thread may have made a new one of the same stream before this got the lock.
        if lanes.get(&self.id).is_some_and(|lane| lane.strong_count() == 0) {
            lanes.remove(&self.id);
            // It was added, and is retired nowhere else.
            let _ = self.device.allocator.retire_stream(self.id);
        }
    }
}

/// A capture that this crate has begun on a stream.
#[derive(Debug)]
pub(crate) struct Session {
    /// Where memory comes from meanwhile.
    pub(crate) pool: Arc<Pool>,
    /// Older memory that was dropped meanwhile: the graph may use it.
    pub(crate) kept: Vec<Block>,
}

/// A private pool, released with its last holder: blocks and graphs.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: Arc<Device>,
    id: PoolId,
}

impl Pool {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::clone(device), id: device.allocator.add_pool() }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // It was added, and is released nowhere else; of a poisoned allocator it is the default
        // pool, which refuses.
        let _ = self.device.allocator.release_pool(self.id);
    }
}

/// Whether work on a stream goes into a graph, as the driver says.
pub(crate) fn is_captured(stream: &CudaStream) -> Result<bool, MemoryError> {
    match stream.capture_status() {
        Ok(status) => Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE),
        // Another stream is, and it would wait for this one.
        Err(error) if error.0 == CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Device memory, used in the order of a stream. Dropping it frees it in that order.
#[derive(Debug)]
pub struct Block {
    pub(crate) lane: Arc<Lane>,
    /// 0 for an empty one.
    address: CUdeviceptr,
    source: Source,
    /// Whether cudarc tracked uses by events when it was made.
    is_tracked: bool,
    tag: Option<Tag>,
}

/// Whose memory a block is.
#[derive(Debug)]
enum Source {
    /// The allocator's.
    Default,
    /// Of a pool for graphs.
    Graphs(Arc<Pool>),
    /// The driver's, asked for in a capture without a session: a node of the graph. The allocator
    /// does not know it, so it counts by itself.
    Driver(#[expect(dead_code, reason = "dropped with the block")] Option<Held>),
}

impl Block {
    /// Memory on a lane.
    pub(crate) fn new(
        lane: &Arc<Lane>,
        bytes: u64,
        tag: Option<&Tag>,
    ) -> Result<Self, MemoryError> {
        lane.stream.context().bind_to_thread()?;
        let is_tracked = lane.stream.context().is_event_tracking();
        let block = |address, source| {
            if let (Some(tag), Source::Default | Source::Graphs(_)) = (tag, &source) {
                // A live block of the allocator's, or none, which counts nothing.
                let _ = lane.device.allocator.tag_block(address, Some(tag));
            }
            Self { lane: Arc::clone(lane), address, source, is_tracked, tag: tag.cloned() }
        };
        if bytes == 0 {
            return Ok(block(0, Source::Default));
        }
        let pool = lane.session.lock().as_ref().map(|session| Arc::clone(&session.pool));
        let allocator = &lane.device.allocator;
        if let Some(pool) = pool {
            let granted = allocator.allocate_raw(pool.id, lane.id, bytes)?;
            return Ok(block(granted.address, Source::Graphs(pool)));
        }
        if is_captured(&lane.stream)? {
            // SAFETY: the stream is alive, and its context current.
            let address = unsafe { result::malloc_async(lane.stream.cu_stream(), bytes as usize) };
            return Ok(block(address?, Source::Driver(tag.map(|tag| tag.hold(bytes)))));
        }
        let granted = allocator.allocate_raw(PoolId::DEFAULT, lane.id, bytes)?;
        Ok(block(granted.address, Source::Default))
    }

    /// Where it starts on the device: a multiple of 512, or of 256 where the program captures
    /// without a session. 0 for an empty one.
    pub const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// What it counts under.
    pub(crate) fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
    }

    /// The stream in whose order it is used.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.lane.stream
    }

    /// Frees the memory of a slice over it once the slice's noted uses are over.
    pub(crate) fn free_after<T>(mut self, slice: CudaSlice<T>) {
        if matches!(self.source, Source::Driver(_)) {
            // cudarc frees such memory as its own.
            self.address = 0;
            return drop(slice);
        }
        let context = Arc::clone(self.lane.stream.context());
        let earlier = context.check_err();
        let is_captured = self.is_captured();
        if is_captured && self.is_tracked {
            // Its events were recorded outside of the capture, which must not wait for them, and
            // cannot be destroyed without: they stay as long as the program.
            std::mem::forget(slice);
        } else {
            // The stream waits for the last read and write.
            slice.leak();
        }
        let waited = context.check_err();
        if waited.is_ok() {
            self.give_back(is_captured);
        } else {
            // Somebody may still be using it: nobody else may have it, ever.
            self.address = 0;
        }
        context.record_err(waited.and(earlier));
    }

    /// Whether a graph being captured may be using it that does not hold its pool. Where the driver
    /// cannot say, one may.
    fn is_captured(&self) -> bool {
        let own_pool = match &self.source {
            _ if self.address == 0 => return false,
            Source::Driver(_) => return false,
            Source::Default => None,
            Source::Graphs(pool) => Some(pool),
        };
        match self.lane.session.lock().as_ref() {
            Some(session) => own_pool.is_none_or(|pool| !Arc::ptr_eq(pool, &session.pool)),
            None => !matches!(is_captured(&self.lane.stream), Ok(false)),
        }
    }

    /// The memory goes where the next may have it.
    fn give_back(&mut self, is_captured: bool) {
        let address = std::mem::take(&mut self.address);
        let context = self.lane.stream.context();
        match self.source {
            _ if address == 0 => {}
            Source::Driver(_) => {
                context.record_err(context.bind_to_thread());
                // SAFETY: memory of this stream that nobody else frees; the context is current.
                let freed = unsafe { result::free_async(address, self.lane.stream.cu_stream()) };
                context.record_err(freed);
            }
            Source::Default | Source::Graphs(_) if is_captured => {
                if let Some(session) = self.lane.session.lock().as_mut() {
                    session.kept.push(Self {
                        lane: Arc::clone(&self.lane),
                        address,
                        source: std::mem::replace(&mut self.source, Source::Default),
                        is_tracked: self.is_tracked,
                        tag: self.tag.take(),
                    });
                }
            }
            Source::Default | Source::Graphs(_) => {
                // The address is that of a live block of the allocator's, which only this knows.
                let _ = self.lane.device.allocator.free(address);
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        let context = Arc::clone(self.lane.stream.context());
        let earlier = context.check_err();
        let is_captured = self.is_captured();
        self.give_back(is_captured);
        context.record_err(earlier);
    }
}
