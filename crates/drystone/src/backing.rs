//! What the allocator offers to those who know memory by its address: pins and announcements.
//!
//! Registrations with network cards and with NCCL, handles sent to other processes: a pin keeps
//! memory where it is, an announcement tells of a change (`announcer`).

use drystone_core::{FreeError, RemapStats};

use crate::allocator::Allocator;
use crate::announcer::RemapCallback;
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
    /// The driver's own memory pools hold the memory (backend `async`).
    #[error("with backend:async the driver moves memory as it likes; use backend:vmm or malloc")]
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
    /// allocator.pin_mapping(address)?; // registered with a network card
    /// drop(block);
    /// assert_eq!(allocator.trim()?, 0);
    /// allocator.unpin_mapping(address)?;
    /// assert_eq!(allocator.trim()?, 8 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such block, or the memory is in the driver's own pools.
    pub fn pin_mapping(&self, address: u64) -> Result<(), PinError> {
        match &self.room {
            Room::Heap(device) => Ok(device.books.lock().pin_mapping(address)?),
            Room::AsyncPools(_) => Err(PinError::DriversOwn),
        }
    }

    /// Takes a pin back, whether the block is live still or not.
    ///
    /// # Errors
    /// Nothing is pinned there.
    pub fn unpin_mapping(&self, address: u64) -> Result<(), PinError> {
        match &self.room {
            Room::Heap(device) if device.books.lock().unpin_mapping(address) => Ok(()),
            _ => Err(PinError::NotPinned { address }),
        }
    }

    /// Adds a callback for every change of what addresses are backed by. A loan that finds its
    /// addresses mapped from before changes nothing.
    ///
    /// # Errors
    /// The memory is in the driver's own pools, which tell of no change.
    pub fn on_remap(&self, callback: RemapCallback) -> Result<(), PinError> {
        match &self.room {
            Room::Heap(device) => device.announcer.callbacks.lock().push(callback),
            Room::AsyncPools(_) => return Err(PinError::DriversOwn),
        }
        Ok(())
    }

    /// What is out on loan and pinned at this moment; nothing with backend `async`.
    pub fn remap_stats(&self) -> RemapStats {
        match &self.room {
            Room::Heap(device) => device.books.lock().remap_stats(),
            Room::AsyncPools(_) => RemapStats::default(),
        }
    }
}
