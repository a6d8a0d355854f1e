//! The way of a malloc that misses, and the out-of-memory ladder: one function, one page.
//!
//! A rung that made room ends by making the request again (B28, B30). Rungs that a capture
//! forbids are skipped while any stream is captured (I11, B22). Requests that miss come one at a
//! time: memory that another thread is about to get or to give back is not missing.

use drystone_core::{Granted, PoolId, StreamId};
use drystone_driver::DriverError;
use parking_lot::MutexGuard;

use crate::capture::{Captured, captured};
use crate::device::Device;
use crate::error::{AllocateError, OutOfMemory};
use crate::source::Books;

/// What makes room, in the order tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    /// Wait for fences of pending blocks.
    AwaitPending,
    /// Give back memory whose last use is complete.
    TrimPassed,
    /// Wait until the device is idle, then give back all unused memory.
    TrimAll,
    /// Ask the program.
    Callbacks,
}

impl Rung {
    /// Whether a capture leaves this to a request.
    fn is_legal(self, captured: Captured) -> bool {
        match captured {
            Captured::None => true,
            Captured::Other => matches!(self, Rung::AwaitPending | Rung::Callbacks),
            Captured::Own => false,
        }
    }
}

/// A request that missed.
#[derive(Clone, Copy)]
pub(crate) struct Miss {
    pub(crate) pool: PoolId,
    pub(crate) stream: StreamId,
    pub(crate) bytes: u64,
}

/// Why growth failed this time: `None` stands for the limit, which is no failure of the driver.
pub(crate) struct Refused(pub(crate) Option<DriverError>);

impl<B: Books> Device<B> {
    /// Serves a request that its own free list could not, or fails for good.
    #[cold]
    pub(crate) fn allocate_slowly(&self, miss: Miss) -> Result<Granted, AllocateError> {
        let failed = |error| AllocateError::Driver { error, bytes: miss.bytes };
        self.refuse_at_the_end().map_err(failed)?;
        if miss.bytes > self.driver.info().total_bytes {
            // No rung helps, and as a plan it would have a step for each granule there cannot be.
            return Err(self.out_of_memory(miss, Captured::None, Refused(None)).into());
        }
        let mut growth = self.growth.lock();
        // Asked with the lock held: a capture may have ended while others grew.
        let captured = captured(&*self.driver, &self.events, miss.stream).map_err(failed)?;
        if captured != Captured::Own {
            self.collect();
        }
        let mut refused = match B::attempt(self, miss, captured)? {
            Ok(grant) => return Ok(grant),
            Err(refused) => refused,
        };
        const LADDER: [Rung; 5] = [
            Rung::AwaitPending,
            Rung::TrimPassed,
            Rung::TrimAll,
            Rung::Callbacks,
            // What was freed in pieces meanwhile serves once it went back to the device.
            Rung::TrimAll,
        ];
        for rung in LADDER {
            if !rung.is_legal(captured) {
                continue;
            }
            if rung == Rung::TrimPassed {
                self.books.lock().stats_mut().retries += 1;
            }
            let is_climbed = match rung {
                Rung::Callbacks => MutexGuard::unlocked(&mut growth, || self.ask(miss)),
                Rung::AwaitPending => self.await_pending(),
                Rung::TrimPassed => self.gives_back(),
                // Also when nothing is given back: what was pending or quarantined is free now.
                Rung::TrimAll => {
                    let is_idle = self.synchronize().is_ok();
                    self.gives_back() || is_idle
                }
            };
            if rung == Rung::Callbacks && !is_climbed && !self.has_unused(miss.bytes) {
                break;
            }
            if !is_climbed {
                continue;
            }
            refused = match B::attempt(self, miss, captured)? {
                Ok(grant) => return Ok(grant),
                Err(refused) => refused,
            };
        }
        Err(self.out_of_memory(miss, captured, refused).into())
    }

    /// Gives back what can be without waiting. True if that was anything, however it ended.
    fn gives_back(&self) -> bool {
        let given_back = B::give_back(self);
        given_back.unwrap_or_else(|error| error.given_back_bytes) > 0
    }

    /// Asks the program to free something. True if it may have.
    fn ask(&self, miss: Miss) -> bool {
        let callbacks = self.callbacks.lock().clone();
        // Each is asked, whatever those before it have freed.
        callbacks.iter().fold(false, |freed, callback| callback(miss.bytes) | freed)
    }

    /// Whether so much is held unused: in pieces, or freed by another thread since the last trim.
    fn has_unused(&self, bytes: u64) -> bool {
        let books = self.books.lock();
        let all = &books.stats().all;
        all.reserved_bytes.current - all.active_bytes.current >= bytes
    }

    fn out_of_memory(&self, miss: Miss, captured: Captured, refused: Refused) -> Box<OutOfMemory> {
        let info = self.driver.info();
        let device_free_bytes = self.driver.memory_info().ok().map(|memory| memory.free_bytes);
        let books = self.books.lock();
        let all = books.stats().all;
        Box::new(OutOfMemory {
            requested_bytes: miss.bytes,
            ordinal: info.ordinal,
            pool: miss.pool,
            device_bytes: info.total_bytes,
            device_free_bytes,
            limit_bytes: books.limit_bytes(),
            allocated_bytes: all.allocated_bytes.current,
            pending_bytes: all.active_bytes.current - all.allocated_bytes.current,
            reserved_bytes: all.reserved_bytes.current,
            largest_free_bytes: books.largest_free_bytes(),
            granule_bytes: books.granule_bytes(miss.pool),
            is_capturing: captured != Captured::None,
            refusal: refused.0,
        })
    }
}
