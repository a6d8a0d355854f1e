//! [`TrialMemory`]: addresses and memory of our own on which a driver is tried, and their way back.
//!
//! Invariant: what the driver does not take back is kept, and offered again whenever memory of the
//! device goes back, and before anything else is tried. Nothing is lost, nor given back twice.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use drystone_driver::Relaxed;
use parking_lot::Mutex;

use crate::calls::Cuda;
use crate::failure::Failure;
use crate::gate;
use crate::properties::{Access, PhysicalMemory};

/// One granule, as far as it was made and mapped.
#[derive(Default)]
pub(crate) struct TrialMemory {
    bytes: u64,
    address: Option<u64>,
    handle: Option<u64>,
    is_mapped: bool,
    /// A stream that was made for the trial.
    stream: Option<u64>,
    /// The stream of a copy that may not be complete.
    copies: Option<u64>,
}

impl TrialMemory {
    /// Reserves addresses and creates memory. On failure it has what there was before.
    pub(crate) fn make(&mut self, cuda: &Cuda, memory: PhysicalMemory) -> Result<(), Failure> {
        self.bytes = cuda.granularity_bytes(memory)?;
        self.address = Some(cuda.reserve(self.bytes, 0)?);
        self.handle = Some(cuda.create(self.bytes, memory)?);
        Ok(())
    }

    pub(crate) fn make_stream(&mut self, cuda: &Cuda) -> Result<u64, Failure> {
        let stream = cuda.create_stream()?;
        self.stream = Some(stream);
        Ok(stream)
    }

    /// Maps what was made, and opens it to devices.
    pub(crate) fn map(&mut self, cuda: &Cuda, access: &[Access]) -> Result<(), Failure> {
        let (Some(address), Some(handle)) = (self.address, self.handle) else { return Ok(()) };
        cuda.map(address, self.bytes, handle)?;
        self.is_mapped = true;
        cuda.set_access(address, self.bytes, access)
    }

    /// Copies a part of it to another, and waits for that.
    pub(crate) fn copy(&mut self, cuda: &Cuda, tools: gate::Tools) -> Result<(), Failure> {
        let Some(address) = self.address else { return Ok(()) };
        self.copies = Some(tools.copies());
        tools.copy(cuda, address + self.bytes / 2, address, 512)?;
        self.finish_copies(cuda)
    }

    fn finish_copies(&mut self, cuda: &Cuda) -> Result<(), Failure> {
        if let Some(stream) = self.copies {
            gate::finish(cuda, stream)?;
            self.copies = None;
        }
        Ok(())
    }

    /// Unmaps it, once nothing is copied there any more.
    pub(crate) fn unmap(&mut self, cuda: &Cuda) -> Result<(), Failure> {
        self.finish_copies(cuda)?;
        if let (true, Some(address)) = (self.is_mapped, self.address) {
            cuda.unmap(address, self.bytes)?;
            self.is_mapped = false;
        }
        Ok(())
    }

    /// Releases the memory, which is mapped nowhere.
    pub(crate) fn release(&mut self, cuda: &Cuda) -> Result<(), Failure> {
        taken(&mut self.handle, |handle| cuda.release(handle))
    }

    /// Gives back what it has, as far as the driver takes it. Returns the first refusal.
    fn give_back(&mut self, cuda: &Cuda) -> Result<(), Failure> {
        let unmapped = self.unmap(cuda);
        let released = self.release(cuda);
        let unreserved = if self.is_mapped {
            Ok(())
        } else {
            taken(&mut self.address, |address| cuda.unreserve(address, self.bytes))
        };
        let ended = taken(&mut self.stream, |stream| {
            cuda.synchronize_stream(stream)?;
            cuda.destroy_stream(stream)
        });
        unmapped.and(released).and(unreserved).and(ended)
    }
}

/// Takes what the driver took back.
fn taken(
    what: &mut Option<u64>,
    give_back: impl FnOnce(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let done = what.map_or(Ok(()), give_back);
    if done.is_ok() {
        *what = None;
    }
    done
}

/// What the driver did not take back of one primary context.
#[derive(Default)]
pub(crate) struct Leftovers {
    has_any: AtomicBool,
    all: Mutex<Vec<TrialMemory>>,
}

impl Leftovers {
    /// Gives back what a trial has.
    pub(crate) fn give_back(&self, cuda: &Cuda, mut trial: TrialMemory) -> Result<(), Failure> {
        let done = trial.give_back(cuda);
        if done.is_err() {
            self.all.lock().push(trial);
            self.has_any.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Offers again what was not taken back. Returns the first refusal.
    ///
    /// The context is current, and this is no time at which memory may not go back.
    #[inline]
    pub(crate) fn offer_again(&self, cuda: &Cuda) -> Result<(), Failure> {
        if self.has_any.load(Ordering::Relaxed) { self.offer_all(cuda) } else { Ok(()) }
    }

    #[cold]
    fn offer_all(&self, cuda: &Cuda) -> Result<(), Failure> {
        // Captures forbid it to a thread that is not.
        let _relaxed = Relaxed::enter(cuda)?;
        let mut all = self.all.lock();
        let mut refusal = Ok(());
        for mut trial in mem::take(&mut *all) {
            let done = trial.give_back(cuda);
            if done.is_err() {
                all.push(trial);
            }
            refusal = refusal.and(done);
        }
        self.has_any.store(!all.is_empty(), Ordering::Relaxed);
        refusal
    }
}
