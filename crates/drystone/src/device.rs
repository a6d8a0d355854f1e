//! [`Device`]: what the handles of one allocator share, and how memory comes and goes.
//!
//! Lock order: `growth`, which whoever moves memory between heap and device holds across driver
//! calls; or `streams`, while a stream is added; then one of the others alone: the books' for
//! decisions, the events' for record, query and wait, the handles', suppliers' and callbacks' for a
//! copy. I14: no callback happens under any lock, no blocking driver call under any but `growth`,
//! which hits and frees never take. A supplier is a driver in this, and so is who is told of
//! changes of backing (`announcer`).

use std::collections::BTreeMap;
use std::sync::Arc;

use drystone_core::{Plan, PoolId, StreamError, StreamId};
use drystone_driver::{Call, Driver, DriverError, ErrorCode, Stream, StreamUid};
use parking_lot::Mutex;

use crate::announcer::Announcer;
use crate::capture::{Relaxed, is_any_captured};
use crate::error::{TrimError, is_final};
use crate::events::Events;
use crate::execute::{Executor, Handles};
use crate::source::Books;
use crate::supply::MemoryProviders;

/// Called when memory runs out, with the bytes asked for and no lock held. Returns whether it
/// freed something, so that the request is worth another try.
pub type OutOfMemoryCallback = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// What the handles of an allocator share.
pub(crate) struct Device<B: Books> {
    pub(crate) driver: Arc<dyn Driver>,
    /// The heap, or the ledger where the driver pools by itself.
    pub(crate) books: Mutex<B>,
    pub(crate) events: Mutex<Events>,
    pub(crate) handles: Mutex<Handles>,
    pub(crate) suppliers: Mutex<MemoryProviders>,
    /// Held by whoever moves memory between the books and the device.
    pub(crate) growth: Mutex<()>,
    pub(crate) callbacks: Mutex<Vec<OutOfMemoryCallback>>,
    pub(crate) announcer: Announcer,
    streams: Mutex<BTreeMap<StreamUid, StreamId>>,
}

impl<B: Books> Device<B> {
    pub(crate) fn new(driver: Arc<dyn Driver>, books: B, handles: Handles) -> Self {
        Self {
            driver,
            books: Mutex::new(books),
            events: Mutex::default(),
            handles: Mutex::new(handles),
            suppliers: Mutex::default(),
            growth: Mutex::default(),
            callbacks: Mutex::default(),
            announcer: Announcer::default(),
            streams: Mutex::default(),
        }
    }

    /// The key of a device stream, made if it is a new one.
    pub(crate) fn add_stream(&self, stream: Stream) -> Result<StreamId, DriverError> {
        let uid = self.driver.stream_uid(stream)?;
        let mut streams = self.streams.lock();
        if let Some(&id) = streams.get(&uid) {
            return Ok(id);
        }
        let handle_of = |id| self.events.lock().stream(id);
        let is_shared = stream == Stream::PER_THREAD; // by other threads' streams, still alive (B4)
        if !is_shared
            && let Some(gone) = streams.values().copied().find(|&id| handle_of(id) == Some(stream))
        {
            // Its handle is another stream's now: it was destroyed without notice.
            streams.retain(|_, id| *id != gone);
            // Cannot fail: a stream in the table was added and is not retired.
            let _ = self.end_stream(gone);
        }
        let id = self.books.lock().add_stream();
        self.events.lock().add_stream(id, stream, uid);
        streams.insert(uid, id);
        Ok(id)
    }

    /// Retires a stream that is about to be destroyed.
    pub(crate) fn retire_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        self.streams.lock().retain(|_, id| *id != stream);
        self.end_stream(stream)
    }

    /// The stream's last fence is recorded if it can be; its handle is not used again.
    fn end_stream(&self, stream: StreamId) -> Result<(), StreamError> {
        let plan = self.books.lock().retire_stream(stream)?;
        self.finish(plan);
        self.events.lock().forget_handle(stream);
        Ok(())
    }

    pub(crate) fn executor(&self) -> Executor<'_> {
        Executor {
            driver: &*self.driver,
            events: &self.events,
            handles: &self.handles,
            suppliers: &self.suppliers,
            announcer: &self.announcer,
            supplier: None,
        }
    }

    /// For the plans of a request to a pool.
    pub(crate) fn executor_for(&self, pool: PoolId) -> Executor<'_> {
        Executor { supplier: self.suppliers.lock().of(pool), ..self.executor() }
    }

    /// Carries out a plan and hands it back to the heap, done or undone.
    #[inline(never)]
    pub(crate) fn settle(&self, plan: Plan) -> Result<(), DriverError> {
        match self.executor().carry_out(&plan) {
            Ok(address) => {
                self.books.lock().commit(plan, address);
                Ok(())
            }
            Err(failure) => {
                self.books.lock().abandon(plan, failure.in_effect);
                Err(failure.error)
            }
        }
    }

    /// Carries out a plan whose failure the heap deals with by itself.
    #[cold]
    pub(crate) fn finish(&self, plan: Plan) {
        // A block whose fences failed is quarantined, a stream's end waits for an idle device.
        let _ = self.settle(plan);
    }

    /// Tells the books which fences have passed, and lets go of what waited for them. True if any
    /// has.
    pub(crate) fn collect(&self) -> bool {
        let has_passed = self.note_passed();
        if has_passed.is_ok() {
            // What could not go is tried again.
            let _ = B::depart(self);
        }
        has_passed.unwrap_or(false)
    }

    /// Errors: no driver call can succeed any more.
    fn note_passed(&self) -> Result<bool, DriverError> {
        let passed = {
            let mut events = self.events.lock();
            if !events.any_recorded() {
                return Ok(false);
            }
            match Relaxed::enter(&*self.driver) {
                Ok(_relaxed) => events.collect(&*self.driver),
                Err(error) if is_final(error.code) => return Err(error),
                Err(_) => return Ok(false),
            }
        };
        let mut books = self.books.lock();
        passed.iter().for_each(|&fence| books.fence_passed(fence));
        Ok(!passed.is_empty())
    }

    /// Waits for every fence that is recorded. True if there was any.
    pub(crate) fn await_pending(&self) -> bool {
        let recorded = self.events.lock().last_recorded();
        let Ok(relaxed) = Relaxed::enter(&*self.driver) else { return false };
        for (_, event) in &recorded {
            // One that fails is no reason not to wait for the others; `collect` asks anew.
            let _ = self.driver.synchronize_event(*event);
        }
        drop(relaxed);
        self.collect()
    }

    /// Waits until the device is idle, and tells the books. Refused while a stream is captured,
    /// which that would break.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.refuse_in_capture(Call::SynchronizeDevice)?;
        B::depart(self)?;
        let plan = self.books.lock().plan_synchronize();
        self.settle(plan)?;
        self.note_passed()?;
        if B::depart(self)? {
            // What could go only now is unused once the device has been idle again.
            let plan = self.books.lock().plan_synchronize();
            self.settle(plan)?;
        }
        Ok(())
    }

    /// What a capture forbids is not even tried: the attempt would break the capture.
    pub(crate) fn refuse_in_capture(&self, call: Call) -> Result<(), DriverError> {
        if is_any_captured(&*self.driver, &self.events) {
            return Err(DriverError::new(call, ErrorCode::CaptureUnsupported));
        }
        Ok(())
    }

    /// Waits until the device is idle and gives back all unused memory. Returns the bytes.
    pub(crate) fn trim(&self) -> Result<u64, TrimError> {
        self.refuse_at_the_end().map_err(nothing_yet)?;
        let _growth = self.growth.lock();
        self.synchronize().map_err(nothing_yet)?;
        B::give_back(self)
    }

    /// Gives back the unused memory whose last use is complete. Returns the bytes.
    pub(crate) fn trim_passed(&self) -> Result<u64, TrimError> {
        self.refuse_at_the_end().map_err(nothing_yet)?;
        let _growth = self.growth.lock();
        self.collect();
        B::give_back(self)
    }

    /// Asked before the locks of growth and events are taken: in a forked child nobody may be left
    /// to release them (B56), and a callback that is told of changes runs under the former.
    pub(crate) fn refuse_at_the_end(&self) -> Result<(), DriverError> {
        self.announcer.refuse_within()?;
        match self.driver.capture_status(Stream::DEFAULT) {
            Err(error) if is_final(error.code) => Err(error),
            _ => Ok(()),
        }
    }
}

impl<B: Books> Drop for Device<B> {
    /// Gives everything unused back. Live blocks of raw allocations stay mapped: the program may
    /// still be using them. Once the driver is shutting down nothing more is called.
    fn drop(&mut self) {
        self.books.get_mut().release_all_pools();
        let trimmed = self.synchronize().map(|()| B::give_back(self));
        match trimmed {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if !error.is_final() => {}
            _ => return,
        }
        if B::close(self).is_err_and(|error| is_final(error.code)) {
            return;
        }
        for event in self.events.get_mut().drain() {
            if self.driver.destroy_event(event).is_err() {
                return;
            }
        }
    }
}

/// A trim that failed before it gave anything back.
pub(crate) const fn nothing_yet(error: DriverError) -> TrimError {
    TrimError { error, given_back_bytes: 0 }
}
