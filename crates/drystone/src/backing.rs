//! Pins, and announcements of what addresses are backed by.
//!
//! Others keep tables by address: registrations with network cards and with NCCL, handles sent to
//! other processes. A pin keeps memory where it is; an announcement says that addresses lead to new
//! memory, or to none, so that such a table can drop them. Invariants: a change is announced once,
//! in the order of the changes, after it was done and before anybody is given memory there; what
//! was done and undone is not announced.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use drystone_core::{FreeError, Loans, Step};
use drystone_driver::{Call, DriverError, ErrorCode};
use parking_lot::Mutex;

use crate::allocator::Allocator;
use crate::room::Room;

/// A change of what a range of addresses is backed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingChange {
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
pub type BackingCallback = Arc<dyn Fn(&BackingChange) + Send + Sync>;

/// Why a block was not pinned, a pin not taken back, or changes are not announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The address is not that of a live block.
    #[error(transparent)]
    Block(#[from] FreeError),
    /// Nothing is pinned at the address.
    #[error("no block is pinned at {address:#x}: never, or unpinned as often as pinned")]
    NotPinned {
        /// The address.
        address: u64,
    },
    /// The driver's own memory pools hold the memory (source `async`).
    #[error("with source:async the driver moves memory as it likes; use source:vmm or malloc")]
    DriversOwn,
}

impl Allocator {
    /// Pins the live block that starts at an address: its memory stays where it is, also once the
    /// block is free, until it is unpinned. It is not lent, moved or given back, and serves
    /// requests at its own place as ever. Pins add up, and cover whole granules.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let block = allocator.allocate(stream, 8 << 20)?;
    /// let address = block.address();
    /// allocator.pin(address)?; // registered with a network card
    /// drop(block);
    /// assert_eq!(allocator.trim()?, 0);
    /// allocator.unpin(address)?;
    /// assert_eq!(allocator.trim()?, 8 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such block, or the memory is in the driver's own pools.
    pub fn pin(&self, address: u64) -> Result<(), PinError> {
        match &self.room {
            Room::Heap(device) => Ok(device.books.lock().pin(address)?),
            Room::Ledger(_) => Err(PinError::DriversOwn),
        }
    }

    /// Takes a pin back, whether the block is live still or not.
    ///
    /// # Errors
    /// Nothing is pinned there.
    pub fn unpin(&self, address: u64) -> Result<(), PinError> {
        match &self.room {
            Room::Heap(device) if device.books.lock().unpin(address) => Ok(()),
            _ => Err(PinError::NotPinned { address }),
        }
    }

    /// Adds a callback for every change of what addresses are backed by. A loan that finds its
    /// addresses mapped from before changes nothing.
    ///
    /// # Errors
    /// The memory is in the driver's own pools, which tell of no change.
    pub fn on_backing_change(&self, callback: BackingCallback) -> Result<(), PinError> {
        match &self.room {
            Room::Heap(device) => device.announcer.callbacks.lock().push(callback),
            Room::Ledger(_) => return Err(PinError::DriversOwn),
        }
        Ok(())
    }

    /// What is out on loan and pinned at this moment; nothing with source `async`.
    pub fn loans(&self) -> Loans {
        match &self.room {
            Room::Heap(device) => device.books.lock().loans(),
            Room::Ledger(_) => Loans::default(),
        }
    }
}

/// Tells the program of changes.
#[derive(Default)]
pub(crate) struct Announcer {
    callbacks: Mutex<Vec<BackingCallback>>,
    /// The thread that runs callbacks.
    announcing: Mutex<Option<ThreadId>>,
}

impl Announcer {
    /// Tells of the steps of a plan that are in effect; `given` is the address that one gave.
    pub(crate) fn announce(&self, ordinal: impl Fn() -> u32, steps: &[Step], given: u64) {
        let callbacks = self.callbacks.lock().clone();
        if callbacks.is_empty() {
            return;
        }
        let changes = changes(ordinal(), steps, given);
        if changes.is_empty() {
            return;
        }
        *self.announcing.lock() = Some(thread::current().id());
        // Also when a callback unwinds.
        let _announced = Announced(self);
        for change in &changes {
            callbacks.iter().for_each(|callback| callback(change));
        }
    }

    /// Refuses to take the lock that this thread has while it announces.
    pub(crate) fn refuse_within(&self) -> Result<(), DriverError> {
        match *self.announcing.lock() {
            Some(thread) if thread == thread::current().id() => {
                Err(DriverError::new(Call::Map, ErrorCode::InCallback))
            }
            _ => Ok(()),
        }
    }
}

struct Announced<'a>(&'a Announcer);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        *self.0.announcing.lock() = None;
    }
}

/// What steps change, adjacent ranges as one.
fn changes(ordinal: u32, steps: &[Step], given: u64) -> Vec<BackingChange> {
    let mut changes: Vec<BackingChange> = Vec::new();
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
            _ => changes.push(BackingChange { ordinal, address, bytes, is_backed }),
        }
    }
    changes
}
