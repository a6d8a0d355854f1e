//! Errors of the heap, one enum per operation. A call that fails has changed nothing.

use std::fmt;

use crate::id::{PoolId, StreamId};
use crate::size::SizeError;

/// An invariant broke earlier: a defect of the library. What is held may be wrong since, so that no
/// memory is given out or taken back any more. It can still be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poisoned;

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an earlier defect of the library broke the allocator, which gives and takes no memory \
             any more: report the defect, and restart the process",
        )
    }
}

/// Each error of an operation has a variant for it.
macro_rules! may_be_poisoned {
    ($($error:ident)*) => { $(
        impl From<Poisoned> for $error {
            fn from(_: Poisoned) -> Self {
                $error::Poisoned
            }
        }
    )* };
}

may_be_poisoned! { StreamError RequestError FreeError RecordStreamError }

/// Why a stream was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// Never added, or retired.
    Unknown {
        /// The id given.
        stream: StreamId,
    },
    /// See [`Poisoned`].
    Poisoned,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StreamError::Unknown { stream } = self else { return Poisoned.fmt(f) };
        write!(f, "stream {}:{} was never added or is retired", stream.index(), stream.generation)
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The size is none a block can have.
    Size(SizeError),
    /// The stream is not one of the heap's.
    Stream(StreamError),
    /// The pool was never added, or is released.
    UnknownPool {
        /// The id given.
        pool: PoolId,
    },
    /// Growing would take the heap above its limit. Trimming may help.
    Limit {
        /// Bytes the growth would add to the reserved bytes.
        bytes: u64,
        /// Reserved bytes now, with those of growth that is under way.
        reserved_bytes: u64,
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// The device has less left than growing would take. Trimming may help.
    Device {
        /// Bytes the growth would create.
        bytes: u64,
        /// What the device has left, in bytes.
        left_bytes: u64,
    },
    /// See [`Poisoned`].
    Poisoned,
}

impl From<SizeError> for RequestError {
    fn from(error: SizeError) -> Self {
        RequestError::Size(error)
    }
}

impl From<StreamError> for RequestError {
    fn from(error: StreamError) -> Self {
        RequestError::Stream(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Size(error) => error.fmt(f),
            RequestError::Stream(error) => error.fmt(f),
            RequestError::UnknownPool { pool } => {
                write!(
                    f,
                    "pool {}:{} was never added or is released",
                    pool.index(),
                    pool.generation
                )
            }
            RequestError::Limit { bytes, reserved_bytes, limit_bytes } => write!(
                f,
                "{bytes} more bytes than the {reserved_bytes} reserved pass the limit of \
                 {limit_bytes} bytes"
            ),
            RequestError::Device { bytes, left_bytes } => {
                write!(f, "{bytes} more bytes than the {left_bytes} that the device has left")
            }
            RequestError::Poisoned => Poisoned.fmt(f),
        }
    }
}

/// Why a free was refused (promise P3: the heap is unchanged).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeError {
    /// No segment holds the address.
    Unknown {
        /// The address given.
        address: u64,
    },
    /// The address lies inside a block that starts elsewhere.
    Interior {
        /// The address given.
        address: u64,
        /// Where its block starts.
        block_address: u64,
        /// The block's size in bytes.
        block_bytes: u64,
    },
    /// The block there was freed already. Also said of an address in or after a large block that
    /// thousands of others lie before.
    AlreadyFree {
        /// The address given.
        address: u64,
    },
    /// The block there was allocated with another size.
    WrongSize {
        /// The address given.
        address: u64,
        /// The size given, in bytes.
        given_bytes: u64,
        /// The size it was allocated with, in bytes.
        requested_bytes: u64,
    },
    /// See [`Poisoned`].
    Poisoned,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::Unknown { address } => {
                write!(f, "{address:#x} is not an address of this allocator")
            }
            FreeError::Interior { address, block_address, block_bytes } => write!(
                f,
                "{address:#x} lies inside the block of {block_bytes} bytes at {block_address:#x}"
            ),
            FreeError::AlreadyFree { address } => {
                write!(f, "{address:#x} is free already")
            }
            FreeError::WrongSize { address, given_bytes, requested_bytes } => write!(
                f,
                "the block at {address:#x} was allocated with {requested_bytes} bytes, not \
                 {given_bytes}"
            ),
            FreeError::Poisoned => Poisoned.fmt(f),
        }
    }
}

/// Why a use on another stream was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordStreamError {
    /// The address is not that of a live block.
    Block(FreeError),
    /// The stream is not one of the heap's.
    Stream(StreamError),
    /// See [`Poisoned`].
    Poisoned,
}

impl From<FreeError> for RecordStreamError {
    fn from(error: FreeError) -> Self {
        RecordStreamError::Block(error)
    }
}

impl From<StreamError> for RecordStreamError {
    fn from(error: StreamError) -> Self {
        RecordStreamError::Stream(error)
    }
}

impl fmt::Display for RecordStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordStreamError::Block(error) => error.fmt(f),
            RecordStreamError::Stream(error) => error.fmt(f),
            RecordStreamError::Poisoned => Poisoned.fmt(f),
        }
    }
}

impl std::error::Error for Poisoned {}
impl std::error::Error for RecordStreamError {}
impl std::error::Error for StreamError {}
impl std::error::Error for RequestError {}
impl std::error::Error for FreeError {}
