//! Events: points in a stream's order, ready when the host clock has reached them.
//!
//! Invariant: an event is ready only once everything queued before its last record is done. An
//! event recorded in a capture belongs to that capture, also after its end, until it is recorded
//! outside one.

use crate::handle_table::HandleTable;
use crate::happens_before::VectorClock;
use crate::stream::Membership;
use drystone_driver::{ErrorCode, Event};

const FIRST_EVENT: u64 = 0xe000_0000;

/// What an event of one device stands for, as a stream of another can wait for it.
#[derive(Clone, Debug)]
pub struct Mark {
    pub(crate) ordinal: u32,
    pub(crate) ready_ns: u64,
    /// What the event is ordered after; empty when no oracle watches.
    pub(crate) clock: VectorClock,
}

impl Mark {
    /// When the event becomes ready, in nanoseconds of the host's time.
    pub const fn ready_ns(&self) -> u64 {
        self.ready_ns
    }
}

/// What an event stands for.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    Never,
    Work(Mark),
    Captured { within: Membership, clock: VectorClock },
}

#[derive(Debug)]
pub(crate) struct Events {
    table: HandleTable<Recorded>,
}

impl Events {
    pub(crate) const fn new() -> Self {
        Self { table: HandleTable::new(FIRST_EVENT) }
    }

    pub(crate) fn create(&mut self) -> Event {
        Event(self.table.insert(Recorded::Never))
    }

    pub(crate) fn destroy(&mut self, event: Event) -> Result<(), ErrorCode> {
        self.table.remove(event.0).map(|_| ()).ok_or(ErrorCode::InvalidHandle)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn get(&self, event: Event) -> Result<&Recorded, ErrorCode> {
        self.table.get(event.0).ok_or(ErrorCode::InvalidHandle)
    }

    pub(crate) fn set(&mut self, event: Event, recorded: Recorded) -> Result<(), ErrorCode> {
        *self.table.get_mut(event.0).ok_or(ErrorCode::InvalidHandle)? = recorded;
        Ok(())
    }
}
