//! The way of a request that misses: the backend says what is next, and it is done.
//!
//! Requests that miss come one at a time: memory that another thread is about to get or to give
//! back is not missing. What is tried, in which order, is decided in `drystone_core`'s `recovery`.

use drystone_core::{
    Captured, Granted, Miss, Next, Poisoned, PoolId, Refusal, RemapStats, RequestError, StreamId,
};
use drystone_driver::{DriverError, Relaxed};
use parking_lot::MutexGuard;

use super::Engine;
use crate::backend::BackendState;
use crate::backend::async_pools::PoolsDevice;
use crate::error::AllocateError;
use crate::out_of_memory::OutOfMemory;
use crate::telemetry;

impl Engine {
    /// Serves a request that its own free list could not, or fails for good.
    #[cold]
    pub(super) fn allocate_slowly(
        &self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
    ) -> Result<Granted, AllocateError> {
        let failed = |error| AllocateError::Driver { error, bytes };
        let executor = &self.executor;
        self.refuse_at_the_end().map_err(failed)?;
        self.refuse_uncovered(stream).map_err(failed)?;
        if bytes > executor.driver.info().total_bytes {
            // Nothing helps, and as a plan it would have a step for each granule there cannot be.
            let miss = Miss::new(pool, stream, bytes, Captured::None);
            return Err(self.refused(&miss, Refusal::Limit));
        }
        let mut growth = self.growth.lock();
        self.forget_threads();
        // Asked with the lock held: a capture may have ended while others grew.
        let mut captured = executor.captured(pool, stream).map_err(failed)?;
        if self.has_lost(captured) {
            MutexGuard::unlocked(&mut growth, || self.find_lost());
            captured = executor.captured(pool, stream).map_err(failed)?;
        }
        self.mark(stream, captured);
        executor.streams.want_others(stream);
        let miss = Miss::new(pool, stream, bytes, captured);
        let held = || self.backend.read().stats().all.reserved_bytes;
        let before = held();
        let served = match &self.backend {
            BackendState::Heap(heap) => self.recover(
                miss,
                &mut growth,
                |miss| heap.change(|heap| heap.next(miss)).unwrap_or_else(give_up),
                |miss, plan| {
                    let done = executor.carry_out(&plan, Some(pool));
                    // What is poisoned says itself what is next.
                    let _ = heap.change(|heap| heap.carried_out(miss, plan, done));
                },
            ),
            BackendState::AsyncPools(pools) => self.recover(
                miss,
                &mut growth,
                |miss| pools.change(|pools| pools.next(miss)).unwrap_or_else(give_up),
                |miss, pending| PoolsDevice { executor, pools }.allocate(miss, pending),
            ),
        };
        let after = held();
        if after.total != before.total {
            self.note_growth();
        } else if after.current != before.current {
            self.tell_neighbours();
        }
        served
    }

    /// Does what the backend says is next for a miss until that is over.
    fn recover<W>(
        &self,
        mut miss: Miss<DriverError>,
        growth: &mut MutexGuard<'_, ()>,
        next: impl Fn(&mut Miss<DriverError>) -> Next<W, DriverError>,
        carry_out: impl Fn(&mut Miss<DriverError>, W),
    ) -> Result<Granted, AllocateError> {
        let bytes = miss.bytes();
        let (mut relaxed, mut asked) = (None, None);
        loop {
            if miss.is_trying() && relaxed.is_none() {
                let entered = Relaxed::enter(&*self.executor.driver);
                relaxed = Some(entered.map_err(|error| AllocateError::Driver { error, bytes })?);
            }
            let next = next(&mut miss);
            // Between tries the thread is restricted as before.
            relaxed = relaxed.filter(|_| miss.is_trying());
            match &next {
                Next::AwaitFences => telemetry::recovers("waiting for fences", bytes),
                Next::Synchronize => telemetry::recovers("waiting for the device", bytes),
                Next::Compact => telemetry::recovers("moving live memory together", bytes),
                Next::Trim => telemetry::recovers("giving memory back", bytes),
                Next::AskNeighbours(_) => telemetry::recovers("asking other processes", bytes),
                Next::AskProgram => telemetry::recovers("asking the program", bytes),
                _ => {}
            }
            match next {
                Next::Granted(granted) => return Ok(granted),
                Next::CarryOut(work) => carry_out(&mut miss, work),
                Next::LookAtDevice => {
                    miss.note_free(self.executor.free_bytes().ok());
                    self.note_offered();
                }
                Next::CollectFences => drop(self.collect()),
                Next::AwaitFences => {
                    miss.note(MutexGuard::unlocked(growth, || self.await_pending()));
                }
                Next::Synchronize => {
                    miss.note(MutexGuard::unlocked(growth, || self.synchronize().is_ok()));
                }
                Next::Compact => miss.note(self.compact_for(bytes)),
                Next::Trim => miss.note(self.gives_back()),
                Next::AskNeighbours(own_bytes) => {
                    let asked = asked.get_or_insert_with(|| self.begin_asking());
                    let ask = || self.ask_neighbours(bytes, own_bytes, asked);
                    miss.note(MutexGuard::unlocked(growth, ask));
                }
                Next::AskProgram => miss.note(MutexGuard::unlocked(growth, || self.ask(bytes))),
                Next::GiveUp(refusal) => {
                    let error = self.refused(&miss, refusal);
                    telemetry::refused(&error, bytes);
                    return Err(error);
                }
            }
        }
    }

    /// Gives back what can be without waiting. True if that was anything, however it ended.
    fn gives_back(&self) -> bool {
        let given_back = self.backend.trim(&self.executor);
        given_back.unwrap_or_else(|error| error.given_back_bytes) > 0
    }

    /// Asks the program to free something. True if it may have.
    fn ask(&self, bytes: u64) -> bool {
        let callbacks = self.callbacks.lock().clone();
        // Each is asked, whatever those before it have freed.
        callbacks.iter().fold(false, |freed, callback| callback(bytes) | freed)
    }

    fn refused(&self, miss: &Miss<DriverError>, refusal: Refusal<DriverError>) -> AllocateError {
        let bytes = miss.bytes();
        match refusal {
            Refusal::Request(error) => error.into(),
            Refusal::Driver(error) => AllocateError::Driver { error, bytes },
            Refusal::Limit => {
                let refused = self.out_of_memory(miss, None);
                Box::new(OutOfMemory { is_at_limit: true, ..*refused }).into()
            }
            Refusal::Device => self.out_of_memory(miss, None).into(),
            Refusal::OutOfMemory(error) => self.out_of_memory(miss, Some(error)).into(),
        }
    }

    fn out_of_memory(
        &self,
        miss: &Miss<DriverError>,
        refusal: Option<DriverError>,
    ) -> Box<OutOfMemory> {
        let info = self.executor.driver.info();
        let memory = self.executor.memory_info();
        let RemapStats { pinned_bytes, beside_live_bytes, .. } = self.backend.remap_stats();
        // Before the lock, which it takes itself.
        let stays = self.stays(miss.captured());
        let backend = self.backend.read();
        let all = backend.stats().all;
        let (mut private_allocated_bytes, mut private_free_bytes, mut own_free_bytes) = (0, 0, 0);
        for one in backend.pool_stream_stats() {
            if one.pool == PoolId::DEFAULT.index() || one.is_growing {
                continue;
            }
            private_allocated_bytes += one.allocated_bytes;
            let is_own = one.pool == miss.pool().index();
            *(if is_own { &mut own_free_bytes } else { &mut private_free_bytes }) += one.free_bytes;
        }
        Box::new(OutOfMemory {
            requested_bytes: miss.bytes(),
            ordinal: info.ordinal,
            pool: miss.pool(),
            device_bytes: info.total_bytes,
            device_free_bytes: memory.ok().map(|memory| memory.free_bytes),
            host_floor_bytes: self.executor.floor_bytes,
            limit_bytes: backend.limit_bytes(),
            allocated_bytes: all.allocated_bytes.current,
            pending_bytes: all.active_bytes.current - all.allocated_bytes.current,
            reserved_bytes: all.reserved_bytes.current,
            largest_free_bytes: backend.largest_free_bytes(),
            private_allocated_bytes,
            private_free_bytes,
            own_free_bytes,
            pinned_bytes,
            beside_live_bytes,
            stays,
            granule_bytes_min: info.granularity_bytes,
            granule_bytes: backend.granule_bytes(miss.pool()),
            is_capturing: miss.captured() != Captured::None,
            is_at_limit: false,
            tags: self.tags.stats(),
            neighbours: self.neighbours.get().map_or_else(Vec::new, |one| one.others(false)),
            refusal,
        })
    }
}

/// What is next for a miss of who is poisoned.
fn give_up<W>(poisoned: Poisoned) -> Next<W, DriverError> {
    Next::GiveUp(Refusal::Request(RequestError::from(poisoned)))
}
