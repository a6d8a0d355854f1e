//! Compaction: live memory moves together, so that what is unused serves a request, or goes back.
//!
//! Invariant: memory moves by itself only where every stream that may use it can be held: all are
//! known, those of other devices too, and nothing is captured. A stream that does not come to a
//! stop in time is left alone, and nobody is held again for a while: each time for twice as long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use drystone_core::{Captured, Heap, Plan, StateMachine as _};
use drystone_driver::Call;

use super::Engine;
use crate::backend::BackendState;
use crate::error::TrimError;
use crate::out_of_memory::Stays;
use crate::streams::OtherStreams;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// How many handles were emptied.
    pub moves: u64,
    /// How many bytes were copied.
    pub moved_bytes: u64,
}

impl Engine {
    /// From now on every stream that may use memory is known, or told of by this.
    pub(crate) fn know_all_streams(&self, others: OtherStreams) {
        self.executor.streams.know_all(others);
        if self.executor.calling_out.refuse_within().is_err() {
            return;
        }
        // What it takes to hold streams is found out while there is memory, as moves hold them: no
        // capture begins meanwhile that somebody announces, which the hold would break.
        let _growth = self.growth.lock();
        let is_free =
            self.refuse_at_the_end().is_ok() && self.executor.refuse_in_capture(Call::Hold).is_ok();
        if let BackendState::Heap(heap) = &self.backend
            && is_free
            && let Ok(hold) = self.executor.driver.hold(&[])
        {
            self.executor.driver.let_go(hold);
            let _ = heap.change(|heap| heap.expect_moves());
        }
    }

    /// Moves live memory together for a request. True if anything has moved.
    pub(super) fn compact_for(&self, bytes: u64) -> bool {
        if self.stays(Captured::None).is_some() {
            return false;
        }
        let compacted = self.compact_by(&|heap| heap.plan_compaction_for(bytes), None);
        self.bring_back();
        compacted.moves > 0
    }

    /// Waits for the device, and moves all that can move, for so long at most.
    pub(crate) fn compact(&self, budget: Duration) -> Result<Compacted, TrimError> {
        self.refuse_at_the_end().map_err(TrimError::before_anything)?;
        self.synchronize().map_err(TrimError::before_anything)?;
        let _growth = self.growth.lock();
        let legal = self.executor.refuse_in_capture(Call::Hold);
        legal.map_err(TrimError::before_anything)?;
        Ok(self.compact_all(Some(budget)))
    }

    /// Moves all that can move, for so long at most. What was free in parts of handles backs
    /// nothing afterwards.
    pub(super) fn compact_all(&self, budget: Option<Duration>) -> Compacted {
        self.compact_by(&Heap::plan_full_compaction, budget)
    }

    /// Why memory does not move without anybody's asking for it.
    pub(crate) fn stays(&self, captured: Captured) -> Option<Stays> {
        let pause = *self.pause.lock();
        match &self.backend {
            BackendState::Heap(heap) if self.executor.driver.info().has_virtual_memory => {
                if !heap.read().config().remaps {
                    return Some(Stays::Off);
                }
            }
            _ => return Some(Stays::Plain),
        }
        if captured != Captured::None {
            Some(Stays::Capture)
        } else if !self.executor.streams.are_all_known() {
            Some(Stays::UnknownStreams)
        } else {
            pause.stays()
        }
    }

    pub(super) fn compact_by(
        &self,
        plan: &dyn Fn(&mut Heap) -> Option<Plan>,
        budget: Option<Duration>,
    ) -> Compacted {
        let BackendState::Heap(heap) = &self.backend else { return Compacted::default() };
        let figures = || {
            let stats = heap.read().stats();
            (stats.moves, stats.moved_bytes)
        };
        let (begun, before) = (Instant::now(), figures());
        while budget.is_none_or(|budget| begun.elapsed() < budget)
            && self.executor.refuse_in_capture(Call::Hold).is_ok()
            && let Ok(Some(plan)) = heap.change(plan)
        {
            if let Err(error) = self.perform(plan) {
                self.pause.lock().note_failure(&error);
                break;
            }
        }
        let after = figures();
        Compacted { moves: after.0 - before.0, moved_bytes: after.1 - before.1 }
    }

    /// Runs something that no move may meet half way. Who is told that memory goes may pin some:
    /// then it stays after all.
    pub(crate) fn while_nothing_moves<R>(&self, run: impl FnOnce() -> R) -> R {
        let is_within = self.executor.calling_out.refuse_within().is_err();
        self.executor.is_vetoed.fetch_or(is_within, Ordering::Relaxed);
        let growth = (!is_within).then(|| self.growth.lock());
        if growth.is_some() {
            self.bring_back();
        }
        run()
    }

    /// Brings back what is in the host's memory, as far as that can be done now. Where streams are
    /// at work it waits for the device once. The caller has the growth lock.
    pub(super) fn bring_back(&self) {
        let is_back = || self.backend.read().stats().on_host_bytes == 0;
        let may_move = || matches!(self.stays(Captured::None), None | Some(Stays::BusyStreams));
        if is_back() || !may_move() {
            return;
        }
        let bring = || self.compact_by(&|heap| heap.plan_compaction_for(0), None);
        bring();
        let may_wait = || self.executor.refuse_in_capture(Call::SynchronizeDevice).is_ok();
        let is_idle = || may_wait() && self.executor.driver.synchronize_device().is_ok();
        if !is_back() && is_idle() && may_move() {
            bring();
        }
    }
}
