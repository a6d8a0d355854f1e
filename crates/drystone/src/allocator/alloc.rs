//! Blocks: allocating, freeing, uses on other streams; and the streams themselves.

use std::ops::Range;
use std::sync::Arc;

use drystone_core::{
    FreeError, Granted, PoolId, RecordStreamError, RequestError, StreamError, StreamId,
};
use drystone_driver::{DriverError, Stream};

use super::Allocator;
use crate::allocation::Allocation;
use crate::backend::BackendState;
use crate::error::AllocateError;
use crate::observers::Observer;
use crate::streams::StreamEnd;

impl Allocator {
    /// Makes a device stream known, and gives its key. The same stream always gives the same key
    /// until it is retired, which is before it is destroyed: the driver may be asked about it at
    /// any time. Asks the driver who the stream is. One of a context that the program made
    /// (`cuCtxCreate`) may use memory, but a request on it is refused: `ErrorCode::OtherContext`.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn add_stream(&self, stream: Stream) -> Result<StreamId, DriverError> {
        self.engine.add_stream(stream, StreamEnd::Told)
    }

    /// The same for a stream of which nobody says when it is destroyed. Its handle is used by those
    /// calls alone that bring it: requests on it, its retirement, and frees of blocks that
    /// [`record_stream`](Self::record_stream) named it for, until which it must live. So its free
    /// memory serves other streams later than that of a stream whose end is told: once it was
    /// brought again since, and has passed that point, or the device was idle. A stream that was
    /// added by [`add_stream`](Self::add_stream) before stays as it is.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn add_passing_stream(&self, stream: Stream) -> Result<StreamId, DriverError> {
        self.engine.add_stream(stream, StreamEnd::Untold)
    }

    /// The key of the stream that has a handle now, made known if it is a new one: for calls that
    /// are given handles. Where the calling thread does not know the stream it is asked whether its
    /// end will be told. The driver is asked who the stream is, unless the thread has met it and
    /// its end will be told.
    ///
    /// # Errors
    /// As [`add_stream`](Self::add_stream).
    #[inline]
    pub fn stream(
        &self,
        stream: Stream,
        end: impl FnOnce() -> StreamEnd,
    ) -> Result<StreamId, DriverError> {
        self.engine.stream(stream, end)
    }

    /// The handle of the last stream at a position ([`StreamId::index`]), also once it has ended.
    pub fn stream_handle(&self, index: usize) -> Option<Stream> {
        self.engine.executor.streams.lock().handle_at(index)
    }

    /// Says that a stream is about to be destroyed. Blocks allocated on it stay valid and may be
    /// freed later; its free memory serves other streams once its queued work is complete.
    /// Records an event; does not wait.
    ///
    /// # Errors
    /// The stream was retired before.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        self.engine.retire_stream(stream)
    }

    /// The same for the stream that was added last with this handle, if one was: for who sees a
    /// stream end that others brought. The driver is not asked which stream that is.
    pub fn retire_handle(&self, stream: Stream) {
        self.engine.retire_handle(stream);
    }

    /// Allocates on a stream from the default pool. Zero bytes give an empty allocation: address
    /// 0, no block. A hit makes no driver call; a miss may call the driver, wait for the device and
    /// for other misses, and run the program's callbacks.
    ///
    /// # Errors
    /// Out of memory, an unknown stream, a size beyond 2^47 bytes, a failing driver.
    #[inline]
    pub fn allocate(&self, stream: StreamId, bytes: u64) -> Result<Allocation, AllocateError> {
        if bytes == 0 {
            return Ok(Allocation::new(Arc::clone(&self.engine), 0, 0, stream));
        }
        let granted = self.engine.allocate(PoolId::DEFAULT, stream, bytes)?;
        Ok(Allocation::new(Arc::clone(&self.engine), granted.address, granted.bytes, stream))
    }

    /// Allocates on a stream from a pool, to be freed with [`free`](Self::free). Calls and waits as
    /// [`allocate`](Self::allocate).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let grant = allocator.allocate_raw(PoolId::DEFAULT, stream, 1000)?;
    /// assert_eq!(grant.bytes, 1024);
    /// allocator.free(grant.address)?;
    /// assert!(allocator.free(grant.address).is_err()); // found out, and nothing changed
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); zero bytes and an unknown pool are errors here.
    #[inline]
    pub fn allocate_raw(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
    ) -> Result<Granted, AllocateError> {
        self.engine.allocate(pool, stream, bytes)
    }

    /// Allocates free memory of a pool just where the caller says, as a block that was there. It
    /// is not ordered behind what other streams have queued there. `None`, and nothing has
    /// changed, if it is not all free, or the driver chooses where blocks are (backend `async`).
    /// Makes no driver call.
    ///
    /// # Errors
    /// As [`allocate_raw`](Self::allocate_raw), except a lack of memory.
    pub fn allocate_at(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
        place: Range<u64>,
    ) -> Result<Option<Granted>, RequestError> {
        match &self.engine.backend {
            BackendState::Heap(heap) => {
                let put = heap.change(|heap| heap.allocate_at(pool, stream, bytes, place))??;
                let recorder = &self.engine.recorder;
                if let Some(granted) = put.filter(|_| self.engine.observers.has(Observer::Recorder))
                {
                    recorder.allocated(pool, stream, granted.address, bytes);
                }
                Ok(put)
            }
            BackendState::AsyncPools(_) => Ok(None),
        }
    }

    /// Frees a block by its address, in the order of its stream. Never waits; calls the driver only
    /// to record events on other streams that used the block, and with backend `async`.
    ///
    /// # Errors
    /// The address is not that of a live block; nothing has changed.
    #[inline]
    pub fn free(&self, address: u64) -> Result<(), FreeError> {
        self.engine.free(address)
    }

    /// Frees a block by its address and the size it was allocated with, in the order of its
    /// stream. Calls the driver as [`free`](Self::free).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let grant = allocator.allocate_raw(PoolId::DEFAULT, stream, 1000)?;
    /// assert!(allocator.free_sized(grant.address, 1024).is_err()); // it was 1000
    /// assert_eq!(allocator.block_at(grant.address)?.requested_bytes, 1000);
    /// allocator.free_sized(grant.address, 1000)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`free`](Self::free), and another size than the block's.
    #[inline]
    pub fn free_sized(&self, address: u64, bytes: u64) -> Result<(), FreeError> {
        self.engine.free_sized(address, bytes)
    }

    /// Frees a block by its address, in the order of its own stream and of one that uses it up to
    /// now: [`record_stream`](Self::record_stream) and [`free`](Self::free) in one.
    ///
    /// # Errors
    /// As those have.
    #[inline]
    pub fn free_used_on(&self, address: u64, stream: StreamId) -> Result<(), RecordStreamError> {
        self.engine.free_used_on(address, stream)
    }

    /// Notes that a live block is also used on another stream than its own. Makes no driver call.
    ///
    /// # Errors
    /// The address is not that of a live block, or the stream is unknown.
    #[inline]
    pub fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), RecordStreamError> {
        self.engine.record_stream(address, stream)
    }
}
