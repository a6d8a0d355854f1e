//! Memory that goes from process to process: what is given, and why it could not be.

use std::sync::Arc;

use drystone_core::FreeError;
use drystone_driver::{Call, Descriptor, DriverError};

use crate::out_of_memory::Stays;

/// What is behind a block of mapped memory that somebody asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Behind {
    /// How many handles.
    pub handles: usize,
    /// Why live memory does not move, if it does not.
    pub stays: Option<Stays>,
}

impl Behind {
    /// Why these are several handles; `None` if it is one.
    pub fn why(&self) -> Option<&'static str> {
        let other = "it is pinned, known to others, in a graph's pool or mapped elsewhere, or \
                     there is no room for a copy";
        (self.handles > 1).then(|| self.stays.map_or(other, Stays::why))
    }
}

/// The physical memory of a live block, for other processes to import.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exported {
    /// Where the block begins in the memory of the handles beside each other.
    pub offset_bytes: u64,
    /// The handles, in the order of their addresses. The first and the last may hold memory of
    /// other blocks, too.
    pub handles: Vec<ExportedHandle>,
}

/// One handle of physical memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExportedHandle {
    /// What leads to it, the same for each block that it has memory of. The allocator closes its
    /// own when it releases the handle; the memory stays taken while any is open.
    pub descriptor: Arc<Descriptor>,
    /// Its size.
    pub bytes: u64,
}

/// Why memory was not given to another process, or not taken from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The address is not that of a live block.
    #[error(transparent)]
    Block(#[from] FreeError),
    /// The block is one allocation of the driver, or part of one.
    #[error(
        "the block at {address:#x} is plain memory, which has no descriptors; share it by \
         cudaIpcGetMemHandle"
    )]
    Plain {
        /// The address.
        address: u64,
    },
    /// The driver's own memory pools hold the memory (backend `async`).
    #[error("with backend:async the driver's memory pools hold the memory; use backend:vmm")]
    DriversOwn,
    /// Memory of the device was not made for other processes.
    #[error(
        "{error}: memory of this device is not made to be shared: the option shareable:false says \
         so, or the driver cannot share it (WSL) or is older than CUDA 12.1; say shareable:true, \
         or use backend:malloc and its cudaIpcGetMemHandle"
    )]
    NotShareable {
        /// The refusal.
        error: DriverError,
    },
    /// The sizes are not those of handles.
    #[error("handles have sizes, each a multiple of {granularity_bytes} bytes above 0")]
    Sizes {
        /// The device's granularity.
        granularity_bytes: u64,
    },
    /// No memory was imported there.
    #[error("no memory of another process is open at {address:#x}: never, or closed already")]
    NotImported {
        /// The address.
        address: u64,
    },
    /// The driver failed.
    #[error("{error}{}", advice(error.call))]
    Driver {
        /// The failed call.
        error: DriverError,
    },
}

/// What may help where a call failed that makes a descriptor or takes one.
const fn advice(call: Call) -> &'static str {
    match call {
        Call::Export | Call::Import => {
            "; each handle takes a descriptor: if this process has none left, raise `ulimit -n`"
        }
        _ => "",
    }
}
