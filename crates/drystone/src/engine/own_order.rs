//! The order that a program makes itself, as far as it is told: what that takes of the driver.

use drystone_core::{Fence, Plan, StreamId};

use super::Engine;
use crate::backend::BackendState;

impl Engine {
    /// A fence with an event that the program has recorded on a stream, or is about to.
    pub(crate) fn note_event(&self, stream: StreamId) -> Option<Fence> {
        let BackendState::Heap(heap) = &self.backend else { return None };
        let (fence, plan) = heap.change(|heap| heap.plan_event(stream)).ok()??;
        if let Some(plan) = plan {
            self.order(plan)?;
            // A program may never miss, and record events forever.
            self.look_if_due();
        }
        Some(fence)
    }

    /// A wait for that fence where the program's stream waits for the event.
    pub(crate) fn note_wait(&self, stream: StreamId, event: Fence) {
        if let BackendState::Heap(heap) = &self.backend
            && let Ok(Some(plan)) = heap.change(|heap| heap.plan_event_wait(stream, event))
        {
            // Without it the memory is asked for by a fence as before.
            let _ = self.order(plan);
        }
    }

    /// Records a fence or waits for one, unless the device was reset: asked where there is
    /// something to do, since most events of a program tell nothing.
    fn order(&self, plan: Plan) -> Option<()> {
        match self.check_context() {
            Ok(()) => self.perform(plan).ok(),
            Err(_) => {
                self.abandon_all(vec![plan]);
                None
            }
        }
    }

    /// A fence on each stream that has free memory, before the host waits for the device.
    #[inline(never)]
    pub(crate) fn note_synchronizing(&self) {
        if let BackendState::Heap(heap) = &self.backend
            && self.check_context().is_ok()
            && !self.executor.is_any_captured()
        {
            self.perform_all(heap.change(|heap| heap.plan_marks()).unwrap_or_default());
            self.look_if_due();
        }
    }
}
