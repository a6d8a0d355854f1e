//! [`Engine`]: what the handles of one allocator share, and how memory comes and goes.
//!
//! Lock order: `growth`, which whoever moves memory between heap and device holds across driver
//! calls; or `streams`, while a stream is added; then one of the others alone: the backend's for
//! decisions, the events' for record, query and wait, the handles', providers' and callbacks' for a
//! copy. I14: no callback happens under any lock, no blocking driver call under any but `growth`,
//! which hits and frees never take. A memory provider is a driver in this, and so is who is told of
//! changes of mappings (`executor::observe`).
//!
//! `recover`: the way of a request that misses. `share`: memory of other processes, and for them.
//! `streams`: which come and go, and `known`: which there are.

mod known;
mod recover;
mod share;
mod streams;

use std::sync::Arc;

use drystone_core::{AsyncPools, FreeError, FreeOutcome, Freed, Granted, Plan, PoolId, StreamId};
use drystone_driver::{Call, Driver, DriverError, Stream};
use parking_lot::Mutex;

use self::known::Streams;
use self::share::Imports;
use crate::backend::async_pools::PoolsDevice;
use crate::backend::{BackendState, heap};
use crate::error::{AllocateError, PeerError, TrimError, is_final, poisoned};
use crate::executor::Executor;
use crate::executor::capture::Relaxed;
use crate::executor::handles::Handles;
use crate::state_lock::StateLock;

/// Called when memory runs out, with the bytes asked for and no lock held. Returns whether it
/// freed something, so that the request is worth another try.
pub type OutOfMemoryCallback = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// What the handles of an allocator share.
pub(crate) struct Engine {
    pub(crate) backend: BackendState,
    pub(crate) executor: Executor,
    /// Held by whoever moves memory between the backend and the device.
    growth: Mutex<()>,
    pub(crate) callbacks: Mutex<Vec<OutOfMemoryCallback>>,
    streams: Streams,
    imports: Imports,
}

impl Engine {
    pub(crate) fn new(driver: Arc<dyn Driver>, backend: BackendState, handles: Handles) -> Self {
        Self {
            backend,
            executor: Executor::new(driver, handles),
            growth: Mutex::default(),
            callbacks: Mutex::default(),
            streams: Streams::default(),
            imports: Imports::default(),
        }
    }

    /// Serves a request: from its own free list, or by what it takes.
    #[inline]
    pub(crate) fn allocate(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
    ) -> Result<Granted, AllocateError> {
        match &self.backend {
            BackendState::Heap(heap) => {
                if let Some(granted) = heap.change(|heap| heap.allocate(pool, stream, bytes))?? {
                    return Ok(granted);
                }
            }
            BackendState::AsyncPools(pools) => {
                pools.change(|pools| pools.check_request(pool, stream, bytes))??;
            }
        }
        self.allocate_slowly(pool, stream, bytes)
    }

    /// Frees a live block.
    #[inline]
    pub(crate) fn free(&self, address: u64) -> Result<(), FreeError> {
        match &self.backend {
            BackendState::Heap(heap) => {
                let freed = heap.change(|heap| heap.free(address))??;
                if let Freed::Plan(plan) = freed {
                    self.finish(*plan);
                }
            }
            BackendState::AsyncPools(pools) => {
                let freed = pools.change(|pools| pools.free(address))??;
                self.finish_async(pools, freed);
            }
        }
        Ok(())
    }

    /// Frees a live block, given the size it was allocated with.
    #[inline]
    pub(crate) fn free_sized(&self, address: u64, bytes: u64) -> Result<(), FreeError> {
        match &self.backend {
            BackendState::Heap(heap) => {
                let freed = heap.change(|heap| heap.free_sized(address, bytes))??;
                if let Freed::Plan(plan) = freed {
                    self.finish(*plan);
                }
            }
            BackendState::AsyncPools(pools) => {
                let freed = pools.change(|pools| pools.free_sized(address, bytes))??;
                self.finish_async(pools, freed);
            }
        }
        Ok(())
    }

    /// What a free of a block of the driver's pools asks for.
    fn finish_async(&self, pools: &StateLock<AsyncPools>, freed: FreeOutcome) {
        match freed {
            FreeOutcome::Done => {}
            // To the program it is freed: one that cannot go goes later.
            FreeOutcome::Now(block) => {
                drop(PoolsDevice { executor: &self.executor, pools }.let_go(block));
            }
            FreeOutcome::Plan(plan) => self.finish(plan),
        }
    }

    /// Runs something that no growth and no trim may meet half way.
    pub(crate) fn while_memory_stays<R>(&self, run: impl FnOnce() -> R) -> R {
        let _growth = self.growth.lock();
        run()
    }

    /// Carries out a plan and hands it back, done or undone.
    fn perform(&self, plan: Plan) -> Result<(), DriverError> {
        self.executor.perform(self.backend.state(), plan)
    }

    /// Carries out a plan whose failure the backend deals with by itself. Now and then looks which
    /// fences have passed: a program may never miss, and what it frees would wait for ever.
    #[cold]
    fn finish(&self, plan: Plan) {
        // A block whose fences failed is quarantined, a stream's end waits for an idle device.
        let _ = self.perform(plan);
        let is_due = self.executor.events.lock().is_look_due();
        if is_due && !self.executor.is_any_captured() {
            self.collect();
        }
    }

    /// Tells the backend which fences have passed, and frees what waited for them. True if any
    /// has.
    pub(crate) fn collect(&self) -> bool {
        let has_passed = self.note_passed();
        if has_passed.is_ok() {
            // What could not go is tried again.
            let _ = self.backend.free_deferred(&self.executor);
        }
        has_passed.unwrap_or(false)
    }

    /// Errors: no driver call can succeed any more.
    fn note_passed(&self) -> Result<bool, DriverError> {
        for plan in self.executor.after_capture() {
            // One that fails is abandoned, or kept for the end of the next capture.
            let _ = self.perform(plan);
        }
        let passed = {
            let mut events = self.executor.events.lock();
            if !events.any_recorded() {
                return Ok(false);
            }
            match Relaxed::enter(&*self.executor.driver) {
                Ok(_relaxed) => events.collect(&*self.executor.driver),
                Err(error) if is_final(error.code) => return Err(error),
                Err(_) => return Ok(false),
            }
        };
        let state = self.backend.state();
        let noted = state.change(|s| passed.iter().for_each(|&fence| s.fence_passed(fence)));
        noted.map(|()| !passed.is_empty()).map_err(poisoned(Call::Query))
    }

    /// Waits for every fence that is recorded. True if there was any.
    pub(crate) fn await_pending(&self) -> bool {
        let recorded = self.executor.events.lock().last_recorded();
        let Ok(relaxed) = Relaxed::enter(&*self.executor.driver) else { return false };
        for (_, event) in &recorded {
            // One that fails is no reason not to wait for the others; `collect` asks anew.
            let _ = self.executor.driver.synchronize_event(*event);
        }
        drop(relaxed);
        self.collect()
    }

    /// Waits until the device is idle, and tells the backend. Refused while a stream is captured,
    /// which that would break.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.executor.refuse_in_capture(Call::SynchronizeDevice)?;
        self.backend.free_deferred(&self.executor)?;
        self.wait_until_idle()?;
        self.note_passed()?;
        if self.backend.free_deferred(&self.executor)? {
            // What could go only now is unused once the device has been idle again.
            self.wait_until_idle()?;
        }
        Ok(())
    }

    fn wait_until_idle(&self) -> Result<(), DriverError> {
        let plan = self.backend.state().change(|state| state.plan_synchronize());
        self.perform(plan.map_err(poisoned(Call::SynchronizeDevice))?)
    }

    /// Waits until the device is idle and gives back all unused memory. Returns the bytes.
    pub(crate) fn trim(&self) -> Result<u64, TrimError> {
        self.refuse_at_the_end().map_err(TrimError::before_anything)?;
        let _growth = self.growth.lock();
        self.synchronize().map_err(TrimError::before_anything)?;
        self.let_go_of_imports();
        self.backend.trim(&self.executor)
    }

    /// Gives back the unused memory whose last use is complete. Returns the bytes.
    pub(crate) fn trim_passed(&self) -> Result<u64, TrimError> {
        self.refuse_at_the_end().map_err(TrimError::before_anything)?;
        let _growth = self.growth.lock();
        self.collect();
        self.backend.trim(&self.executor)
    }

    /// Gives a peer access to all memory. The driver opens its own pools as a whole.
    pub(crate) fn enable_peer_access(&self, peer_ordinal: u32) -> Result<(), PeerError> {
        let failed = |error| PeerError { peer_ordinal, error, open_bytes: 0, closed_bytes: 0 };
        match &self.backend {
            BackendState::Heap(heap) => {
                self.refuse_at_the_end().map_err(failed)?;
                let _growth = self.growth.lock();
                heap::enable_peer_access(&self.executor, heap, peer_ordinal)?;
                self.open_imports().map_err(failed)
            }
            BackendState::AsyncPools(_) => {
                self.executor.driver.enable_peer_access(peer_ordinal).map_err(failed)
            }
        }
    }

    /// What the driver's memory pools hold, the driver may change on its own: it is asked, unless
    /// someone is about to do so.
    #[inline]
    pub(crate) fn refresh(&self) {
        if let BackendState::AsyncPools(pools) = &self.backend
            && let Some(_growth) = self.growth.try_lock()
        {
            // At the end of everything the last figures stand.
            let _ = PoolsDevice { executor: &self.executor, pools }.observe();
        }
    }

    /// Asked before the locks of growth and events are taken: in a forked child nobody may be left
    /// to release them (B56), and a callback that is told of changes runs under the former.
    pub(crate) fn refuse_at_the_end(&self) -> Result<(), DriverError> {
        self.executor.observer.refuse_within()?;
        match self.executor.driver.capture_status(Stream::DEFAULT) {
            Err(error) if is_final(error.code) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Engine {
    /// Gives everything unused back. Live blocks of raw allocations stay mapped: the program may
    /// still be using them. Once the driver is shutting down nothing more is called.
    fn drop(&mut self) {
        // What is poisoned keeps its memory: the device is not waited for either.
        let _ = self.backend.state().change(|state| state.release_all_pools());
        self.let_go_of_imports();
        let trimmed = self.synchronize().map(|()| self.backend.trim(&self.executor));
        match trimmed {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if !error.is_final() => {}
            _ => return,
        }
        if self.backend.close(&self.executor).is_err_and(|error| is_final(error.code)) {
            return;
        }
        for event in self.executor.events.get_mut().drain() {
            if self.executor.driver.destroy_event(event).is_err() {
                return;
            }
        }
    }
}
