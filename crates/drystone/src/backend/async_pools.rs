//! What only asynchronous pools do to the device (`cudaMallocAsync`): every request and every free
//! is a call, in the order of a stream, and what is cached is the driver's affair.
//!
//! Each pool has a memory pool of its own, made when it is first asked; never the device's default
//! one. A stream that is captured takes only what becomes part of its graph, and a graph only what
//! it allocated (I11). A stream that may be gone is named to the driver by calls alone that bring
//! it: what is freed of it goes back with its next request, or once the device was idle, and what a
//! graph owns stays the graph's. Whoever allocates or trims holds the growth lock, so that what is
//! known of a memory pool is never older than what is known of its blocks.

use drystone_core::{
    AsyncPools, DeferredFree, DriverAlloc, Failure, FreeOrder, Miss, PendingAlloc, PoolId,
    StateMachine, StreamId,
};
use drystone_driver::{Call, CaptureStatus, DriverError, ErrorCode, MemoryPool, Relaxed, Stream};

use crate::error::{TrimError, poisoned};
use crate::executor::Executor;
use crate::state_lock::StateLock;

/// The pools, and the device they are on.
#[derive(Clone, Copy)]
pub(crate) struct PoolsDevice<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) pools: &'a StateLock<AsyncPools>,
}

impl PoolsDevice<'_> {
    /// Asks the driver for what a miss needs, and hands in what it gave.
    pub(crate) fn allocate(self, miss: &mut Miss<DriverError>, pending: PendingAlloc) {
        let given = self.malloc_async(miss, &pending).map_err(|error| Failure {
            is_out_of_memory: error.is_out_of_memory(),
            error,
            failed_at: 0,
            in_effect: 0,
        });
        // What is next for the miss of a poisoned state machine, that says itself.
        let refused = self.pools.change(|pools| pools.allocated(miss, pending, given));
        if let Ok(Some(block)) = refused {
            // A block that could not go is let go of later.
            let _ = self.let_go(block, Some(miss.stream()));
        }
    }

    /// Gives freed blocks whose uses are complete back to the driver, in the order of streams whose
    /// end will be told, and of the one that the call at hand brings. True if any went.
    ///
    /// Errors: no driver call can succeed any more, and no further one was tried.
    pub(super) fn free_deferred(self, brought: Option<StreamId>) -> Result<bool, DriverError> {
        let (mut any, mut end) = (false, None);
        let lasting = self.lasting();
        let blocks = self.pools.change(|pools| {
            pools.deferred_frees(|stream| brought == Some(stream) || lasting.contains(&stream))
        });
        let blocks = blocks.map_err(poisoned(Call::FreeAsync))?;
        // Each is tried, whatever becomes of those before it, except the end of everything.
        for block in blocks {
            if end.is_some() {
                let _ = self.pools.change(|pools| pools.finish_free(block, false));
                continue;
            }
            match self.let_go(block, brought) {
                Ok(()) => any = true,
                Err(error) if error.code.is_final() => end = Some(error),
                Err(_) => {}
            }
        }
        end.map_or(Ok(any), Err)
    }

    /// Gives back what the driver's pools hold unused. Returns the bytes.
    pub(super) fn trim(self) -> Result<u64, TrimError> {
        self.executor
            .refuse_in_capture(Call::TrimMemoryPool)
            .map_err(TrimError::before_anything)?;
        self.free_deferred(None).map_err(TrimError::before_anything)?;
        self.observe().map_err(TrimError::before_anything)?;
        let before = self.pools.read().stats().all.reserved_bytes;
        let pools = self.pools.read().trimmable_pools();
        let mut result = Ok(());
        for (at, has_ended) in pools {
            let pool = self.executor.handles.lock().memory_pool(at);
            let Some(pool) = pool else { continue };
            let trimmed = self.executor.driver.trim_memory_pool(pool, 0);
            result = self.observe_one(at, pool).and(trimmed);
            // One that still holds something would hold it unseen.
            if result.is_ok() && has_ended && self.pools.read().reserved_bytes_of(at) == 0 {
                result = self.destroy_memory_pool(at, pool);
            }
            if result.is_err() {
                break;
            }
        }
        let after = self.pools.read().stats().all.reserved_bytes;
        let given_back_bytes = (after.total - after.current) - (before.total - before.current);
        result.map(|()| given_back_bytes).map_err(|error| TrimError { error, given_back_bytes })
    }

    /// What is still allocated stays valid: a memory pool lives on for it.
    pub(super) fn close(self) -> Result<(), DriverError> {
        let pools = self.executor.handles.lock().memory_pools();
        pools.into_iter().try_for_each(|(at, pool)| self.destroy_memory_pool(at, pool))
    }

    /// To be called with the growth lock held. Errors: no call can succeed any more.
    pub(crate) fn observe(self) -> Result<(), DriverError> {
        let pools = self.executor.handles.lock().memory_pools();
        pools.into_iter().try_for_each(|(at, pool)| self.observe_one(at, pool))
    }

    /// A pool that cannot be asked keeps its figure. Errors: as for all.
    fn observe_one(self, at: usize, pool: MemoryPool) -> Result<(), DriverError> {
        let ask = || {
            // A capture forbids the question to a restricted thread, and would be broken.
            let _relaxed = Relaxed::enter(&*self.executor.driver)?;
            self.executor.driver.memory_pool_usage(pool)
        };
        // Twice, since an old figure would hide what a trim gave back.
        let usage = ask().or_else(|error| if error.code.is_final() { Err(error) } else { ask() });
        match usage {
            Ok(usage) => self.note_reserved(at, usage.reserved_bytes)?,
            Err(error) if error.code.is_final() => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    fn malloc_async(
        self,
        miss: &Miss<DriverError>,
        pending: &PendingAlloc,
    ) -> Result<DriverAlloc, DriverError> {
        let driver = &*self.executor.driver;
        let call = Call::MallocAsync;
        let (stream, status) = self.executor.streams.look_up(driver, call, miss.stream())?;
        let is_graphs = match status {
            CaptureStatus::None => false,
            CaptureStatus::Active => true,
            CaptureStatus::Invalidated => {
                return Err(DriverError::new(call, ErrorCode::CaptureUnsupported));
            }
        };
        let memory_pool = self.memory_pool_of(miss.pool())?;
        let address = driver.malloc_async(memory_pool, pending.bytes(), stream)?;
        let usage = driver.memory_pool_usage(memory_pool);
        let reserved_bytes = usage.ok().map(|usage| usage.reserved_bytes);
        Ok(DriverAlloc { address, is_graphs, reserved_bytes })
    }

    /// The memory pool of a pool, made if there is none. The growth lock is held.
    fn memory_pool_of(self, pool: PoolId) -> Result<MemoryPool, DriverError> {
        let (made, config) = {
            let handles = self.executor.handles.lock();
            (handles.memory_pool(pool.index()), handles.config)
        };
        if let Some(made) = made {
            return Ok(made);
        }
        let memory_pool = self.executor.driver.create_memory_pool(&config)?;
        self.executor.handles.lock().set_memory_pool(pool.index(), Some(memory_pool));
        Ok(memory_pool)
    }

    fn destroy_memory_pool(self, at: usize, pool: MemoryPool) -> Result<(), DriverError> {
        self.executor.driver.destroy_memory_pool(pool)?;
        self.executor.handles.lock().set_memory_pool(at, None);
        self.note_reserved(at, 0)
    }

    fn note_reserved(self, at: usize, reserved_bytes: u64) -> Result<(), DriverError> {
        let noted = self.pools.change(|pools| pools.observe(at, reserved_bytes));
        noted.map_err(poisoned(Call::MemoryPoolUsage))
    }

    /// Gives a block back to the driver, or back to the pools, to be tried again later: where it
    /// may go in the order of its own stream alone, that may be gone, and is not `brought`.
    pub(crate) fn let_go(
        self,
        block: DeferredFree,
        brought: Option<StreamId>,
    ) -> Result<(), DriverError> {
        let freed = self.free_async(&block, brought);
        let noted = self.pools.change(|pools| pools.finish_free(block, freed.is_ok()));
        freed.and(noted.map_err(poisoned(Call::FreeAsync)))
    }

    fn free_async(
        self,
        block: &DeferredFree,
        brought: Option<StreamId>,
    ) -> Result<(), DriverError> {
        let Executor { driver, streams, .. } = self.executor;
        let may_be_gone = |stream| brought != Some(stream) && streams.lock().is_passing(stream);
        let address = block.address();
        match block.route() {
            FreeOrder::Own(stream) if may_be_gone(stream) => {
                Err(DriverError::new(Call::FreeAsync, ErrorCode::InvalidHandle))
            }
            FreeOrder::Own(stream) => {
                let _relaxed = Relaxed::enter(&**driver)?;
                driver.free_async(address, self.uncaptured(stream)?)
            }
            FreeOrder::Graph(stream) => {
                let handle = streams.lock().of(stream).map(|known| known.stream);
                // A thread's own has one handle in all threads, and in a capture nobody can ask
                // which of them it is.
                let is_known = handle != Some(Stream::PER_THREAD) && !may_be_gone(stream);
                let Some(stream) = handle.filter(|_| is_known) else { return Ok(()) };
                let _relaxed = Relaxed::enter(&**driver)?;
                match driver.capture_status(stream)? {
                    CaptureStatus::Active => driver.free_async(address, stream),
                    _ => Ok(()),
                }
            }
            FreeOrder::Any(stream) => {
                let _relaxed = Relaxed::enter(&**driver)?;
                let mut streams = self.lasting();
                // Best the block's own, if it may be named.
                if let Some(own) = streams.iter().position(|&one| one == stream) {
                    streams.swap(0, own);
                }
                let usable = streams.into_iter().find_map(|one| self.uncaptured(one).ok());
                if usable.is_none() {
                    self.executor.refuse_in_capture(Call::FreeAsync)?;
                }
                // The default stream is there when no other is.
                driver.free_async(address, usable.unwrap_or(Stream::DEFAULT))
            }
        }
    }

    /// Streams whose end will be told.
    fn lasting(self) -> Vec<StreamId> {
        self.executor.streams.lock().lasting().map(|known| known.id).collect()
    }

    /// The handle of a stream that is itself, and not captured.
    fn uncaptured(self, stream: StreamId) -> Result<Stream, DriverError> {
        let call = Call::FreeAsync;
        match self.executor.streams.look_up(&*self.executor.driver, call, stream)? {
            (stream, CaptureStatus::None) => Ok(stream),
            _ => Err(DriverError::new(Call::FreeAsync, ErrorCode::CaptureUnsupported)),
        }
    }
}
