//! Errors of the library: typed, with figures and the way out.

use drystone_core::{Poisoned, RequestError, StreamError};
use drystone_driver::{Call, DriverError, ErrorCode};

use crate::out_of_memory::OutOfMemory;

/// Why an allocation failed. The allocator stays usable, and the same call may be made again,
/// unless the request was refused as [`RequestError::Poisoned`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// There is not enough memory, after everything unused was given back.
    #[error(transparent)]
    OutOfMemory(#[from] Box<OutOfMemory>),
    /// The size, the stream or the pool is none of the allocator's.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The driver failed for another reason than a lack of memory.
    #[error("{error} while allocating {bytes} bytes")]
    Driver {
        /// The failed call.
        error: DriverError,
        /// The size asked for.
        bytes: u64,
    },
}

impl From<StreamError> for AllocateError {
    fn from(error: StreamError) -> Self {
        AllocateError::Request(error.into())
    }
}

impl From<Poisoned> for AllocateError {
    fn from(error: Poisoned) -> Self {
        AllocateError::Request(error.into())
    }
}

/// What a poisoned state machine makes of a call that it would decide on.
pub(crate) fn poisoned(call: Call) -> impl FnOnce(Poisoned) -> DriverError {
    move |_| DriverError::new(call, ErrorCode::Poisoned)
}

/// Why memory was not given back. What was given back before the failure stays so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gave {given_back_bytes} bytes back, then: {error}")]
#[non_exhaustive]
pub struct TrimError {
    /// The failed call.
    pub error: DriverError,
    /// Bytes given back before it.
    pub given_back_bytes: u64,
}

impl TrimError {
    /// A trim that failed before it gave anything back.
    pub(crate) const fn before_anything(error: DriverError) -> Self {
        Self { error, given_back_bytes: 0 }
    }

    /// Whether the device may work again later.
    pub const fn is_final(&self) -> bool {
        self.error.code.is_final()
    }
}

/// Why another device cannot reuse all memory. Its access cannot be taken back: memory of the
/// allocator stays usable, and the same call may be made again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "device {peer_ordinal} was not given access to all memory: {open_bytes} bytes are open to it, \
     {closed_bytes} are not: {error}"
)]
#[non_exhaustive]
pub struct PeerError {
    /// The other device.
    pub peer_ordinal: u32,
    /// The failed call.
    pub error: DriverError,
    /// Mapped bytes that were opened before it failed.
    pub open_bytes: u64,
    /// Mapped bytes that were not.
    pub closed_bytes: u64,
}
