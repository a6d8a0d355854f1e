//! [`Allocator`]: the public type, one for each device.
//!
//! Cloning gives another handle to the same allocator; what the handles share is
//! [`Device`](crate::device::Device), where the lock order is written down.

use std::sync::Arc;

use drystone_core::{
    Broken, Config, CrossStream, FreeError, Freed, Grant, Heap, PoolId, RecordStreamError,
    RequestError, SegmentKind, SegmentView, Stats, StreamError, StreamId,
};
use drystone_driver::{Driver, DriverError, Stream};

use crate::allocation::Allocation;
use crate::device::{Device, PressureCallback};
use crate::error::{AllocateError, BuildError, TrimError};
use crate::grow::Miss;
use crate::options::{Options, Source};

/// A caching allocator for one device. Cloning gives another handle to the same allocator.
#[derive(Clone)]
pub struct Allocator {
    pub(crate) device: Arc<Device>,
}

impl Allocator {
    /// An allocator that takes its memory from this device.
    ///
    /// # Errors
    /// The options ask for what the device has not.
    pub fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<Self, BuildError> {
        options.check()?;
        let info = driver.info();
        let kind = match options.source {
            Some(Source::Vmm) if !info.has_virtual_memory => {
                return Err(BuildError::NoVirtualMemory { ordinal: info.ordinal });
            }
            Some(Source::Malloc) => SegmentKind::Plain,
            None if !info.has_virtual_memory => SegmentKind::Plain,
            Some(Source::Vmm) | None => SegmentKind::Mapped,
        };
        if kind == SegmentKind::Mapped && options.granule_bytes < info.granularity_bytes {
            return Err(BuildError::GranuleTooSmall {
                granule_bytes: options.granule_bytes,
                granularity_bytes: info.granularity_bytes,
            });
        }
        let heap = Heap::new(Config {
            kind,
            granule_bytes: options.granule_bytes,
            device_bytes: info.total_bytes,
            limit_bytes: options.limit_on(info.total_bytes),
            cross_stream: options.cross_stream,
        });
        Ok(Self { device: Arc::new(Device::new(driver, heap)) })
    }

    /// Makes a device stream known, and gives its key. The same stream always gives the same key
    /// until it is retired.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn add_stream(&self, stream: Stream) -> Result<StreamId, DriverError> {
        self.device.add_stream(stream)
    }

    /// Says that a stream is about to be destroyed. Blocks allocated on it stay valid and may be
    /// freed later; its free memory serves other streams once its queued work is complete.
    ///
    /// # Errors
    /// The stream was retired before.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        self.device.retire_stream(stream)
    }

    /// Allocates on a stream from the default pool. Zero bytes give an empty allocation: address
    /// 0, no block.
    ///
    /// # Errors
    /// Out of memory, an unknown stream, a size beyond 2^47 bytes, a failing driver.
    #[inline]
    pub fn allocate(&self, stream: StreamId, bytes: u64) -> Result<Allocation, AllocateError> {
        if bytes == 0 {
            return Ok(Allocation::new(self.clone(), 0, 0, stream));
        }
        let grant = self.allocate_raw(PoolId::DEFAULT, stream, bytes)?;
        Ok(Allocation::new(self.clone(), grant.address, grant.bytes, stream))
    }

    /// Allocates on a stream from a pool, to be freed with [`free`](Self::free).
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
    ) -> Result<Grant, AllocateError> {
        if let Some(grant) = self.device.heap.lock().allocate(pool, stream, bytes)? {
            return Ok(grant);
        }
        self.device.allocate_slowly(Miss { pool, stream, bytes })
    }

    /// Frees a block by its address, in the order of its stream.
    ///
    /// # Errors
    /// The address is not that of a live block; nothing has changed.
    #[inline]
    pub fn free(&self, address: u64) -> Result<(), FreeError> {
        let freed = self.device.heap.lock().free(address)?;
        if let Freed::Plan(plan) = freed {
            self.device.finish(plan);
        }
        Ok(())
    }

    /// Notes that a live block is also used on another stream than its own.
    ///
    /// # Errors
    /// The address is not that of a live block, or the stream is unknown.
    #[inline]
    pub fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), RecordStreamError> {
        self.device.heap.lock().record_stream(address, stream)
    }

    /// Adds a private pool: memory of its own, which serves no other pool and is not trimmed.
    pub fn add_pool(&self) -> PoolId {
        self.device.heap.lock().add_pool()
    }

    /// Releases a private pool: it serves no further request, and a trim gives its memory back as
    /// far as it is free.
    ///
    /// # Errors
    /// The pool is unknown, released before, or the default pool.
    pub fn release_pool(&self, pool: PoolId) -> Result<(), RequestError> {
        self.device.heap.lock().release_pool(pool)
    }

    /// Gives all unused memory of the default pool and of released pools back to the device, and
    /// returns how many bytes. Waits until the device is idle.
    ///
    /// # Errors
    /// A driver call failed, and what was given back before stays so; or a stream is being
    /// captured, and nothing was done.
    pub fn trim(&self) -> Result<u64, TrimError> {
        self.device.trim()
    }

    /// Like [`trim`](Self::trim) for memory whose last use is known to be complete: never waits.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn trim_passed(&self) -> Result<u64, TrimError> {
        self.device.trim_passed()
    }

    /// Sets the limit of reserved bytes. What is reserved above it stays until trimmed.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.device.heap.lock().set_limit(limit_bytes);
    }

    /// Adds a callback for when memory runs out, called after everything else was tried.
    pub fn on_pressure(&self, callback: PressureCallback) {
        self.device.callbacks.lock().push(callback);
    }

    /// Statistics at this moment.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let kept = allocator.allocate(stream, 700)?;
    /// drop(allocator.allocate(stream, 40 << 20)?);
    /// let all = allocator.stats().all;
    /// assert_eq!((all.requested_bytes.current, all.allocated_bytes.current), (700, 1024));
    /// assert_eq!(all.requested_bytes.peak, 700 + (40 << 20));
    /// assert!(all.reserved_bytes.current >= 40 << 20); // held for the next request
    /// allocator.trim()?;
    /// assert_eq!(allocator.stats().all.reserved_bytes.current, 2 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        *self.device.heap.lock().stats()
    }

    /// Bytes of live blocks and physical bytes held, at this moment: what of [`stats`](Self::stats)
    /// can be asked after every call.
    pub fn allocated_and_reserved_bytes(&self) -> (u64, u64) {
        let heap = self.device.heap.lock();
        let all = &heap.stats().all;
        (all.allocated_bytes.current, all.reserved_bytes.current)
    }

    /// Sets every peak of the statistics to its current value.
    pub fn reset_peaks(&self) {
        self.device.heap.lock().stats_mut().reset_peaks();
    }

    /// What is held: segments in address order, tiled by their blocks.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let block = allocator.allocate(stream, 3 << 20)?;
    /// let segments = allocator.snapshot();
    /// let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
    /// let found = blocks.find(|b| b.state == drystone::BlockState::Live);
    /// assert_eq!(found.map(|b| (b.address, b.requested_bytes)), Some((block.address(), 3 << 20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Vec<SegmentView> {
        self.device.heap.lock().snapshot()
    }

    /// Proves every invariant of the heap. Slow: for tests and debugging.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        self.device.heap.lock().check()
    }

    /// When free blocks serve other streams.
    pub fn cross_stream(&self) -> CrossStream {
        self.device.heap.lock().config().cross_stream
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
