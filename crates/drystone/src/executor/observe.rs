//! [`Observer`]: tells the program of changes of what addresses are backed by.
//!
//! Others keep tables by address: a change says that addresses lead to new memory, or to none, so
//! that such a table can drop them. Invariants: that memory goes is told before it does, that it is
//! there after it came and before anybody is given it, each once and in the order of the changes.
//! Memory that stays after all, since the driver refused, is told of as if it had come; what came
//! and was taken back is not told.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use drystone_core::Step;
use drystone_driver::{Call, DriverError, ErrorCode};
use parking_lot::Mutex;

use crate::contained::contained;

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
    /// Whether there is memory now, other than before; else there will be none.
    pub is_backed: bool,
}

/// Called with each change, while the allocator holds the lock under which memory grows and goes
/// back. It may free, pin, unpin and ask; allocating and trimming from within is refused, and it
/// must not wait for another thread that does either. One that panics has been told: memory goes
/// and comes all the same.
pub type RemapCallback = Arc<dyn Fn(&MappingChange) + Send + Sync>;

/// Tells the program of changes.
#[derive(Default)]
pub(crate) struct Observer {
    pub(crate) callbacks: Mutex<Vec<RemapCallback>>,
    /// The thread that runs callbacks.
    telling: Mutex<Option<ThreadId>>,
}

impl Observer {
    /// Tells of the memory that goes with steps which are about to be done.
    pub(crate) fn tell_what_goes(&self, ordinal: impl Fn() -> u32, steps: &[Step]) {
        let gone = |step: &Step| range_of(step, 0).filter(|range| !range.2);
        self.tell(ordinal, || steps.iter().filter_map(gone).collect());
    }

    /// Tells of the memory that came with steps of which so many are in effect, and of what did not
    /// go; `given` is the address that one gave.
    pub(crate) fn tell_what_is_there(
        &self,
        ordinal: impl Fn() -> u32,
        steps: &[Step],
        in_effect: usize,
        given: u64,
    ) {
        let there = |(at, step): (usize, &Step)| {
            let (address, bytes, is_backed) = range_of(step, given)?;
            (is_backed == (at < in_effect)).then_some((address, bytes, true))
        };
        self.tell(ordinal, || steps.iter().enumerate().filter_map(there).collect());
    }

    fn tell(&self, ordinal: impl Fn() -> u32, ranges: impl FnOnce() -> Vec<Range>) {
        let callbacks = self.callbacks.lock().clone();
        if callbacks.is_empty() {
            return;
        }
        let changes = changes(ordinal(), &ranges());
        if changes.is_empty() {
            return;
        }
        *self.telling.lock() = Some(thread::current().id());
        for (change, callback) in changes.iter().flat_map(|c| callbacks.iter().map(move |f| (c, f)))
        {
            // Unwinding, it would take along a plan that is half carried out.
            contained(|| callback(change));
        }
        *self.telling.lock() = None;
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

/// Address, bytes, and whether there is memory.
type Range = (u64, u64, bool);

/// What a step changes.
const fn range_of(step: &Step, given: u64) -> Option<Range> {
    match *step {
        Step::Map { address, bytes, .. } => Some((address, bytes, true)),
        Step::Malloc { bytes } => Some((given, bytes, true)),
        Step::Unmap { address, bytes } | Step::Free { address, bytes } => {
            Some((address, bytes, false))
        }
        _ => None,
    }
}

/// Changes of ranges, adjacent ones as one.
fn changes(ordinal: u32, ranges: &[Range]) -> Vec<MappingChange> {
    let mut changes: Vec<MappingChange> = Vec::new();
    for &(address, bytes, is_backed) in ranges {
        match changes.last_mut() {
            Some(last) if last.is_backed == is_backed && last.address + last.bytes == address => {
                last.bytes += bytes;
            }
            _ => changes.push(MappingChange { ordinal, address, bytes, is_backed }),
        }
    }
    changes
}
