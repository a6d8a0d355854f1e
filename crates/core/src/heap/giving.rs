//! Giving back so much and no more: what other processes on the device ask for, and what nobody has
//! used for long.
//!
//! Only memory whose last use is known to be complete goes, as by a trim. What was used last goes
//! last: points of the streams, taken at some moment, tell what has been free since.

use super::Heap;
use super::compact::Compaction;
use super::gather::Missing;
use super::trim::{Trim, within};
use crate::fence::Points;
use crate::plan::Plan;
use crate::policy::SegmentKind;
use crate::pool::{Pool, Pools};
use crate::space::block::BlockIndex;
use crate::space::free_list::FreeList;
use crate::state_machine::StateMachine as _;

/// How many ranges one plan gives back at most: the program's hits wait for the heap's lock
/// meanwhile, some 10 us.
const GIVEN_AT_ONCE: usize = 64;

/// A heap that gives memory back.
#[derive(Debug)]
pub struct Giving<'a> {
    heap: &'a mut Heap,
}

impl<'a> Giving<'a> {
    /// Of a heap.
    pub const fn of(heap: &'a mut Heap) -> Self {
        Self { heap }
    }

    /// How far each stream has come now: what is used from here on counts as used since.
    pub fn points(self) -> Points {
        self.heap.streams.points()
    }

    /// Plans to give back so many bytes, of what has been free since some points. `None` if there
    /// is nothing that can go without waiting; one plan need not suffice. The smallest unit may
    /// pass what is missing, if nothing smaller is left.
    pub fn plan(self, bytes: u64, since: Option<&Points>) -> Option<Plan> {
        let Self { heap } = self;
        if bytes == 0 {
            return None;
        }
        heap.space.end_trails();
        heap.windows().send_all_home();
        for beyond_bytes in [0, u64::MAX] {
            let mut trim = Trim::new(heap);
            trim.give(Missing { bytes, beyond_bytes, since, most: GIVEN_AT_ONCE });
            if !trim.steps.is_empty() {
                return Some(trim.into_plan());
            }
        }
        // Mappings of windows that wait for their next use may be all that keeps it.
        let mut trim = Trim::new(heap);
        if since.is_none() {
            trim.claim_aliases();
        }
        // Last, since the driver may have refused to release these: nothing waits behind them.
        if since.is_none() && trim.steps.is_empty() {
            trim.heap.vm.plan_idle_release(Some(bytes), &mut trim.steps);
        }
        (!trim.steps.is_empty()).then(|| trim.into_plan())
    }

    /// Plans the next move that leaves whole handles over, until so many bytes of unused memory can
    /// be given back. `None` once they can, or where moves do not suffice.
    pub fn plan_compaction(self, bytes: u64) -> Option<Plan> {
        let missing_bytes = bytes.saturating_sub(self.heap.unused_bytes());
        (missing_bytes > 0).then(|| Compaction::of(self.heap).plan(missing_bytes))?
    }
}

impl Trim<'_> {
    /// Claims what is to be given back.
    fn give(&mut self, mut given: Missing<'_>) {
        let gives_back = |pools: &Pools<Pool>, list: &FreeList| pools.gives_back(list);
        let starts = self.run_starts(gives_back);
        for ix in self.segments_that(gives_back) {
            let segment = &self.heap.space.segments[ix];
            let starts = within(&starts, segment);
            match segment.kind {
                _ if segment.is_window || starts.is_empty() => {}
                SegmentKind::Mapped => self.claim_handles(ix, starts, &mut given, Self::release),
                SegmentKind::Plain => {
                    let bytes = segment.bytes;
                    let fits = bytes <= given.bytes.saturating_add(given.beyond_bytes);
                    let is_unused = |&(_, index): &(u64, BlockIndex)| {
                        self.heap.streams.is_unused_since(&self.heap.space, index, given.since)
                    };
                    let before = self.releases.len();
                    if fits && given.bytes > 0 && starts.iter().all(is_unused) {
                        self.claim_segment(ix, starts);
                    }
                    if self.releases.len() > before {
                        given.bytes = given.bytes.saturating_sub(bytes);
                    }
                }
            }
            if given.bytes == 0 || self.releases.len() >= GIVEN_AT_ONCE {
                return;
            }
        }
    }
}
