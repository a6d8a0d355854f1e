//! [`Uses`]: the streams that memory is used on, and what their captures mean for its end.
//!
//! Keeps: what is dropped while a stream that it is known to be used on is captured serves nobody
//! else while the graph lives. Every session under way on such a stream keeps it for its graph. Of
//! a capture without a session nobody knows how long its graph lives: it keeps memory for good.
//!
//! Lock order: `others`, then a lane's `session`; neither within the allocator's.

use std::fmt::Debug;
use std::iter;
use std::sync::Arc;

use cudarc::driver::CudaSlice;
use parking_lot::Mutex;

use crate::lane::{Lane, Pool, is_captured};

/// What becomes of memory that is dropped now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No graph being captured uses it, or such a graph holds the pool that it is of.
    Free,
    /// It is for the sessions under way: see [`Uses::keep`].
    Keep,
    /// A capture without a session may use it, or the driver cannot say whether there is one.
    Never,
}

/// The streams that memory is used on. They live as long as it does.
#[derive(Debug)]
pub(crate) struct Uses {
    /// The one in whose order it is freed.
    pub(crate) lane: Arc<Lane>,
    /// Those that it was noted for.
    others: Mutex<Vec<Arc<Lane>>>,
    /// Whether cudarc tracked uses by events when the memory was made.
    is_tracked: bool,
}

impl Uses {
    pub(crate) fn new(lane: &Arc<Lane>) -> Self {
        let is_tracked = lane.stream.context().is_event_tracking();
        Self { lane: Arc::clone(lane), others: Mutex::default(), is_tracked }
    }

    /// The same uses, for memory that outlives its holder.
    pub(crate) fn take(&mut self) -> Self {
        let others = Mutex::new(std::mem::take(self.others.get_mut()));
        Self { lane: Arc::clone(&self.lane), others, is_tracked: self.is_tracked }
    }

    /// Notes a use on a stream of the same device's.
    pub(crate) fn note(&self, lane: &Arc<Lane>) {
        let mut others = self.others.lock();
        if !iter::once(&self.lane).chain(others.iter()).any(|known| Arc::ptr_eq(known, lane)) {
            others.push(Arc::clone(lane));
        }
    }

    /// What becomes of memory of a pool, or of none, that is dropped now. Asks the driver about
    /// each stream on which no session is under way.
    pub(crate) fn fate(&mut self, own_pool: Option<&Arc<Pool>>) -> Fate {
        let mut fate = Fate::Free;
        for lane in iter::once(&self.lane).chain(self.others.get_mut().iter()) {
            match lane.session.lock().as_ref() {
                Some(session) if own_pool.is_some_and(|pool| Arc::ptr_eq(pool, &session.pool)) => {}
                Some(_) => fate = Fate::Keep,
                None if matches!(is_captured(&lane.stream), Ok(false)) => {}
                None => return Fate::Never,
            }
        }
        fate
    }

    /// Ends a slice over the memory, and says what becomes of that: the stream waits for the uses
    /// that cudarc noted.
    pub(crate) fn end<T>(&mut self, slice: CudaSlice<T>, own_pool: Option<&Arc<Pool>>) -> Fate {
        let context = Arc::clone(self.lane.stream.context());
        let earlier = context.check_err();
        let fate = self.fate(own_pool);
        if fate != Fate::Free && self.is_tracked {
            // Its events may be of before the capture, which must not wait for them, or of within,
            // for which nobody outside may wait. They cannot be destroyed without: they stay as
            // long as the program.
            std::mem::forget(slice);
        } else {
            // The stream waits for the last read and write.
            slice.leak();
        }
        let waited = context.check_err();
        // Else somebody may still be using it: nobody else may have it, ever.
        let fate = if waited.is_ok() { fate } else { Fate::Never };
        context.record_err(waited.and(earlier));
        fate
    }

    /// Every session under way keeps the memory, which has these uses. Where none is any more, it
    /// ends with its last holder, the caller.
    pub(crate) fn keep<M: Debug + Send + Sync + 'static>(&self, memory: &Arc<M>) {
        let others = self.others.lock();
        for lane in iter::once(&self.lane).chain(others.iter()) {
            if let Some(session) = lane.session.lock().as_mut() {
                session.kept.push(Arc::<M>::clone(memory));
            }
        }
    }
}
