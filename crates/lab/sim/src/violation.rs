//! [`Violation`]: something that a real device would let pass and pay for later, or a call that a
//! correct caller never makes. Each text says who, where and why.

use drystone_driver::{Call, ErrorCode, Stream, StreamUid};

/// What the oracle, or a strict device, reports. Addresses and sizes are in bytes; `earlier` is the
/// stream whose use may still run.
#[expect(missing_docs, reason = "the text of a violation says what each of its figures is")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A new block has physical bytes in common with a live one, through whatever mapping.
    #[error(
        "block {address:#x} (+{bytes}) shares {shared_bytes} physical bytes with the live block \
         {other_address:#x} (+{other_bytes})"
    )]
    Overlap { address: u64, bytes: u64, other_address: u64, other_bytes: u64, shared_bytes: u64 },
    /// Physical bytes last used on one stream were handed to another that is not ordered after
    /// that use.
    #[error(
        "block {address:#x} (+{bytes}) on stream {} reuses memory that stream {} may still be \
         using", stream.0, earlier.0
    )]
    UnorderedReuse { address: u64, bytes: u64, stream: StreamUid, earlier: StreamUid },
    /// Stream-ordered memory was freed on a stream that is not ordered after all its uses.
    #[error(
        "{address:#x} (+{bytes}) was freed in the order of stream {}, which has not waited for \
         its use on stream {}", stream.0, earlier.0
    )]
    UnorderedFree { address: u64, bytes: u64, stream: StreamUid, earlier: StreamUid },
    /// Memory under a live block was taken away.
    #[error(
        "{} of {address:#x} (+{bytes}) takes away live block {block_address:#x}",
        call.cuda_name()
    )]
    LiveMemoryGone { call: Call, address: u64, bytes: u64, block_address: u64 },
    /// Addresses were unmapped while their last use was not known to be complete.
    #[error(
        "{address:#x} (+{bytes}) was unmapped before the host knew that its use on stream {} was \
         complete", earlier.0
    )]
    UnmapInFlight { address: u64, bytes: u64, earlier: StreamUid },
    /// Memory was copied before the host knew that its last use was complete.
    #[error(
        "{address:#x} (+{bytes}) was copied before the host knew that its use on stream {} was \
         complete", earlier.0
    )]
    CopyInFlight { address: u64, bytes: u64, earlier: StreamUid },
    /// Memory was unmapped that a copy reads or writes that was not waited for.
    #[error("{address:#x} (+{bytes}) was unmapped before a copy was known to be complete")]
    UnmapInCopy { address: u64, bytes: u64 },
    /// The memory behind a live block is not that with its bytes any more.
    #[error("block {address:#x} (+{bytes}) leads to memory that does not have its bytes")]
    LostBytes { address: u64, bytes: u64 },
    /// The thread that holds a stream waits for it: forever.
    #[error("stream handle {:#x} is launched on by the thread that holds it", stream.0)]
    HeldByItself { stream: Stream },
    /// Live memory was unmapped while streams stood still, but not one that uses it.
    #[error(
        "block {address:#x} (+{bytes}) lost its memory while stream {}, which uses it, went on",
        stream.0
    )]
    NotHeld { address: u64, bytes: u64, stream: StreamUid },
    /// Memory was unmapped that somebody reaches by its address past the driver's streams.
    #[error("{address:#x} (+{bytes}) was unmapped, of which some is registered")]
    RegisteredMemoryGone { address: u64, bytes: u64 },
    /// The thread that holds streams makes a call that may wait for them: forever.
    #[error("{function} was called by the thread that holds streams, which it may wait for")]
    WaitsForItself { function: &'static str },
    /// A block lies, at least in part, where a kernel would fault.
    #[error("block {address:#x} (+{bytes}) is not wholly in memory that kernels can reach")]
    NotAccessible { address: u64, bytes: u64 },
    /// A block does not start on a multiple of 512 bytes.
    #[error("block {address:#x} is not aligned to 512 bytes")]
    Misaligned { address: u64 },
    /// A use or a free of an address at which no live block starts.
    #[error("no live block starts at {address:#x}")]
    UnknownBlock { address: u64 },
    /// A block was used on a stream that does not exist.
    #[error("block {address:#x} was used on stream handle {:#x}, which is nobody's", stream.0)]
    UnknownStream { address: u64, stream: Stream },
    /// A driver call after process exit began or in a forked child.
    #[error("{} was called when no call is allowed any more: {code}", call.cuda_name())]
    CallAfterEnd { call: Call, code: ErrorCode },
    /// A call with the handle of a stream, an event or a memory pool that is gone, or of nobody's.
    #[error(
        "{} was called with the handle of a stream, an event or a memory pool that is gone",
        call.cuda_name()
    )]
    StaleHandle { call: Call },
    /// A kernel that may be on the device since before a write reads it at another address.
    #[error(
        "block {address:#x} (+{bytes}) on stream {} serves a kernel that may run beside the one \
         before it, which used the same memory at another address", stream.0
    )]
    EarlyGrid { address: u64, bytes: u64, stream: StreamUid },
    /// A kernel of another device used memory that this device has not opened to it.
    #[error("{address:#x} (+{bytes}) was used by device {peer}, to which it is not open")]
    NotOpenToPeer { address: u64, bytes: u64, peer: u32 },
    /// The host has stopped: the device shares its memory, and nearly all of it was taken.
    #[error("the host has stopped: {left_bytes} bytes of its memory were available")]
    HostStopped { left_bytes: u64 },
    /// A strict device refused a call that a correct caller never makes.
    #[error("{} was refused: {code}", call.cuda_name())]
    IllegalCall { call: Call, code: ErrorCode },
    /// A strict device refused a function beside the driver trait, since a capture forbids it.
    #[error("{function} was refused: a capture forbids it")]
    ForbiddenCall { function: &'static str },
}

/// How many violations are kept; later ones are only counted. One bug can produce millions.
const KEPT: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct ViolationLog {
    kept: Vec<Violation>,
    count: u64,
    hook: Option<fn(&Violation)>,
}

impl ViolationLog {
    pub(crate) fn new(hook: Option<fn(&Violation)>) -> Self {
        Self { hook, ..Self::default() }
    }

    pub(crate) fn add(&mut self, violation: Violation) {
        self.count += 1;
        if let Some(hook) = self.hook {
            hook(&violation);
        }
        if self.kept.len() < KEPT {
            self.kept.push(violation);
        }
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn kept(&self) -> &[Violation] {
        &self.kept
    }

    pub(crate) fn take(&mut self) -> Vec<Violation> {
        self.count = 0;
        std::mem::take(&mut self.kept)
    }
}

/// Whether a real driver follows the handles of this call without a look at them.
pub(crate) const fn needs_live_handles(call: Call) -> bool {
    !matches!(call, Call::Release | Call::Map)
}

/// Whether a refusal shows a mistake of the caller. Running out of memory does not, and neither
/// does a stream that somebody else destroyed meanwhile, on a device that looks at handles.
pub(crate) const fn is_callers_mistake(call: Call, code: ErrorCode) -> bool {
    match code {
        ErrorCode::InvalidValue | ErrorCode::CaptureUnsupported | ErrorCode::CapturedEvent => true,
        ErrorCode::InvalidHandle => !matches!(
            call,
            Call::Record
                | Call::Wait
                | Call::SynchronizeStream
                | Call::StreamUid
                | Call::CaptureStatus
                | Call::MallocAsync
                | Call::FreeAsync
        ),
        // The capture errors that have no name of their own.
        ErrorCode::Other(number) => number >= 900 && number < 910,
        _ => false,
    }
}
