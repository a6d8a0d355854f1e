//! Errors of the heap, one enum per operation. A call that fails has changed nothing.

use crate::id::{PoolId, StreamId};
use crate::size::SizeError;

/// An invariant broke earlier: a defect of the library. What is held may be wrong since, so that no
/// memory is given out or taken back any more. It can still be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an earlier defect of the library broke the allocator, which gives and takes no memory any \
     more: report the defect, and restart the process"
)]
pub struct Poisoned;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// Never added, or retired.
    #[error("stream {}:{} was never added or is retired", stream.index(), stream.generation)]
    Unknown {
        /// The id given.
        stream: StreamId,
    },
    /// See [`Poisoned`].
    #[error("{}", Poisoned)]
    Poisoned,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The size is none a block can have.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The stream is not one of the heap's.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The pool was never added, or is released.
    #[error("pool {}:{} was never added or is released", pool.index(), pool.generation)]
    UnknownPool {
        /// The id given.
        pool: PoolId,
    },
    /// Growing would take the heap above its limit. Trimming may help.
    #[error(
        "{bytes} more bytes than the {reserved_bytes} reserved pass the limit of {limit_bytes} \
         bytes"
    )]
    Limit {
        /// Bytes the growth would add to the reserved bytes.
        bytes: u64,
        /// Reserved bytes now, with those of growth that is under way.
        reserved_bytes: u64,
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// The device has less left than growing would take. Trimming may help.
    #[error("{bytes} more bytes than the {left_bytes} that the device has left")]
    Device {
        /// Bytes the growth would create.
        bytes: u64,
        /// What the device has left, in bytes.
        left_bytes: u64,
    },
    /// A block that grows in place would pass the end of its room.
    #[error("{bytes} more bytes pass the end of a room of {room_bytes} bytes")]
    Room {
        /// Bytes it would grow by.
        bytes: u64,
        /// Its room, in bytes.
        room_bytes: u64,
    },
    /// What a block that grows in place gave up, other streams still use there. Waiting helps.
    #[error("other streams still use what was given up at {address:#x}: wait first")]
    StillUsed {
        /// Where that starts.
        address: u64,
    },
    /// Somebody else has freed a block that grows in place.
    #[error("what grows at {address:#x} was freed by its address: drop it instead")]
    Freed {
        /// Where it started.
        address: u64,
    },
    /// See [`Poisoned`].
    #[error("{}", Poisoned)]
    Poisoned,
}

/// Why a free was refused (promise P3: the heap is unchanged).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// No segment holds the address.
    #[error("{address:#x} is not an address of this allocator")]
    Unknown {
        /// The address given.
        address: u64,
    },
    /// The address lies inside a block that starts elsewhere.
    #[error("{address:#x} lies inside the block of {block_bytes} bytes at {block_address:#x}")]
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
    #[error("{address:#x} is free already")]
    AlreadyFree {
        /// The address given.
        address: u64,
    },
    /// The block there was allocated with another size.
    #[error(
        "the block at {address:#x} was allocated with {requested_bytes} bytes, not {given_bytes}"
    )]
    WrongSize {
        /// The address given.
        address: u64,
        /// The size given, in bytes.
        given_bytes: u64,
        /// The size it was allocated with, in bytes.
        requested_bytes: u64,
    },
    /// See [`Poisoned`].
    #[error("{}", Poisoned)]
    Poisoned,
}

/// Why a use on another stream was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordStreamError {
    /// The address is not that of a live block.
    #[error(transparent)]
    Block(#[from] FreeError),
    /// The stream is not one of the heap's.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// See [`Poisoned`].
    #[error("{}", Poisoned)]
    Poisoned,
}
