//! What addresses are backed by: pins, changes, and who else may reach it. For those who know
//! memory by its address: registrations with network cards and with NCCL, handles sent to other
//! processes.

use std::ops::Range;

use drystone_core::{FreeError, PinKey, RemapStats};

use super::Allocator;
use crate::backend::BackendState;
use crate::error::PeerError;
use crate::executor::observe::RemapCallback;

/// Why a block was not pinned, a pin not taken back, or changes are not announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
    /// block is free, until it is unpinned. It is not remapped or given back, and serves
    /// requests at its own place as before. Pins add up, and cover whole handles. Makes no driver
    /// call, unless memory is in the host's and comes back first, and waits for misses and trims
    /// under way.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let block = allocator.allocate(stream, 32 << 20)?;
    /// let address = block.address();
    /// allocator.pin_mapping(address)?; // registered with a network card
    /// drop(block);
    /// assert_eq!(allocator.trim()?, 0);
    /// allocator.unpin_mapping(address)?;
    /// assert_eq!(allocator.trim()?, 32 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such block, or the memory is in the driver's own pools.
    pub fn pin_mapping(&self, address: u64) -> Result<(), PinError> {
        match &self.engine.backend {
            BackendState::Heap(heap) => self.engine.while_nothing_moves(|| {
                Ok(heap.change(|heap| heap.pin_mapping(address)).map_err(FreeError::from)??)
            }),
            BackendState::AsyncPools(_) => Err(PinError::DriversOwn),
        }
    }

    /// Pins the memory behind addresses of one segment, as [`pin_mapping`](Self::pin_mapping) does
    /// that of a block: of its part that a library registers, or of several blocks beside each
    /// other. [`unpin_range`](Self::unpin_range) takes the pin back.
    ///
    /// # Errors
    /// They do not all lead to memory of this allocator, or it is in the driver's own pools.
    pub fn pin_range(&self, addresses: Range<u64>) -> Result<(), PinError> {
        let first = self.block_at(addresses.start);
        match (&self.engine.backend, first) {
            // Addresses of others wait for nobody.
            (BackendState::Heap(_), Err(unknown @ FreeError::Unknown { .. })) => {
                Err(unknown.into())
            }
            (BackendState::Heap(heap), _) => self.engine.while_nothing_moves(|| {
                Ok(heap.change(|heap| heap.pin_range(addresses)).map_err(FreeError::from)??)
            }),
            (BackendState::AsyncPools(_), _) => Err(PinError::DriversOwn),
        }
    }

    /// Takes a pin of a block back, whether it is live still or not. Makes no driver call.
    ///
    /// # Errors
    /// Nothing is pinned there.
    pub fn unpin_mapping(&self, address: u64) -> Result<(), PinError> {
        self.unpin(address, PinKey::Block(address))
    }

    /// Takes a pin of a range back, as it was pinned. Makes no driver call.
    ///
    /// # Errors
    /// It is not pinned.
    pub fn unpin_range(&self, addresses: Range<u64>) -> Result<(), PinError> {
        self.unpin(addresses.start, PinKey::Range(addresses.start, addresses.end))
    }

    fn unpin(&self, address: u64, key: PinKey) -> Result<(), PinError> {
        let was_pinned = match &self.engine.backend {
            BackendState::Heap(heap) => {
                heap.change(|heap| heap.unpin(key)).map_err(FreeError::from)?
            }
            BackendState::AsyncPools(_) => false,
        };
        if was_pinned { Ok(()) } else { Err(PinError::NotPinned { address }) }
    }

    /// Adds a callback for every change of what addresses are backed by. A remap into a
    /// window that leads to its memory already changes nothing.
    ///
    /// # Errors
    /// The memory is in the driver's own pools, which tell of no change.
    pub fn on_remap(&self, callback: RemapCallback) -> Result<(), PinError> {
        match &self.engine.backend {
            BackendState::Heap(_) => self.engine.executor.observer.callbacks.lock().push(callback),
            BackendState::AsyncPools(_) => return Err(PinError::DriversOwn),
        }
        Ok(())
    }

    /// What is mapped away from home and pinned at this moment; nothing with backend `async`.
    pub fn remap_stats(&self) -> RemapStats {
        self.engine.backend.remap_stats()
    }

    /// Gives another device access to all memory of this allocator, whether it is mapped now or
    /// later. Calls the driver for every range, and waits for misses and trims under way.
    ///
    /// # Errors
    /// The two are not connected, or a range could not be opened.
    pub fn enable_peer_access(&self, peer_ordinal: u32) -> Result<(), PeerError> {
        self.engine.enable_peer_access(peer_ordinal)
    }
}
