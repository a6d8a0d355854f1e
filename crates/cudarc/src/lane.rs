//! One device's allocator, its streams ([`Lane`]), and captures of them ([`Session`]).
//!
//! Keeps: a stream has one lane, and is retired when nobody holds that any more.
//!
//! Lock order: `lanes`, then those of the allocator, then a lane's `session`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUresult, CUstreamCaptureStatus};
use drystone::driver::Stream;
use drystone::{Allocator, PoolId, StreamId};
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
    pub(crate) kept: Vec<Kept>,
}

/// Memory that was dropped during a capture: freed once every graph that may use it is gone.
pub(crate) type Kept = Arc<dyn Debug + Send + Sync>;

/// A private pool, released with its last holder: blocks and graphs.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: Arc<Device>,
    pub(crate) id: PoolId,
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
