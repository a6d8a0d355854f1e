//! [`Observer`]: tells the program of changes of what addresses are backed by.
//!
//! Others keep tables by address: a change says that addresses lead to new memory, or to none, so
//! that such a table can drop them. Invariants: that memory goes is told before it does, that it is
//! there after it came and before anybody is given it, each once and in the order of the changes.
//! Memory that stays after all, since the driver refused, is told of as if it had come; what came
//! and was taken back is not told.

use std::sync::Arc;

use drystone_core::{SegmentKind, Step};
use parking_lot::Mutex;

use super::calling_out::CallingOut;
use crate::catch_panic::catch_panic;

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
    /// Whether it is mapped, or one plain allocation, which comes and goes as a whole.
    pub kind: SegmentKind,
}

/// Called with each change, while the allocator holds the lock under which memory grows and goes
/// back. It may free, pin, unpin and ask; allocating, trimming and announcing a capture from within
/// is refused. It must not begin one, nor wait for another thread that does any of these. One that
/// panics has been told: memory goes and comes all the same.
pub type RemapCallback = Arc<dyn Fn(&MappingChange) + Send + Sync>;

/// Tells the program of changes.
#[derive(Default)]
pub(crate) struct Observer {
    pub(crate) callbacks: Mutex<Vec<RemapCallback>>,
}

impl Observer {
    /// Tells of the memory that goes with steps which are about to be done.
    pub(crate) fn tell_what_goes(
        &self,
        calling_out: &CallingOut,
        ordinal: impl Fn() -> u32,
        steps: &[Step],
    ) {
        let gone = |step: &Step| change_of(step, 0).filter(|change| !change.is_backed);
        self.tell(calling_out, ordinal, || steps.iter().filter_map(gone).collect());
    }

    /// Tells of the memory that came with steps of which so many are in effect, and of what did not
    /// go; `given` is the address that one gave.
    pub(crate) fn tell_what_is_there(
        &self,
        calling_out: &CallingOut,
        ordinal: impl Fn() -> u32,
        steps: &[Step],
        in_effect: usize,
        given: u64,
    ) {
        let there = |(at, step): (usize, &Step)| {
            let change = change_of(step, given)?;
            let is_there = change.is_backed == (at < in_effect);
            is_there.then_some(MappingChange { is_backed: true, ..change })
        };
        let all = || steps.iter().enumerate().filter_map(there).collect();
        self.tell(calling_out, ordinal, all);
    }

    fn tell(
        &self,
        calling_out: &CallingOut,
        ordinal: impl Fn() -> u32,
        found: impl FnOnce() -> Vec<MappingChange>,
    ) {
        let callbacks = self.callbacks.lock().clone();
        if callbacks.is_empty() {
            return;
        }
        let changes = joined(found());
        if changes.is_empty() {
            return;
        }
        let ordinal = ordinal();
        calling_out.run(|| {
            for change in &changes {
                let change = MappingChange { ordinal, ..*change };
                for callback in &callbacks {
                    // Unwinding, it would take along a plan that is half carried out.
                    catch_panic(|| callback(&change));
                }
            }
        });
    }
}

/// What a step changes, on a device that is to be named.
const fn change_of(step: &Step, given: u64) -> Option<MappingChange> {
    let (address, bytes, is_backed, kind) = match *step {
        Step::Map { address, bytes, .. } => (address, bytes, true, SegmentKind::Mapped),
        Step::Malloc { bytes } => (given, bytes, true, SegmentKind::Plain),
        Step::Unmap { address, bytes } | Step::Lift { address, bytes, .. } => {
            (address, bytes, false, SegmentKind::Mapped)
        }
        Step::Free { address, bytes } => (address, bytes, false, SegmentKind::Plain),
        _ => return None,
    };
    Some(MappingChange { ordinal: 0, address, bytes, is_backed, kind })
}

/// Changes of mapped ranges beside each other as one.
fn joined(changes: Vec<MappingChange>) -> Vec<MappingChange> {
    let mut joined: Vec<MappingChange> = Vec::new();
    for change in changes {
        match joined.last_mut() {
            Some(last)
                if (last.kind, last.is_backed) == (SegmentKind::Mapped, change.is_backed)
                    && change.kind == SegmentKind::Mapped
                    && last.address + last.bytes == change.address =>
            {
                last.bytes += change.bytes;
            }
            _ => joined.push(change),
        }
    }
    joined
}
