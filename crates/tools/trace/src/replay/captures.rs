//! The captures that are under way in a replay, and who takes part in them.
//!
//! A trace says on which stream a capture begins, and which pool serves it. Invariant: another
//! stream takes part from its first request to that pool on, or from the first use of the pool's
//! memory there, as in a program: PyTorch serves a capture's requests from its pool, and no others.

use super::replayed::Replayed;
use crate::model::{Event, Kind};

#[derive(Debug)]
struct Capture {
    origin: u16,
    pool: u8,
    joined: Vec<u16>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub(super) struct Captures(Vec<Capture>);

impl Captures {
    /// A stream is about to use memory of a pool, or to ask for it.
    #[inline]
    pub(super) fn before_use<R: Replayed + ?Sized>(&mut self, event: &Event, allocator: &mut R) {
        if !self.0.is_empty() {
            self.join(event, allocator);
        }
    }

    #[cold]
    fn join<R: Replayed + ?Sized>(&mut self, event: &Event, allocator: &mut R) {
        let takes_part =
            |one: &Capture| one.origin == event.stream || one.joined.contains(&event.stream);
        // The default stream cannot be captured: what it does goes on beside.
        if event.stream == 0 || self.0.iter().any(takes_part) {
            return;
        }
        if let Some(capture) = self.0.iter_mut().find(|one| one.pool == event.pool) {
            capture.joined.push(event.stream);
            allocator.join_capture(event.stream, capture.origin);
        }
    }

    /// A capture begins or ends. One that begins on a stream that takes part in another is part of
    /// that one, and ends with it.
    #[cold]
    pub(super) fn change<R: Replayed + ?Sized>(&mut self, event: &Event, allocator: &mut R) {
        let &Event { stream, pool, .. } = event;
        let found = self.0.iter().position(|one| one.origin == stream);
        if event.kind == Kind::CaptureBegin {
            if found.is_none() && !self.0.iter().any(|one| one.joined.contains(&stream)) {
                self.0.push(Capture { origin: stream, pool, joined: Vec::new() });
                allocator.begin_capture(stream, pool);
            }
        } else if let Some(found) = found {
            self.0.remove(found);
            allocator.end_capture(stream, pool);
        }
    }

    /// Ends whatever is under way.
    pub(super) fn end_all<R: Replayed + ?Sized>(&mut self, allocator: &mut R) {
        for capture in self.0.drain(..) {
            allocator.end_capture(capture.origin, capture.pool);
        }
    }
}
