//! The order that a program makes itself, told by who sees its events and waits: see
//! `drystone_core`'s `heap::own_order`. None of it is needed; what is told saves memory.

use drystone_core::{Fence, OrderEpoch, StreamId};

use super::Allocator;
use crate::backend::BackendState;

impl Allocator {
    /// What was freed and ordered up to now, to be asked before the program records an event.
    /// `None` with the driver's own pools, which follow events themselves.
    pub fn order_epoch(&self) -> Option<OrderEpoch> {
        match &self.engine.backend {
            BackendState::Heap(heap) => Some(heap.read().order_epoch()),
            BackendState::AsyncPools(_) => None,
        }
    }

    /// Says that the calling thread has recorded an event on a stream since an epoch, outside of
    /// any capture. Returns what stands for it; `None` if other threads freed or ordered anything
    /// meanwhile, or the stream was retired. Makes no driver call.
    pub fn note_event(&self, stream: StreamId, since: OrderEpoch) -> Option<Fence> {
        match &self.engine.backend {
            BackendState::Heap(heap) => heap.change(|heap| heap.note_event(stream, since)).ok()?,
            BackendState::AsyncPools(_) => None,
        }
    }

    /// Says that the program has made a stream wait for an event, outside of any capture: what the
    /// event's stream had freed before it serves this one now. Makes no driver call.
    pub fn note_wait(&self, stream: StreamId, event: Fence) {
        if let BackendState::Heap(heap) = &self.engine.backend {
            // Who is poisoned does without.
            let _ = heap.change(|heap| heap.note_wait(stream, event));
        }
    }

    /// Says that the host is about to wait for the device. Records an event on each stream that has
    /// free memory, so that the memory is known to be anybody's afterwards.
    pub fn note_synchronizing(&self) {
        self.engine.mark_all();
    }
}
