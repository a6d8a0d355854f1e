//! Pools, and how much memory they may have: adding, releasing, trimming, the limit, and whom to
//! ask when memory runs out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use drystone_core::{Points, PoolId, RequestError, SegmentKind, StreamId};
use drystone_driver::{DriverError, Stream, StreamUid};

use super::Allocator;
use crate::backend::BackendState;
use crate::build_error::{BuildError, check_virtual_memory};
use crate::engine::OutOfMemoryCallback;
use crate::engine::giving_back::Effort;
use crate::error::TrimError;
use crate::memory_provider::MemoryProvider;
use crate::neighbours::{Gift, Neighbours};
use crate::options::{Backend, PoolOptions};

impl Allocator {
    /// Adds a private pool: memory of its own, which serves no other pool and is not trimmed.
    /// Makes no driver call. Of a poisoned allocator, whose pools serve nobody, it is the default
    /// pool.
    pub fn add_pool(&self) -> PoolId {
        let added = self.engine.backend.state().change(|state| state.add_pool());
        added.unwrap_or(PoolId::DEFAULT)
    }

    /// Adds a private pool that differs from the allocator.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolOptions, Backend};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let plain = PoolOptions::default().with_backend(Backend::Malloc);
    /// let pool = allocator.add_pool_with(&plain)?;
    /// let block = allocator.allocate_raw(pool, stream, 8 << 20)?;
    /// assert_eq!(device.live_objects().plain_allocations, 1); // from cudaMalloc
    /// allocator.free(block.address)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The device, or the allocator's own backend, has no room for such a pool.
    pub fn add_pool_with(&self, options: &PoolOptions) -> Result<PoolId, BuildError> {
        let Some(backend) = options.backend else {
            return Ok(self.add_pool());
        };
        let heap = match (&self.engine.backend, backend) {
            (BackendState::Heap(heap), Backend::Vmm | Backend::Malloc) => heap,
            (BackendState::AsyncPools(_), Backend::Async) => return Ok(self.add_pool()),
            (_, pool) => return Err(BuildError::OtherBackend { pool, allocator: self.backend() }),
        };
        let kind = match backend {
            Backend::Malloc => SegmentKind::Plain,
            _ => SegmentKind::Mapped,
        };
        if kind == SegmentKind::Mapped {
            let granule_bytes = heap.read().config().granule_bytes;
            check_virtual_memory(&self.engine.executor.driver.info(), granule_bytes)?;
        }
        Ok(heap.change(|heap| heap.add_pool_of(kind, true))?)
    }

    /// Adds a private pool of plain segments, which a provider gives, or the driver if there is
    /// none. Those that are not split have one block each, for memory that others keep a note of by
    /// its segment.
    ///
    /// # Errors
    /// The driver's own memory pools (backend `async`) have no room for such a pool.
    pub fn add_plain_pool(
        &self,
        provider: Option<Arc<dyn MemoryProvider>>,
        is_split: bool,
    ) -> Result<PoolId, BuildError> {
        let BackendState::Heap(heap) = &self.engine.backend else {
            let (pool, allocator) = (Backend::Malloc, self.backend());
            return Err(BuildError::OtherBackend { pool, allocator });
        };
        let pool = heap.change(|heap| heap.add_pool_of(SegmentKind::Plain, is_split))?;
        if let Some(provider) = provider {
            self.engine.executor.providers.lock().add(pool, provider);
        }
        Ok(pool)
    }

    /// Says whether graphs that are captured in a private pool never run at the same time, and in
    /// the order of their captures, as PyTorch wants it of graphs that share one. It is so unless
    /// said otherwise: memory that one capture freed then serves the next, whatever stream that
    /// captures. `false` keeps what each stream freed for that stream.
    ///
    /// # Errors
    /// The pool is unknown or released.
    pub fn set_pool_exclusive(&self, pool: PoolId, is_exclusive: bool) -> Result<(), RequestError> {
        match &self.engine.backend {
            BackendState::Heap(heap) => {
                heap.change(|heap| heap.set_exclusive(pool, is_exclusive))?
            }
            // There memory of a capture belongs to its graph.
            BackendState::AsyncPools(_) => Ok(()),
        }
    }

    /// Releases a private pool: it serves no further request, and a trim gives its memory back as
    /// far as it is free. Other pools borrow it once the allocator has waited for the device.
    ///
    /// # Errors
    /// The pool is unknown, released before, or the default pool.
    pub fn release_pool(&self, pool: PoolId) -> Result<(), RequestError> {
        self.engine.backend.state().change(|state| state.release_pool(pool))??;
        self.engine.executor.captures.expect_no_more(pool);
        Ok(())
    }

    /// Gives all unused memory of the default pool and of released pools back to the device, and
    /// returns how many bytes. Waits until the device is idle.
    ///
    /// # Errors
    /// A driver call failed, and what was given back before stays so; or a stream is being
    /// captured, and nothing was done.
    pub fn trim(&self) -> Result<u64, TrimError> {
        self.engine.trim()
    }

    /// Like [`trim`](Self::trim) for released pools alone: what the default pool has cached stays.
    /// With [`Backend::Async`] it is all unused memory.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn trim_released(&self) -> Result<u64, TrimError> {
        self.engine.trim_released()
    }

    /// Like [`trim`](Self::trim) for memory whose last use is known to be complete: never waits,
    /// and leaves pools alone that were released since the last wait for the device.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn trim_passed(&self) -> Result<u64, TrimError> {
        self.engine.trim_passed()
    }

    /// Gives back about so many unused bytes, for somebody whom the device refused some, and
    /// returns how many; `u64::MAX` is all that can be had by this effort.
    ///
    /// The caller may hold any lock that is not this allocator's: what is under way is waited for
    /// so long at most, be it requests that miss, work of the device, or a callback of the
    /// program's. While a stream is being captured nothing is done.
    pub fn give_back(&self, bytes: u64, effort: Effort, patience: Duration) -> u64 {
        self.engine.give_back(bytes, effort, patience)
    }

    /// Gives up so many bytes of unused memory, as little more as whole handles allow, within about
    /// that time, and returns how many bytes those were. What was used last goes last. Live memory
    /// moves together for it where it may. While a stream is captured nothing is given up.
    ///
    /// `hands_over`: handles of memory that nobody else knows come as they are, up to 128 of them,
    /// for another process to take in; the rest goes back to the device.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// drop(allocator.allocate(stream, 512 << 20)?);
    /// let gift = allocator.give_to_neighbours(64 << 20, false, Duration::from_millis(10));
    /// assert_eq!(gift.bytes, 128 << 20); // a handle
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_to_neighbours(&self, bytes: u64, hands_over: bool, patience: Duration) -> Gift {
        self.engine.give_to_neighbours(bytes, hands_over, Instant::now() + patience)
    }

    /// How far each stream has come now, for
    /// [`give_back_unused_since`](Self::give_back_unused_since). `None` with backend `async`.
    pub fn points(&self) -> Option<Points> {
        self.engine.points()
    }

    /// Gives back what has been free since some [`points`](Self::points) were taken, within about
    /// that time, never waits for the device, and returns the bytes.
    pub fn give_back_unused_since(&self, points: &Points, patience: Duration) -> u64 {
        self.engine.give_back_unused_since(points, Instant::now() + patience)
    }

    /// Asks other processes on the device to give so many bytes back, and waits for as long as the
    /// options allow: for a call that is not the allocator's, and was refused memory. Its own
    /// requests ask by themselves. Returns what they gave.
    pub fn ask_neighbours(&self, bytes: u64) -> u64 {
        self.engine.ask_neighbours_for(bytes)
    }

    /// From now on other processes on the device are asked before a request is refused, and told
    /// what is held. The first that is given stays.
    pub fn set_neighbours(&self, neighbours: &'static dyn Neighbours) {
        if self.engine.neighbours.set(neighbours).is_ok() {
            self.engine.tell_neighbours();
        }
    }

    /// Runs something, the beginning of a capture say, while no memory moves between allocator and
    /// device: requests that miss and trims of other threads wait for it. It must not use the
    /// allocator except what its own free list serves.
    ///
    /// # Errors
    /// The caller is a callback on mappings or a provider of memory of this allocator, and memory
    /// is moving: nothing was run.
    pub fn while_memory_stays<R>(&self, run: impl FnOnce() -> R) -> Result<R, DriverError> {
        self.engine.while_memory_stays(run)
    }

    /// Runs something that a capture forbids, such as a wait for the device, while none begins that
    /// is announced or begins [`while_memory_stays`](Self::while_memory_stays). Requests of other
    /// threads are served meanwhile, also those that miss. It must not use the allocator.
    pub fn before_captures<R>(&self, run: impl FnOnce() -> R) -> R {
        self.engine.before_captures(run)
    }

    /// Says that a capture may begin whose requests a private pool serves: until the first request
    /// for the pool, which tells whether one has, nothing is done that a capture forbids. Waits for
    /// requests that miss and for trims of other threads.
    ///
    /// The captures of streams that were added with [`add_stream`](Self::add_stream) are known
    /// without: each is asked. One that was added with
    /// [`add_passing_stream`](Self::add_passing_stream) is asked by calls that bring it, as a
    /// thread's own default stream ([`Stream::PER_THREAD`]) is by that thread, and what it said
    /// last counts until it comes again, or [`end_captures`](Self::end_captures) is called.
    ///
    /// # Errors
    /// As [`while_memory_stays`](Self::while_memory_stays).
    pub fn expect_capture(&self, pool: PoolId) -> Result<(), DriverError> {
        self.engine.expect_capture(pool)
    }

    /// Says that every capture is over whose requests a pool served. Streams that use memory which
    /// was freed in a capture live until then.
    pub fn end_captures(&self, pool: PoolId) {
        self.engine.end_captures(pool);
    }

    /// Who a stream is that a call brings. A capture of another does not forbid the question. A
    /// stream that is captured itself is not asked: what it said when it was added counts.
    ///
    /// # Errors
    /// The driver does not know the stream, or it is captured and said nothing before.
    #[inline]
    pub fn stream_uid(&self, stream: Stream) -> Result<StreamUid, DriverError> {
        self.engine.stream_uid(stream)
    }

    /// Says that the calling thread has begun to capture a stream that other threads cannot ask:
    /// its own default one, or one that may end unannounced. Until
    /// [`note_capture`](Self::note_capture) finds it over nothing is done that a capture forbids.
    /// May be called within [`while_memory_stays`](Self::while_memory_stays).
    ///
    /// # Errors
    /// No driver call can succeed any more.
    pub fn note_begun_capture(&self, stream: StreamId) -> Result<(), DriverError> {
        self.engine.note_begun_capture(stream)
    }

    /// Looks whether a stream is being captured that is about to be used, if any capture is known
    /// of: then one that is over is forgotten. A request that misses looks by itself. `pool` is
    /// that of the request, if it is one.
    ///
    /// # Errors
    /// No driver call can succeed any more.
    #[inline]
    pub fn note_capture(&self, pool: Option<PoolId>, stream: StreamId) -> Result<(), DriverError> {
        self.engine.note_capture(pool, stream)
    }

    /// Sets the limit of reserved bytes. What is reserved above it stays until trimmed. Makes no
    /// driver call.
    pub fn set_limit(&self, limit_bytes: u64) {
        // What is poisoned takes nothing more anyway.
        let _ = self.engine.backend.state().change(|state| state.set_limit(limit_bytes));
    }

    /// Adds a callback for when memory runs out, called by the thread that asks for memory, with no
    /// lock held: it may use the allocator. One that keeps a handle of it keeps the allocator for
    /// good. Tried before, in this order: pending frees, a trim of what is complete, a wait for the
    /// device, moves of live memory, a trim of everything unused, neighbours. It is not called for
    /// a stream that is being captured.
    pub fn on_out_of_memory(&self, callback: OutOfMemoryCallback) {
        self.engine.callbacks.lock().push(callback);
    }
}
