//! [`MemoryError`]: why an engine did not get what it asked for.

use drystone::driver::DriverError;
use drystone::{AllocateError, BuildError, FreeError, RecordStreamError, ReserveError};
use drystone_cuda::OpenError;

/// Why an engine did not get its memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The device could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The options ask for what the device has not.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The context is not its device's primary one, which is where the allocator's memory is.
    #[error("the context of device {ordinal} is not its primary one; make it by CudaContext::new")]
    NotPrimary {
        /// The device.
        ordinal: usize,
    },
    /// The stream belongs to another device than the memory.
    #[error("the stream is one of device {stream_ordinal}, the memory one of device {ordinal}")]
    OtherDevice {
        /// The stream's device.
        stream_ordinal: usize,
        /// The memory's device.
        ordinal: usize,
    },
    /// A slice or a graph's pool is not of the [`DeviceMemory`](crate::DeviceMemory) it is used
    /// with.
    #[error("that is of another DeviceMemory, of device {ordinal}")]
    OtherMemory {
        /// The device whose memory it is.
        ordinal: usize,
    },
    /// cudarc tracks uses by events, which a captured stream cannot wait for.
    #[error(
        "cudarc tracks uses by events, which no captured stream can wait for: order the streams \
         yourself and call CudaContext::disable_event_tracking before the first capture"
    )]
    TracksEvents,
    /// The stream is captured already.
    #[error("the stream is being captured already")]
    Captured,
    /// No memory: all figures are in the message.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// No addresses were reserved.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// Somebody has freed the memory by its address.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// The allocator refuses to note a use.
    #[error(transparent)]
    RecordStream(#[from] RecordStreamError),
    /// A driver call of the allocator failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A call of cudarc's failed.
    #[error(transparent)]
    Cuda(#[from] cudarc::driver::DriverError),
}
