//! The order that a program makes itself, told by who sees its events and waits: see
//! `drystone_core`'s `heap::own_order`. None of it is needed; what is told saves memory.

use drystone_core::{Fence, StreamId};

use super::Allocator;

impl Allocator {
    /// Says that the program has recorded an event on a stream, outside of any capture. Returns
    /// what stands for it; `None` if the stream has no free memory, or is retired. Records an
    /// event, unless nothing was freed since the last one. The driver's own pools follow events
    /// themselves.
    pub fn note_event(&self, stream: StreamId) -> Option<Fence> {
        self.engine.note_event(stream)
    }

    /// Says that the program has made a stream wait for an event, outside of any capture. The
    /// stream then waits for what stands for the event, and what had been freed before that serves
    /// it from now on.
    pub fn note_wait(&self, stream: StreamId, event: Fence) {
        self.engine.note_wait(stream, event);
    }

    /// Says that the host is about to wait for the device. Records an event on each stream that has
    /// free memory, so that the memory is known to be anybody's afterwards.
    pub fn note_synchronizing(&self) {
        self.engine.note_synchronizing();
    }
}
