//! Giving back so much and no more: what other processes on the device ask for, and what nobody has
//! used for long.
//!
//! Only memory whose last use is known to be complete goes, as by a trim. What was used last goes
//! last: points of the streams, taken at some moment, tell what has been free since.

use super::Heap;
use super::compact::Compaction;
use super::trim::{Missing, Trim, Whose};
use crate::fence::Points;
use crate::headroom::Look;
use crate::id::GranuleId;
use crate::plan::{Plan, Step};
use crate::state_machine::StateMachine as _;
use crate::vm::physical;

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

    /// Other processes would give so much back to a request that is refused.
    pub const fn note_offered(self, bytes: u64) {
        self.heap.headroom.note_offered(bytes);
    }

    /// Adopts handles of these sizes in bytes, which other processes gave: they back nothing yet,
    /// and serve before memory is created. Names those that the limit leaves room for, in order;
    /// the others stay the caller's.
    pub fn adopt(self, sizes: impl IntoIterator<Item = u64>) -> Vec<GranuleId> {
        let Heap { vm, stats, headroom, .. } = self.heap;
        let taken = sizes.into_iter().map_while(|bytes| {
            headroom.check(stats, bytes, Look::Past).ok()?;
            let granule = physical::adopt(vm, bytes)?;
            stats.all.reserved_bytes.add(bytes);
            Some(granule)
        });
        taken.collect()
    }

    /// The handles that a plan releases and that may go to another process as they are, with their
    /// sizes: nobody else knows them, and they are the device's memory.
    pub fn loose_handles(self, plan: &Plan) -> Vec<(GranuleId, u64)> {
        let vm = &self.heap.vm;
        let released = plan.steps.iter().filter_map(|step| match *step {
            Step::Release { granule } => Some(granule),
            _ => None,
        });
        released
            .filter_map(|granule| Some((granule, physical::loose_bytes(vm, granule)?)))
            .collect()
    }

    /// Plans to give back so many bytes, of what has been free since some points. `None` if there
    /// is nothing that can go without waiting; one plan need not suffice. The smallest unit may
    /// pass what is missing, if nothing smaller is left.
    pub fn plan(self, bytes: u64, since: Option<&Points>) -> Option<Plan> {
        let Self { heap } = self;
        if bytes == 0 {
            return None;
        }
        heap.windows().send_all_home();
        for beyond_bytes in [0, u64::MAX] {
            let mut trim = Trim::of(heap, Whose::All);
            let missing = Missing { bytes, beyond_bytes, since, most: GIVEN_AT_ONCE };
            trim.claim_free(missing, Trim::release);
            if !trim.steps.is_empty() {
                return Some(trim.into_plan());
            }
        }
        // Mappings of windows that wait for their next use may be all that keeps it.
        let mut trim = Trim::of(heap, Whose::All);
        if since.is_none() {
            trim.claim_aliases();
        }
        // Nothing has used these since they back nothing. Last, since the driver may have refused
        // to release them: nothing waits behind them.
        if trim.steps.is_empty() {
            trim.heap.vm.plan_idle_release(Some(bytes), &mut trim.steps);
        }
        (!trim.steps.is_empty()).then(|| trim.into_plan())
    }

    /// Plans the next move that leaves whole handles over, until so many bytes of unused memory can
    /// be given back. `None` once they can, or where moves do not suffice.
    pub fn plan_compaction(self, bytes: u64) -> Option<Plan> {
        let missing_bytes = bytes.saturating_sub(self.heap.unused_bytes());
        (missing_bytes > 0)
            .then(|| Compaction::of(self.heap).plan(missing_bytes..=missing_bytes))?
    }
}
