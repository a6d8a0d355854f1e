//! [`Observer`]: tells the program of changes of what addresses are backed by.
//!
//! Others keep tables by address: a change says that addresses lead to new memory, or to none, so
//! that such a table can drop them. Invariants: a change is told once, in the order of the changes,
//! after it was done and before anybody is given memory there; what was done and undone is not
//! told.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use drystone_core::Step;
use drystone_driver::{Call, DriverError, ErrorCode};
use parking_lot::Mutex;

/// A change of what a range of addresses is backed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingChange {
    /// The device.
    pub ordinal: u32,
    /// Where the range starts.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Whether there is memory now, other than before; else there is none any more.
    pub is_backed: bool,
}

/// Called with each change, while the allocator holds the lock under which memory grows and goes
/// back. It may free, pin, unpin and ask; allocating and trimming from within is refused, and it
/// must not wait for another thread that does either.
pub type RemapCallback = Arc<dyn Fn(&MappingChange) + Send + Sync>;

/// Tells the program of changes.
#[derive(Default)]
pub(crate) struct Observer {
    pub(crate) callbacks: Mutex<Vec<RemapCallback>>,
    /// The thread that runs callbacks.
    telling: Mutex<Option<ThreadId>>,
}

impl Observer {
    /// Tells of the steps of a plan that are in effect; `given` is the address that one gave.
    pub(crate) fn tell(&self, ordinal: impl Fn() -> u32, steps: &[Step], given: u64) {
        let callbacks = self.callbacks.lock().clone();
        if callbacks.is_empty() {
            return;
        }
        let changes = changes(ordinal(), steps, given);
        if changes.is_empty() {
            return;
        }
        *self.telling.lock() = Some(thread::current().id());
        // Also when a callback unwinds.
        let _told = Told(self);
        for change in &changes {
            callbacks.iter().for_each(|callback| callback(change));
        }
    }

    /// Refuses to take the lock that this thread has while it tells.
    pub(crate) fn refuse_within(&self) -> Result<(), DriverError> {
        match *self.telling.lock() {
            Some(thread) if thread == thread::current().id() => {
                Err(DriverError::new(Call::Map, ErrorCode::InCallback))
            }
            _ => Ok(()),
        }
    }
}

struct Told<'a>(&'a Observer);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        *self.0.telling.lock() = None;
    }
}

/// What steps change, adjacent ranges as one.
fn changes(ordinal: u32, steps: &[Step], given: u64) -> Vec<MappingChange> {
    let mut changes: Vec<MappingChange> = Vec::new();
    for step in steps {
        let (address, bytes, is_backed) = match *step {
            Step::Map { address, bytes, .. } => (address, bytes, true),
            Step::Malloc { bytes } => (given, bytes, true),
            Step::Unmap { address, bytes } | Step::Free { address, bytes } => {
                (address, bytes, false)
            }
            _ => continue,
        };
        match changes.last_mut() {
            Some(last) if last.is_backed == is_backed && last.address + last.bytes == address => {
                last.bytes += bytes;
            }
            _ => changes.push(MappingChange { ordinal, address, bytes, is_backed }),
        }
    }
    changes
}
