//! [`Executor`]: what plans act on, and how they are carried out, with no lock of the heap held.
//!
//! Keeps the driver's half of P4 and I13: when a step of an all-or-nothing plan fails, the steps
//! before it are undone in reverse order, and the heap is told how many could not be.
//!
//! `captures`: those that are known without a question. What a capture forbids is not called while
//! one is known of (I11): growing is always allowed, and events outside the capture may be asked by
//! a thread that is relaxed; waiting for the device and giving memory back are not.
//! `events` (over `event_pool`), `handles`, and `crate::streams`: the tables that join names of the
//! heap and handles of the driver.
//! `outbox`: handles that go to another process and not back to the device.
//! `moving`: streams that are held while memory moves, and where it is written meanwhile.
//! `observe`: who is told of what was done. `calling_out`: what that may not do meanwhile.

mod calling_out;
pub(crate) mod captures;
mod event_pool;
pub(crate) mod events;
pub(crate) mod handles;
pub(crate) mod moving;
pub(crate) mod observe;
pub(crate) mod outbox;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drystone_core::{
    Captured, Failure, Fence, GranuleId, Place, Plan, PoolId, StateMachine, Step, StreamId,
};
use drystone_driver::{
    Call, CaptureStatus, Driver, DriverError, ErrorCode, MemoryInfo, Relaxed, Stream,
};
use parking_lot::Mutex;

use self::calling_out::CallingOut;
use self::captures::Captures;
use self::events::Events;
use self::handles::Handles;
use self::moving::{Moving, Now, Scratch, again, put_back};
use self::observe::Observer;
use self::outbox::Outbox;
use crate::error::poisoned;
use crate::memory_provider::{MemoryProvider, MemoryProviders, provided, taken_back};
use crate::neighbours::LooseHandle;
use crate::state_lock::StateLock;
use crate::streams::Streams;
use crate::telemetry;

/// What plans act on.
pub(crate) struct Executor {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) streams: Streams,
    pub(crate) events: Mutex<Events>,
    pub(crate) handles: Mutex<Handles>,
    pub(crate) providers: Mutex<MemoryProviders>,
    pub(crate) observer: Observer,
    pub(crate) calling_out: CallingOut,
    pub(crate) captures: Captures,
    pub(crate) scratch: Scratch,
    pub(crate) outbox: Mutex<Outbox>,
    /// What is left to a host whose memory the device has, in bytes.
    pub(crate) floor_bytes: u64,
    /// Who was told that memory goes has pinned some since.
    pub(crate) is_vetoed: AtomicBool,
    /// Plans to record fences on a stream that was being captured.
    until_capture_ends: Mutex<Vec<Plan>>,
}

impl Executor {
    pub(crate) fn new(driver: Arc<dyn Driver>, handles: Handles, floor_bytes: u64) -> Self {
        Self {
            streams: Streams::new(driver.info().ordinal),
            driver,
            events: Mutex::default(),
            handles: Mutex::new(handles),
            providers: Mutex::default(),
            observer: Observer::default(),
            calling_out: CallingOut::default(),
            captures: Captures::default(),
            scratch: Scratch::default(),
            outbox: Mutex::default(),
            floor_bytes,
            is_vetoed: AtomicBool::new(false),
            until_capture_ends: Mutex::default(),
        }
    }

    /// Carries out a plan and hands it back, done or undone. Fences of a stream that is being
    /// captured cannot be recorded before that ends: the plan is kept until then.
    #[inline(never)]
    pub(crate) fn perform(
        &self,
        state: &StateLock<dyn StateMachine>,
        plan: Plan,
    ) -> Result<(), DriverError> {
        let done = self.carry_out(&plan, None);
        self.hand_back(state, plan, done)
    }

    /// Hands a plan back that was carried out, done or undone.
    pub(crate) fn hand_back(
        &self,
        state: &StateLock<dyn StateMachine>,
        plan: Plan,
        done: Result<u64, Failure<DriverError>>,
    ) -> Result<(), DriverError> {
        match done {
            Ok(address) => {
                let committed = state.change(|state| state.commit(plan, address));
                committed.map(drop).map_err(poisoned(Call::SynchronizeDevice))
            }
            Err(Failure { error, .. })
                if (error.call, error.code) == (Call::Record, ErrorCode::CapturedEvent) =>
            {
                self.until_capture_ends.lock().push(plan);
                Err(error)
            }
            Err(Failure { error, in_effect, .. }) => {
                // The failure is told, whether anybody knows of the plan still or not.
                let _ = state.change(|state| state.abandon(plan, in_effect));
                Err(error)
            }
        }
    }

    /// What waited for the end of a capture, once none is under way: to be performed again. Fences
    /// of streams that may be gone stay, except those of the stream that the call at hand brings.
    pub(crate) fn after_capture(&self, brought: Option<StreamId>) -> Vec<Plan> {
        let is_none = self.until_capture_ends.lock().is_empty();
        if is_none || self.is_any_captured() {
            return Vec::new();
        }
        let streams = self.streams.lock();
        let may_record = |step: &Step| match *step {
            Step::Record { fence } => {
                Some(fence.stream) == brought || !streams.is_passing(fence.stream)
            }
            _ => true,
        };
        let mut plans = self.until_capture_ends.lock();
        plans.extract_if(.., |plan| plan.steps().iter().all(may_record)).collect()
    }

    /// All that waits for the end of a capture.
    pub(crate) fn take_until_capture_ends(&self) -> Vec<Plan> {
        std::mem::take(&mut *self.until_capture_ends.lock())
    }

    /// Does every step. Returns the address that a `Reserve` or `Malloc` step gave, else 0. Plain
    /// memory is the provider's of a pool, if that has one. Who follows mappings is told.
    pub(crate) fn carry_out(
        &self,
        plan: &Plan,
        pool: Option<PoolId>,
    ) -> Result<u64, Failure<DriverError>> {
        let provider = pool.and_then(|pool| self.providers.lock().of(pool));
        let (steps, ordinal) = (plan.steps(), || self.driver.info().ordinal);
        // Others' plans may be carried out beside one that moves memory.
        if steps.contains(&Step::Hold) {
            self.is_vetoed.store(false, Ordering::Relaxed);
        }
        self.observer.tell_what_goes(&self.calling_out, ordinal, steps);
        let carried_out = self.do_steps(plan, provider.as_ref());
        let (in_effect, given) = match &carried_out {
            Ok(given) => (steps.len(), *given),
            Err(failure) => (failure.in_effect, 0),
        };
        let observer = &self.observer;
        observer.tell_what_is_there(&self.calling_out, ordinal, steps, in_effect, given);
        carried_out
    }

    /// What a capture forbids is not even tried: the attempt would break the capture.
    pub(crate) fn refuse_in_capture(&self, call: Call) -> Result<(), DriverError> {
        if self.is_any_captured() {
            return Err(DriverError::new(call, ErrorCode::CaptureUnsupported));
        }
        Ok(())
    }

    /// Whether the stream of a request for a pool is being captured, or another one.
    ///
    /// Errors: the driver is gone for good.
    pub(crate) fn captured(&self, pool: PoolId, stream: StreamId) -> Result<Captured, DriverError> {
        Ok(match self.is_captured(Some(pool), stream)? {
            true => Captured::Own,
            false if self.is_any_captured() => Captured::Other,
            false => Captured::None,
        })
    }

    /// Whether the stream of the call at hand is being captured; remembered, if the call is a
    /// request for a pool.
    pub(crate) fn is_captured(
        &self,
        pool: Option<PoolId>,
        stream: StreamId,
    ) -> Result<bool, DriverError> {
        let known = self.streams.lock().of(stream).map(|known| (known.stream, known.is_passing));
        // An unknown stream is refused by the heap, whatever is said of the capture before.
        let Some((own, is_passing)) = known else { return Ok(false) };
        let is_captured = match self.driver.capture_status(own) {
            Err(error) if error.code.is_final() => return Err(error),
            Ok(CaptureStatus::None) => false,
            // A device that cannot say is treated as if it were: only what is always legal is done.
            _ => true,
        };
        match pool {
            Some(pool) => {
                // Nobody else can ask a thread's own stream.
                let is_lasting = !is_passing && own != Stream::PER_THREAD;
                self.captures.note(stream, pool, is_captured, is_lasting);
            }
            None if !is_captured => self.captures.forget(stream),
            None => {}
        }
        Ok(is_captured)
    }

    /// Whether a stream is being captured as far as is known, or the device cannot say. Of streams
    /// that may have been destroyed, and of other threads' own, what they said last counts.
    pub(crate) fn is_any_captured(&self) -> bool {
        // Held while they are asked: who retires a stream destroys it after this lock.
        let streams = self.streams.lock();
        let is_one_captured =
            streams.lasting().any(|known| match self.driver.capture_status(known.stream) {
                Ok(status) => status != CaptureStatus::None,
                Err(error) => error.code != ErrorCode::InvalidHandle,
            });
        let is_over = !is_one_captured && self.captures.is_any();
        let own = if is_over { streams.own_of_thread() } else { None };
        drop(streams);
        if is_over {
            self.captures.forget_lasting();
        }
        if let Some(own) = own {
            self.captures.forget(own);
        }
        is_one_captured || self.captures.is_any()
    }

    /// What memory the device has. A capture may forbid the question to a restricted thread.
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo, DriverError> {
        let _relaxed = Relaxed::enter(&*self.driver)?;
        self.driver.memory_info()
    }

    /// What of it may be taken: none of what is left to the host.
    pub(crate) fn free_bytes(&self) -> Result<u64, DriverError> {
        Ok(self.memory_info()?.free_bytes.saturating_sub(self.floor_bytes))
    }

    /// Whether a wait for the device covers the stream, as far as it can be told now.
    pub(crate) fn covers(&self, stream: Stream) -> Option<bool> {
        let _relaxed = Relaxed::enter(&*self.driver).ok()?;
        self.driver.covers(stream)
    }

    fn do_steps(
        &self,
        plan: &Plan,
        provider: Option<&Arc<dyn MemoryProvider>>,
    ) -> Result<u64, Failure<DriverError>> {
        let mut given = 0;
        let staged = plan.steps().iter().filter_map(|step| match *step {
            Step::Stage { bytes, .. } => Some(bytes),
            _ => None,
        });
        let mut moving = Moving {
            driver: &*self.driver,
            handles: &self.handles,
            streams: &self.streams,
            scratch: &self.scratch,
            is_vetoed: &self.is_vetoed,
            bytes: staged.sum(),
            now: Now::default(),
        };
        for (failed_at, step) in plan.steps().iter().enumerate() {
            let done = match moving.step(step) {
                Some(done) => done.map(|()| None),
                None => self.step(step, provider),
            };
            telemetry::step(step, done.as_ref().err());
            match done {
                Ok(address) => given = address.unwrap_or(given),
                Err(error) => {
                    let in_effect = match plan.is_all_or_nothing() {
                        true => self.undo(&plan.steps()[..failed_at]),
                        false => failed_at,
                    };
                    let is_out_of_memory = error.is_out_of_memory();
                    return Err(Failure { error, is_out_of_memory, failed_at, in_effect });
                }
            }
        }
        Ok(given)
    }

    fn step(
        &self,
        step: &Step,
        provider: Option<&Arc<dyn MemoryProvider>>,
    ) -> Result<Option<u64>, DriverError> {
        let driver = &*self.driver;
        match *step {
            Step::Reserve { bytes, alignment } => driver.reserve(bytes, alignment).map(Some),
            Step::Malloc { bytes } => self.malloc(bytes, provider).map(Some),
            Step::Unreserve { address, bytes } => driver.unreserve(address, bytes).map(|()| None),
            Step::Create { granule, bytes, place } => {
                let handle = match place {
                    Place::Device => driver.create(bytes)?,
                    Place::Host => driver.create_on_host(bytes)?,
                };
                self.handles.lock().set(granule, Some(handle));
                Ok(None)
            }
            Step::Release { granule } => self.release(granule).map(|()| None),
            Step::Map { address, bytes, granule } => {
                let handle = self.handles.lock().get(Call::Map, granule)?;
                driver.map(address, bytes, handle).map(|()| None)
            }
            Step::SetAccess { address, bytes } => driver.set_access(address, bytes).map(|()| None),
            Step::Unmap { address, bytes } => driver.unmap(address, bytes).map(|()| None),
            Step::Free { address, .. } => self.free(address).map(|()| None),
            Step::Record { fence } => self.record(fence).map(|()| None),
            Step::Wait { stream, fence } => self.wait(stream, fence).map(|()| None),
            Step::SynchronizeDevice => driver.synchronize_device().map(|()| None),
            // Those of a move, which has what it needs for them.
            Step::Stage { .. }
            | Step::Hold
            | Step::Copy { .. }
            | Step::CopyTo { .. }
            | Step::FinishCopies
            | Step::Lift { .. }
            | Step::LetGo => Ok(None),
        }
    }

    /// Records a fence on its stream.
    ///
    /// A stream that is being captured is refused: the event would belong to the graph and never
    /// complete. So is one that was destroyed without notice, also once its handle is another
    /// stream's, whose progress says nothing (B2).
    fn record(&self, fence: Fence) -> Result<(), DriverError> {
        let refused = |code| Err(DriverError::new(Call::Record, code));
        let (driver, mut streams) = (&*self.driver, self.streams.lock());
        let Some(known) = streams.of_mut(fence.stream) else {
            return refused(ErrorCode::InvalidHandle);
        };
        if driver.capture_status(known.stream)? != CaptureStatus::None {
            return refused(ErrorCode::CapturedEvent);
        }
        if !known.is_itself(driver)? {
            return refused(ErrorCode::InvalidHandle);
        }
        self.events.lock().record(driver, known.stream, fence)
    }

    /// Makes a stream wait for a fence.
    fn wait(&self, stream: StreamId, fence: Fence) -> Result<(), DriverError> {
        let (driver, mut streams) = (&*self.driver, self.streams.lock());
        let events = self.events.lock();
        let Some(event) = events.of_fence(fence) else { return Ok(()) };
        let gone = || DriverError::new(Call::Wait, ErrorCode::InvalidHandle);
        let known = streams.of_mut(stream).ok_or_else(gone)?;
        // In another thread the handle is that thread's stream, and it would wait (B4).
        if known.stream == Stream::PER_THREAD && !known.is_itself(driver)? {
            return Err(gone());
        }
        driver.wait(known.stream, event)
    }

    #[inline(never)]
    fn malloc(
        &self,
        bytes: u64,
        provider: Option<&Arc<dyn MemoryProvider>>,
    ) -> Result<u64, DriverError> {
        let Some(provider) = provider else { return self.driver.malloc(bytes) };
        let address = self.calling_out.run(|| provided(&**provider, bytes))?;
        self.providers.lock().note(address, bytes, Arc::clone(provider));
        Ok(address)
    }

    #[inline(never)]
    fn free(&self, address: u64) -> Result<(), DriverError> {
        let provided = self.providers.lock().leave(address);
        match provided {
            Some((bytes, provider)) => {
                self.calling_out.run(|| taken_back(&*provider, address, bytes));
                Ok(())
            }
            None => self.driver.free(address),
        }
    }

    fn release(&self, granule: GranuleId) -> Result<(), DriverError> {
        let wanted_bytes = self.outbox.lock().wanted_bytes(granule);
        let (handle, adopted) = {
            let mut handles = self.handles.lock();
            let handle = handles.get(Call::Release, granule)?;
            // Memory that has one open would stay taken.
            (handle, handles.close_descriptor(granule))
        };
        // Memory that is mapped somewhere still would stay taken, too.
        self.scratch.give_back(&*self.driver);
        let leaving = wanted_bytes.and_then(|bytes| {
            let descriptor = adopted.or_else(|| self.driver.export(handle).ok())?;
            Some(LooseHandle { descriptor, bytes })
        });
        self.driver.release(handle)?;
        self.handles.lock().set(granule, None);
        self.outbox.lock().put(leaving);
        Ok(())
    }

    /// Undoes steps, last first, until one cannot be undone. Returns how many are left.
    fn undo(&self, steps: &[Step]) -> usize {
        let driver = &*self.driver;
        let is_lift = |step: &Step| matches!(step, Step::Lift { .. });
        for (at, step) in steps.iter().enumerate().rev() {
            let undone = match *step {
                Step::Create { granule, .. } => self.release(granule),
                // In the way of what was there.
                Step::Map { address, bytes, .. } if steps[..at].iter().any(is_lift) => {
                    again(|| driver.unmap(address, bytes))
                }
                Step::Map { address, bytes, .. } => driver.unmap(address, bytes),
                Step::Lift { address, bytes, granule } => {
                    let handle = self.handles.lock().get(Call::Map, granule);
                    handle.and_then(|handle| put_back(driver, address, bytes, handle))
                }
                // What it writes to is others' only once it is complete.
                Step::CopyTo { .. } => driver.finish_copies(),
                // Access goes with the mapping; what else there is to undo is the last step of its
                // plan.
                _ => Ok(()),
            };
            if undone.is_err() {
                return at + 1;
            }
        }
        0
    }
}
