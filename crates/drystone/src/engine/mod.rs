//! [`Engine`]: what the handles of one allocator share, and how memory comes and goes.
//!
//! Lock order: `growth`, which whoever moves memory between heap and device holds across driver
//! calls; then `wait`, while the device is waited for; then the streams', while streams come and go
//! or are asked; then one of the others alone: the backend's for decisions, the events' for record,
//! query and wait, the handles', captures', providers' and callbacks' for a copy. I14: no callback
//! happens under any lock, no blocking driver call under any but `growth` and `wait`, which hits
//! and frees never take; and while the device is waited for, others grow. A memory provider is a
//! driver in this, and so is who is told of changes of mappings (`executor::observe`).
//!
//! `recover`: the way of a request that misses. `compact`: memory that moves, or not (`pause`).
//! `giving`: memory for other processes; `adopt`: what they give; `giving_back`: for other
//! libraries. `growing`: in place. `share`: for other processes, and theirs (`imports`). `streams`:
//! which come and go; `marks`: what their calls do for others; `own_order`: what the program
//! orders; `captures`: those that are known. `waiting`: what has passed, and waiting until it has.

mod adopt;
mod captures;
pub(crate) mod compact;
mod giving;
pub(crate) mod giving_back;
mod growing;
mod imports;
mod marks;
mod own_order;
mod pause;
mod recover;
mod share;
mod streams;
mod waiting;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use drystone_core::{
    AsyncPools, Captured, FreeError, FreeOutcome, Freed, Granted, Plan, Points, PoolId,
    RecordStreamError, StateMachine as _, StreamId,
};
use drystone_driver::{DriverError, Relaxed, Stream};
use parking_lot::Mutex;

use self::imports::Imports;
use self::pause::Pause;
use crate::backend::async_pools::PoolsDevice;
use crate::backend::{BackendState, heap};
use crate::error::{AllocateError, PeerError, TrimError};
use crate::executor::Executor;
use crate::neighbours::Neighbours;
use crate::observers::{Observer, Observers};
use crate::record::Recorder;
use crate::state_lock::StateLock;
use crate::tag::{Tag, Tags};

/// Called when memory runs out, with the bytes asked for and no lock held. Returns whether it
/// freed something, so that the request is worth another try.
pub type OutOfMemoryCallback = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// What the handles of an allocator share.
pub(crate) struct Engine {
    pub(crate) backend: BackendState,
    pub(crate) executor: Executor,
    /// Held by whoever moves memory between the backend and the device.
    growth: Mutex<()>,
    /// Held by whoever waits until the device is idle: a capture that began would be broken.
    wait: Mutex<()>,
    /// A thread waits until the device is idle, for somebody who may give up before.
    is_awaited: AtomicBool,
    pub(crate) callbacks: Mutex<Vec<OutOfMemoryCallback>>,
    pub(crate) observers: Arc<Observers>,
    pub(crate) tags: Tags,
    pub(crate) recorder: Arc<Recorder>,
    imports: Imports,
    pause: Mutex<Pause>,
    /// Other processes on the device, if anybody tells of them.
    pub(crate) neighbours: OnceLock<&'static dyn Neighbours>,
    /// How far each stream had come when memory came last.
    points_at_growth: Mutex<Option<Points>>,
}

impl Engine {
    pub(crate) fn new(backend: BackendState, executor: Executor) -> Self {
        let observers = Arc::<Observers>::default();
        Self {
            backend,
            executor,
            growth: Mutex::default(),
            wait: Mutex::default(),
            is_awaited: AtomicBool::new(false),
            callbacks: Mutex::default(),
            tags: Tags::new(Arc::clone(&observers)),
            recorder: Arc::new(Recorder::new(Arc::clone(&observers))),
            observers,
            imports: Imports::default(),
            pause: Mutex::default(),
            neighbours: OnceLock::new(),
            points_at_growth: Mutex::default(),
        }
    }

    /// Serves a request: from its own free list, or by what it takes. As the frees below, it is
    /// compiled for speed here, and no part of callers that are compiled for size.
    #[inline(never)]
    pub(crate) fn allocate(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
    ) -> Result<Granted, AllocateError> {
        let hit = match &self.backend {
            BackendState::Heap(heap) => {
                let hit = heap.change(|heap| heap.allocate(pool, stream, bytes))??;
                if let Some(granted) = hit
                    && !self.observers.has(Observer::Recorder)
                    && !self.executor.streams.is_wanted(stream)
                {
                    return Ok(granted);
                }
                hit
            }
            BackendState::AsyncPools(pools) => {
                pools.change(|pools| pools.check_request(pool, stream, bytes))??;
                None
            }
        };
        self.serve(pool, stream, bytes, hit)
    }

    /// Serves a request that missed, or that somebody is to hear of.
    #[cold]
    fn serve(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
        hit: Option<Granted>,
    ) -> Result<Granted, AllocateError> {
        let served = match hit {
            Some(granted) if self.executor.streams.is_wanted(stream) => {
                self.look_after(pool, stream, bytes, granted)
            }
            Some(granted) => Ok(granted),
            None => self.allocate_slowly(pool, stream, bytes),
        };
        if self.observers.has(Observer::Recorder) {
            if self.executor.captures.is_any()
                && let Ok(is_captured) = self.executor.is_captured(Some(pool), stream)
            {
                self.recorder.looked(pool, stream, is_captured);
            }
            match &served {
                Ok(granted) => self.recorder.allocated(pool, stream, granted.address, bytes),
                Err(AllocateError::OutOfMemory(_)) => self.recorder.refused(pool, stream, bytes),
                Err(_) => {}
            }
        }
        served
    }

    /// Frees a live block.
    #[inline(never)]
    pub(crate) fn free(&self, address: u64) -> Result<(), FreeError> {
        if !self.observers.is_empty() {
            self.tell_of_free(address, None);
        }
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
    #[inline(never)]
    pub(crate) fn free_sized(&self, address: u64, bytes: u64) -> Result<(), FreeError> {
        if !self.observers.is_empty() {
            self.tell_of_free(address, Some(bytes));
        }
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

    /// Frees a live block that a stream uses up to now, under one lock.
    #[inline(never)]
    pub(crate) fn free_used_on(
        &self,
        address: u64,
        stream: StreamId,
    ) -> Result<(), RecordStreamError> {
        if let (BackendState::Heap(heap), false) = (&self.backend, !self.observers.is_empty()) {
            let freed = heap.change(|heap| {
                heap.record_stream(address, stream)?;
                Ok::<_, RecordStreamError>(heap.free(address)?)
            })??;
            if let Freed::Plan(plan) = freed {
                self.finish(*plan);
            }
            return Ok(());
        }
        self.record_stream(address, stream)?;
        Ok(self.free(address)?)
    }

    /// Said before the block is taken back: from then on the address may be another's.
    #[cold]
    fn tell_of_free(&self, address: u64, bytes: Option<u64>) {
        if self.observers.has(Observer::Recorder) {
            self.recorder.freed(address, bytes);
        }
        if self.observers.has(Observer::Tags)
            && let Ok(block) = self.backend.read().block_at(address)
            && bytes.is_none_or(|bytes| bytes == block.requested_bytes)
        {
            self.tags.set(address, None, block.bytes);
        }
    }

    /// Counts a live block under a tag until it is freed, and under no other; or under none.
    pub(crate) fn tag_block(&self, address: u64, tag: Option<&Tag>) -> Result<(), FreeError> {
        let block = self.backend.read().block_at(address)?;
        self.tags.set(address, tag, block.bytes);
        Ok(())
    }

    /// Notes that a live block is also used on another stream.
    #[inline]
    pub(crate) fn record_stream(
        &self,
        address: u64,
        stream: StreamId,
    ) -> Result<(), RecordStreamError> {
        if self.observers.has(Observer::Recorder) {
            self.recorder.used(address, stream);
        }
        self.backend.state().change(|state| state.record_stream(address, stream))?
    }

    /// What a free of a block of the driver's pools asks for.
    fn finish_async(&self, pools: &StateLock<AsyncPools>, freed: FreeOutcome) {
        match freed {
            FreeOutcome::Done => {}
            // To the program it is freed: one that cannot go goes later.
            FreeOutcome::Now(block) => {
                // Where it fails the block is kept, and each call that follows refused.
                drop(self.check_context());
                drop(PoolsDevice { executor: &self.executor, pools }.let_go(block, None));
            }
            FreeOutcome::Plan(plan) => self.finish(plan),
        }
    }

    /// Runs something that no growth, no trim and no wait for the device may meet half way.
    /// Refused to who is called while memory moves.
    pub(crate) fn while_memory_stays<R>(&self, run: impl FnOnce() -> R) -> Result<R, DriverError> {
        self.executor.calling_out.refuse_within()?;
        loop {
            let growth = self.growth.lock();
            if let Some(_wait) = self.wait.try_lock() {
                return Ok(run());
            }
            drop(growth);
            // Others grow until the device is idle.
            drop(self.wait.lock());
        }
    }

    /// Runs something that a capture forbids, a wait for the device say, before any begins. Others
    /// grow meanwhile.
    pub(crate) fn before_captures<R>(&self, run: impl FnOnce() -> R) -> R {
        let _wait = self.wait.lock();
        run()
    }

    /// Carries out a plan and hands it back, done or undone.
    fn perform(&self, plan: Plan) -> Result<(), DriverError> {
        self.executor.perform(self.backend.state(), plan)
    }

    /// Carries out a plan whose failure the backend deals with by itself. Now and then looks which
    /// fences have passed: a program may never miss, and what it frees would wait forever.
    #[cold]
    fn finish(&self, plan: Plan) {
        if self.check_context().is_err() {
            return self.abandon_all(vec![plan]);
        }
        // A block whose fences failed is quarantined, a stream's end waits for an idle device.
        let _ = self.perform(plan);
        self.look_if_due();
    }

    /// Looks which fences have passed if many were recorded since the last look.
    fn look_if_due(&self) {
        let is_due = self.executor.events.lock().is_look_due();
        if is_due && !self.executor.is_any_captured() {
            self.collect();
        }
    }

    /// Carries plans out that no request waits for.
    fn perform_all(&self, plans: Vec<Plan>) {
        for plan in plans {
            // One that fails is abandoned, or kept for the end of the next capture.
            let _ = self.perform(plan);
        }
    }

    /// Hands plans back of which nothing was done.
    fn abandon_all(&self, plans: Vec<Plan>) {
        for plan in plans {
            // Who is poisoned does without.
            let _ = self.backend.state().change(|state| state.abandon(plan, 0));
        }
    }

    /// Waits until the device is idle and gives back all unused memory. Returns the bytes.
    pub(crate) fn trim(&self) -> Result<u64, TrimError> {
        if self.observers.has(Observer::Recorder) {
            self.recorder.trimmed();
        }
        self.refuse_at_the_end().map_err(TrimError::before_anything)?;
        self.synchronize().map_err(TrimError::before_anything)?;
        self.let_go_of_imports();
        let _growth = self.growth.lock();
        let given_back = self.backend.trim(&self.executor);
        self.tell_neighbours();
        let given_back_bytes = given_back?;
        if self.stays(Captured::None).is_some() || self.compact_all(None).moves == 0 {
            return Ok(given_back_bytes);
        }
        let trimmed = self.backend.trim(&self.executor);
        self.tell_neighbours();
        let add = |error: TrimError| TrimError {
            given_back_bytes: given_back_bytes + error.given_back_bytes,
            ..error
        };
        Ok(given_back_bytes + trimmed.map_err(add)?)
    }

    /// Waits until the device is idle and gives back what released pools have unused. Returns the
    /// bytes.
    pub(crate) fn trim_released(&self) -> Result<u64, TrimError> {
        self.refuse_at_the_end().map_err(TrimError::before_anything)?;
        self.synchronize().map_err(TrimError::before_anything)?;
        let _growth = self.growth.lock();
        let given_back = self.backend.trim_released(&self.executor);
        self.tell_neighbours();
        given_back
    }

    /// Gives back the unused memory whose last use is complete. Returns the bytes.
    pub(crate) fn trim_passed(&self) -> Result<u64, TrimError> {
        self.refuse_at_the_end().map_err(TrimError::before_anything)?;
        let _growth = self.growth.lock();
        self.collect();
        let given_back = self.backend.trim(&self.executor);
        self.tell_neighbours();
        given_back
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
                let _relaxed = Relaxed::enter(&*self.executor.driver).map_err(failed)?;
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
            && self.check_context().is_ok()
        {
            // At the end of everything the last figures stand.
            let _ = PoolsDevice { executor: &self.executor, pools }.observe();
        }
    }

    /// Finds out whether somebody has reset the device, which nothing survives.
    pub(crate) fn check_context(&self) -> Result<(), DriverError> {
        let checked = self.executor.driver.check_context();
        if checked.is_err() {
            self.executor.streams.note_gone();
        }
        checked
    }

    /// Asked before the locks of growth and events are taken: in a forked child nobody may be left
    /// to release them (B56), and the program's code may be called under the former.
    pub(crate) fn refuse_at_the_end(&self) -> Result<(), DriverError> {
        self.executor.calling_out.refuse_within()?;
        self.check_context()?;
        match self.executor.driver.capture_status(Stream::DEFAULT) {
            Err(error) if error.code.is_final() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Engine {
    /// Gives everything unused back. Live blocks of raw allocations stay mapped: the program may
    /// still be using them. Once the driver is shutting down nothing more is called.
    fn drop(&mut self) {
        if self.check_context().is_err() {
            return;
        }
        // The program may have destroyed its streams before its allocator.
        self.executor.streams.lock().let_all_pass();
        // What is poisoned keeps its memory: the device is not waited for either.
        let _ = self.backend.state().change(|state| state.release_all_pools());
        self.let_go_of_imports();
        let trimmed = self.synchronize().map(|()| self.backend.trim(&self.executor));
        match trimmed {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if !error.is_final() => {}
            _ => return,
        }
        if self.backend.close(&self.executor).is_err_and(|error| error.code.is_final()) {
            return;
        }
        for event in self.executor.events.get_mut().drain() {
            if self.executor.driver.destroy_event(event).is_err() {
                return;
            }
        }
    }
}
