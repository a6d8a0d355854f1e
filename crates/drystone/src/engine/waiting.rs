//! What has passed, and waiting until it has: for fences, and for the whole device.
//!
//! Invariant: while the device is waited for, `wait` is held and no lock that growing needs; no
//! capture begins under it that was announced, and none is under way that is known of.

use drystone_core::Plan;
use drystone_driver::{Call, DriverError, Relaxed};

use super::Engine;
use crate::error::poisoned;

impl Engine {
    /// Tells the backend which fences have passed, and frees what waited for them. True if any
    /// has.
    pub(crate) fn collect(&self) -> bool {
        let has_passed = self.note_passed();
        if has_passed.is_ok() {
            // What could not go is tried again.
            let _ = self.backend.free_deferred(&self.executor, None);
        }
        has_passed.unwrap_or(false)
    }

    /// Errors: no driver call can succeed any more.
    fn note_passed(&self) -> Result<bool, DriverError> {
        self.perform_all(self.executor.after_capture(None));
        let passed = {
            let mut events = self.executor.events.lock();
            if !events.any_recorded() {
                return Ok(false);
            }
            match Relaxed::enter(&*self.executor.driver) {
                Ok(_relaxed) => events.collect(&*self.executor.driver),
                Err(error) if error.code.is_final() => return Err(error),
                Err(_) => return Ok(false),
            }
        };
        let state = self.backend.state();
        for &fence in &passed {
            // In parts: others' hits are served in between.
            let part = || {
                state.change(|state| {
                    let part = state.part_of(fence);
                    state.fence_passed(part);
                    part
                })
            };
            while part().map_err(poisoned(Call::Query))? != fence {}
        }
        Ok(!passed.is_empty())
    }

    /// Waits for every fence that is recorded. True if there was any.
    pub(crate) fn await_pending(&self) -> bool {
        let driver = &*self.executor.driver;
        let Ok(relaxed) = Relaxed::enter(driver) else { return false };
        let recorded = self.executor.events.lock().begin_wait();
        for &event in &recorded {
            // One that fails is no reason not to wait for the others; `collect` asks anew.
            let _ = driver.synchronize_event(event);
        }
        self.executor.events.lock().end_wait(driver, &recorded);
        drop(relaxed);
        self.collect()
    }

    /// Waits until the device is idle, and tells the backend. Refused while a stream is captured,
    /// which that would break.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.forget_threads();
        let _wait = self.wait.lock();
        self.executor.refuse_in_capture(Call::SynchronizeDevice)?;
        // What needs a fence of a stream that may be gone is over once the device is idle.
        self.abandon_all(self.executor.take_until_capture_ends());
        self.backend.free_deferred(&self.executor, None)?;
        let plan = self.plan_synchronize()?;
        let done = self.executor.carry_out(&plan, None);
        // Once handed back, the plan frees at once what waits still: so before, in parts.
        let noted = if done.is_ok() { self.note_passed() } else { Ok(false) };
        self.executor.hand_back(self.backend.state(), plan, done)?;
        noted?;
        // What waited for a fence goes in any order once the device has been idle again, if its own
        // stream may not be named; and what could go only now is unused then.
        for _ in 0..2 {
            let has_gone = self.backend.free_deferred(&self.executor, None)?;
            if !has_gone && !self.backend.has_deferred() {
                break;
            }
            self.perform(self.plan_synchronize()?)?;
        }
        self.pause.lock().note_idle();
        Ok(())
    }

    fn plan_synchronize(&self) -> Result<Plan, DriverError> {
        let plan = self.backend.state().change(|state| state.plan_synchronize());
        plan.map_err(poisoned(Call::SynchronizeDevice))
    }
}
