//! The driver's memory pools as a source (`cudaMallocAsync`): every request and every free is a
//! call, in the order of a stream, and what is cached is the driver's affair.
//!
//! Each pool has a memory pool of its own, made when it is first asked; never the device's default
//! one. A stream that is captured takes only what becomes part of its graph, and a graph only what
//! it allocated (I11). Whoever allocates or trims holds the growth lock, so that what the books
//! know of a memory pool is never older than what they know of its blocks.

use drystone_core::size::QUANTUM;
use drystone_core::{
    AsyncPools, DeferredFree, DriverAlloc, Fence, FreeError, FreeOrder, FreeOutcome, Granted,
    PendingAlloc, Plan, PoolId, RequestError, Stats, StreamError, StreamId,
};
use drystone_driver::{
    Call, CaptureStatus, DriverError, ErrorCode, MemoryPool, MemoryPoolConfig, Stream,
};

use super::Books;
use crate::capture::{Captured, Relaxed};
use crate::device::{Device, nothing_yet};
use crate::error::{AllocateError, PeerError, TrimError, is_final};
use crate::events::Events;
use crate::grow::{Miss, Refused};

impl Books for AsyncPools {
    fn add_stream(&mut self) -> StreamId {
        self.add_stream()
    }

    fn retire_stream(&mut self, stream: StreamId) -> Result<Plan, StreamError> {
        self.retire_stream(stream)
    }

    fn fence_passed(&mut self, fence: Fence) {
        self.fence_passed(fence);
    }

    fn plan_synchronize(&mut self) -> Plan {
        self.plan_synchronize()
    }

    fn commit(&mut self, plan: Plan, _: u64) {
        self.commit(plan);
    }

    fn abandon(&mut self, plan: Plan, _: usize) {
        self.abandon(plan);
    }

    fn release_all_pools(&mut self) {
        self.release_all_pools();
    }

    fn stats(&self) -> &Stats {
        self.stats()
    }

    fn stats_mut(&mut self) -> &mut Stats {
        self.stats_mut()
    }

    fn unused_bytes(&self) -> u64 {
        let all = &self.stats().all;
        all.reserved_bytes.current - all.active_bytes.current
    }

    fn unit_bytes(&self) -> u64 {
        QUANTUM
    }

    fn limit_bytes(&self) -> u64 {
        self.limit_bytes()
    }

    /// The driver does not tell.
    fn largest_free_bytes(&self) -> u64 {
        0
    }

    fn granule_bytes(&self, _: PoolId) -> Option<u64> {
        None
    }

    fn attempt(
        device: &Device<Self>,
        miss: Miss,
        captured: Captured,
    ) -> Result<Result<Granted, Refused>, AllocateError> {
        let Miss { pool, stream, bytes } = miss;
        let failed = |error| AllocateError::Driver { error, bytes };
        let _relaxed = Relaxed::enter(&*device.driver).map_err(failed)?;
        let is_captured = captured == Captured::Own;
        let requested = device.books.lock().request(pool, stream, bytes, is_captured);
        let order = match requested {
            Ok(order) => order,
            Err(RequestError::Limit { .. }) => return Ok(Err(Refused(None))),
            Err(error) => return Err(error.into()),
        };
        match device.malloc_ordered(pool, stream, &order) {
            Ok(given) => {
                let admitted = device.books.lock().admit(order, given);
                Ok(admitted.map_err(|departure| {
                    // A block that could not go is let go of later.
                    let _ = device.let_go(departure);
                    Refused(None)
                }))
            }
            Err(error) => {
                device.books.lock().cancel(order);
                let is_memory = error.is_out_of_memory();
                if is_memory { Ok(Err(Refused(Some(error)))) } else { Err(failed(error)) }
            }
        }
    }

    fn depart(device: &Device<Self>) -> Result<bool, DriverError> {
        let (mut any, mut end) = (false, None);
        let departures = device.books.lock().deferred_frees();
        // Each is tried, whatever becomes of those before it, but for the end of everything.
        for departure in departures {
            if end.is_some() {
                device.books.lock().finish_free(departure, false);
                continue;
            }
            match device.let_go(departure) {
                Ok(()) => any = true,
                Err(error) if is_final(error.code) => end = Some(error),
                Err(_) => {}
            }
        }
        end.map_or(Ok(any), Err)
    }

    fn give_back(device: &Device<Self>) -> Result<u64, TrimError> {
        device.refuse_in_capture(Call::TrimMemoryPool).map_err(nothing_yet)?;
        Self::depart(device).map_err(nothing_yet)?;
        device.observe().map_err(nothing_yet)?;
        let before = device.books.lock().stats().all.reserved_bytes;
        let pools = device.books.lock().trimmable_pools();
        let mut result = Ok(());
        for (at, has_ended) in pools {
            let pool = device.handles.lock().memory_pool(at);
            let Some(pool) = pool else { continue };
            let trimmed = device.driver.trim_memory_pool(pool, 0);
            result = device.observe_one(at, pool).and(trimmed);
            // One that still holds something would hold it unseen.
            if result.is_ok() && has_ended && device.books.lock().reserved_bytes_of(at) == 0 {
                result = device.destroy_memory_pool(at, pool);
            }
            if result.is_err() {
                break;
            }
        }
        let after = device.books.lock().stats().all.reserved_bytes;
        let given_back_bytes = (after.total - after.current) - (before.total - before.current);
        result.map(|()| given_back_bytes).map_err(|error| TrimError { error, given_back_bytes })
    }

    /// What is still allocated stays valid: a memory pool lives on for it.
    fn close(device: &Device<Self>) -> Result<(), DriverError> {
        let pools = device.handles.lock().memory_pools();
        pools.into_iter().try_for_each(|(at, pool)| device.destroy_memory_pool(at, pool))
    }
}

impl Device<AsyncPools> {
    /// Frees a live block, in the order of its stream.
    pub(crate) fn free(&self, address: u64) -> Result<(), FreeError> {
        let leaving = self.books.lock().free(address)?;
        self.see_off(leaving);
        Ok(())
    }

    /// The same, given the size it was allocated with.
    pub(crate) fn free_sized(&self, address: u64, bytes: u64) -> Result<(), FreeError> {
        let leaving = self.books.lock().free_sized(address, bytes)?;
        self.see_off(leaving);
        Ok(())
    }

    fn see_off(&self, leaving: FreeOutcome) {
        match leaving {
            FreeOutcome::Done => {}
            // To the program it is freed: what could not go is let go of later.
            FreeOutcome::Now(departure) => drop(self.let_go(departure)),
            FreeOutcome::Plan(plan) => self.finish(plan),
        }
    }

    /// Asks the driver how much its memory pools hold, unless someone is about to do so.
    pub(crate) fn refresh(&self) {
        if let Some(_growth) = self.growth.try_lock() {
            // At the end of everything the last figures stand.
            let _ = self.observe();
        }
    }

    /// Gives a peer access to all memory: the driver opens its pools as a whole.
    pub(crate) fn enable_peer_access(&self, peer_ordinal: u32) -> Result<(), PeerError> {
        let enabled = self.driver.enable_peer_access(peer_ordinal);
        enabled.map_err(|error| PeerError { peer_ordinal, error, open_bytes: 0, closed_bytes: 0 })
    }

    /// How memory pools are made.
    pub(crate) fn pool_config(&self) -> MemoryPoolConfig {
        self.handles.lock().config
    }

    /// To be called with the growth lock held. Errors: no call can succeed any more.
    fn observe(&self) -> Result<(), DriverError> {
        let pools = self.handles.lock().memory_pools();
        pools.into_iter().try_for_each(|(at, pool)| self.observe_one(at, pool))
    }

    /// A pool that cannot be asked keeps its figure. Errors: as for all.
    fn observe_one(&self, at: usize, pool: MemoryPool) -> Result<(), DriverError> {
        let ask = || self.driver.memory_pool_usage(pool);
        // Twice, since an old figure would hide what a trim gave back.
        let usage = ask().or_else(|error| if is_final(error.code) { Err(error) } else { ask() });
        match usage {
            Ok(usage) => self.books.lock().observe(at, usage.reserved_bytes),
            Err(error) if is_final(error.code) => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    fn malloc_ordered(
        &self,
        pool: PoolId,
        stream: StreamId,
        order: &PendingAlloc,
    ) -> Result<DriverAlloc, DriverError> {
        let driver = &*self.driver;
        let call = Call::MallocAsync;
        let (stream, status) = Events::look_up(&self.events, driver, call, stream)?;
        let is_graphs = match status {
            CaptureStatus::None => false,
            CaptureStatus::Active => true,
            CaptureStatus::Invalidated => {
                return Err(DriverError::new(call, ErrorCode::CaptureUnsupported));
            }
        };
        let memory_pool = self.memory_pool_of(pool)?;
        let address = driver.malloc_async(memory_pool, order.bytes(), stream)?;
        let usage = driver.memory_pool_usage(memory_pool);
        let reserved_bytes = usage.ok().map(|usage| usage.reserved_bytes);
        Ok(DriverAlloc { address, is_graphs, reserved_bytes })
    }

    /// The memory pool of a pool, made if there is none. The growth lock is held.
    fn memory_pool_of(&self, pool: PoolId) -> Result<MemoryPool, DriverError> {
        let (made, config) = {
            let handles = self.handles.lock();
            (handles.memory_pool(pool.index()), handles.config)
        };
        if let Some(made) = made {
            return Ok(made);
        }
        let memory_pool = self.driver.create_memory_pool(&config)?;
        self.handles.lock().set_memory_pool(pool.index(), Some(memory_pool));
        Ok(memory_pool)
    }

    fn destroy_memory_pool(&self, at: usize, pool: MemoryPool) -> Result<(), DriverError> {
        self.driver.destroy_memory_pool(pool)?;
        self.handles.lock().set_memory_pool(at, None);
        self.books.lock().observe(at, 0);
        Ok(())
    }

    /// Gives a block back to the driver, or back to the books, to be tried again later.
    fn let_go(&self, departure: DeferredFree) -> Result<(), DriverError> {
        let freed = self.free_ordered(&departure);
        self.books.lock().finish_free(departure, freed.is_ok());
        freed
    }

    fn free_ordered(&self, departure: &DeferredFree) -> Result<(), DriverError> {
        let _relaxed = Relaxed::enter(&*self.driver)?;
        let address = departure.address();
        match departure.route() {
            FreeOrder::Own(stream) => self.driver.free_async(address, self.uncaptured(stream)?),
            FreeOrder::Graph(stream) => {
                let Some(stream) = self.events.lock().stream(stream) else { return Ok(()) };
                match self.driver.capture_status(stream)? {
                    CaptureStatus::Active => self.driver.free_async(address, stream),
                    _ => Ok(()),
                }
            }
            FreeOrder::Any(stream) => {
                let others = self.events.lock().ids();
                let mut streams = std::iter::once(stream).chain(others);
                let usable = streams.find_map(|one| self.uncaptured(one).ok());
                if usable.is_none() {
                    self.refuse_in_capture(Call::FreeAsync)?;
                }
                // The default stream is there when no other is.
                self.driver.free_async(address, usable.unwrap_or(Stream::DEFAULT))
            }
        }
    }

    /// The handle of a stream that is itself, and not captured.
    fn uncaptured(&self, stream: StreamId) -> Result<Stream, DriverError> {
        let call = Call::FreeAsync;
        match Events::look_up(&self.events, &*self.driver, call, stream)? {
            (stream, CaptureStatus::None) => Ok(stream),
            _ => Err(DriverError::new(Call::FreeAsync, ErrorCode::CaptureUnsupported)),
        }
    }
}
