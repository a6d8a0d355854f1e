//! What the allocator offers to those who know memory by its address: pins and announcements.
//!
//! Registrations with network cards and with NCCL, handles sent to other processes: a pin keeps
//! memory where it is, an announcement tells of a change (`announcer`).

use drystone_core::{FreeError, Loans};

use crate::allocator::Allocator;
use crate::announcer::BackingCallback;
use crate::room::Room;

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
    /// requests at its own place as ever. Pins add up, and cover whole handles.
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
