//! [`Allocator`]: the public type, one for each device.
//!
//! Lock order: `growth`, which whoever moves memory between heap and device holds across driver
//! calls; or `streams`, while a stream is added; then one of the others alone: the heap's for
//! decisions, the events' for record, query and wait, the handles' and callbacks' for a copy. I14:
//! no callback happens under any lock, no blocking driver call under any but `growth`, which hits
//! and frees never take.

use std::collections::BTreeMap;
use std::sync::Arc;

use drystone_core::{
    Broken, Config, CrossStream, FreeError, Freed, Grant, Heap, PoolId, RecordStreamError,
    RequestError, SegmentKind, SegmentView, Stats, StreamError, StreamId,
};
use drystone_driver::{Call, Driver, DriverError, ErrorCode, Stream, StreamUid};
use parking_lot::Mutex;

use crate::allocation::Allocation;
use crate::capture::Relaxed;
use crate::error::{AllocateError, BuildError, TrimError};
use crate::events::Events;
use crate::execute::{Executor, Handles};
use crate::grow::Miss;
use crate::options::{Options, Source};

/// Called when memory runs out, with the bytes asked for and no lock held. Returns whether it
/// freed something, so that the request is worth another try.
pub type PressureCallback = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// A caching allocator for one device. Cloning gives another handle to the same allocator.
#[derive(Clone)]
pub struct Allocator {
    device: Arc<Device>,
}

/// What the handles of an allocator share.
pub(crate) struct Device {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) heap: Mutex<Heap>,
    pub(crate) events: Mutex<Events>,
    pub(crate) handles: Mutex<Handles>,
    /// Held by whoever moves memory between the heap and the device.
    pub(crate) growth: Mutex<()>,
    pub(crate) callbacks: Mutex<Vec<PressureCallback>>,
    streams: Mutex<BTreeMap<StreamUid, StreamId>>,
}

impl Allocator {
    /// An allocator that takes its memory from this device.
    ///
    /// # Errors
    /// The options ask for what the device has not.
    pub fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<Self, BuildError> {
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
        let device = Device {
            driver,
            heap: Mutex::new(heap),
            events: Mutex::default(),
            handles: Mutex::default(),
            growth: Mutex::default(),
            callbacks: Mutex::default(),
            streams: Mutex::default(),
        };
        Ok(Self { device: Arc::new(device) })
    }

    /// Makes a device stream known, and gives its key. The same stream always gives the same key
    /// until it is retired.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn add_stream(&self, stream: Stream) -> Result<StreamId, DriverError> {
        let uid = self.device.driver.stream_uid(stream)?;
        let mut streams = self.device.streams.lock();
        if let Some(&id) = streams.get(&uid) {
            return Ok(id);
        }
        let id = self.device.heap.lock().add_stream();
        self.device.events.lock().add_stream(id, stream, uid);
        streams.insert(uid, id);
        Ok(id)
    }

    /// Says that a stream is about to be destroyed. Blocks allocated on it stay valid and may be
    /// freed later; its free memory serves other streams once its queued work is complete.
    ///
    /// # Errors
    /// The stream was retired before.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        self.device.streams.lock().retain(|_, id| *id != stream);
        let plan = self.device.heap.lock().retire_stream(stream)?;
        self.device.finish(plan);
        Ok(())
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
        let _growth = self.device.growth.lock();
        self.device.synchronize().map_err(|error| TrimError { error, given_back_bytes: 0 })?;
        self.device.trim_passed()
    }

    /// Like [`trim`](Self::trim) for memory whose last use is known to be complete: never waits.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn trim_passed(&self) -> Result<u64, TrimError> {
        let _growth = self.device.growth.lock();
        self.device.collect();
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

impl Device {
    pub(crate) fn executor(&self) -> Executor<'_> {
        Executor { driver: &*self.driver, events: &self.events, handles: &self.handles }
    }

    /// Carries out a plan whose failure the heap deals with by itself.
    #[cold]
    fn finish(&self, plan: drystone_core::Plan) {
        match self.executor().carry_out(&plan) {
            Ok(address) => {
                self.heap.lock().commit(plan, address);
            }
            Err(failure) => self.heap.lock().abandon(plan, failure.in_effect),
        }
    }

    /// Tells the heap which fences have passed. True if any has.
    pub(crate) fn collect(&self) -> bool {
        let passed = {
            let mut events = self.events.lock();
            if !events.any_recorded() {
                return false;
            }
            let Ok(_relaxed) = Relaxed::enter(&*self.driver) else { return false };
            events.collect(&*self.driver)
        };
        let mut heap = self.heap.lock();
        passed.iter().for_each(|&fence| heap.fence_passed(fence));
        !passed.is_empty()
    }

    /// Waits for every fence that is recorded. True if there was any.
    pub(crate) fn await_pending(&self) -> bool {
        let recorded = self.events.lock().last_recorded();
        let Ok(relaxed) = Relaxed::enter(&*self.driver) else { return false };
        for (_, event) in &recorded {
            // One that fails is no reason not to wait for the others; `collect` asks anew.
            let _ = self.driver.synchronize_event(*event);
        }
        drop(relaxed);
        self.collect()
    }

    /// Waits until the device is idle, and tells the heap. Refused while a stream is captured,
    /// which that would break.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.refuse_in_capture(Call::SynchronizeDevice)?;
        let plan = self.heap.lock().plan_synchronize();
        match self.executor().carry_out(&plan) {
            Ok(address) => {
                self.heap.lock().commit(plan, address);
                self.collect();
                Ok(())
            }
            Err(failure) => {
                self.heap.lock().abandon(plan, failure.in_effect);
                Err(failure.error)
            }
        }
    }

    /// What a capture forbids is not even tried: the attempt would break the capture.
    fn refuse_in_capture(&self, call: Call) -> Result<(), DriverError> {
        if self.is_any_captured() {
            return Err(DriverError::new(call, ErrorCode::CaptureUnsupported));
        }
        Ok(())
    }

    /// Gives back what can be given back without waiting. Returns the bytes. Refused while a
    /// stream is captured.
    pub(crate) fn trim_passed(&self) -> Result<u64, TrimError> {
        let mut given_back_bytes = 0;
        self.refuse_in_capture(Call::Free)
            .map_err(|error| TrimError { error, given_back_bytes })?;
        loop {
            let (before, plan) = {
                let mut heap = self.heap.lock();
                (heap.stats().all.reserved_bytes, heap.plan_trim())
            };
            let Some(plan) = plan else {
                return Ok(given_back_bytes);
            };
            let outcome = self.executor().carry_out(&plan);
            let mut heap = self.heap.lock();
            let error = match outcome {
                Ok(address) => {
                    heap.commit(plan, address);
                    None
                }
                Err(failure) => {
                    heap.abandon(plan, failure.in_effect);
                    Some(failure.error)
                }
            };
            let after = heap.stats().all.reserved_bytes;
            // Other threads may have grown meanwhile: compare what was taken away.
            given_back_bytes += (after.total - after.current) - (before.total - before.current);
            if let Some(error) = error {
                return Err(TrimError { error, given_back_bytes });
            }
        }
    }
}

impl Drop for Device {
    /// Gives everything unused back. Live blocks of raw allocations stay mapped: the program may
    /// still be using them. Once the driver is shutting down nothing more is called.
    fn drop(&mut self) {
        let pools_are_gone = self.heap.get_mut();
        pools_are_gone.release_all_pools();
        match self.synchronize().map(|()| self.trim_passed()) {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if !error.is_final() => {}
            _ => return,
        }
        for event in self.events.get_mut().drain() {
            if self.driver.destroy_event(event).is_err() {
                return;
            }
        }
    }
}
