//! Plans: what to do to the device, as plain data.
//!
//! A plan is made by the heap, carried out by its holder with the heap unlocked, and handed back
//! exactly once: to [`Heap::commit`](crate::Heap::commit) when every step is done, or to
//! [`Heap::abandon`](crate::Heap::abandon) with the number of leading steps still in effect. In
//! between, the blocks and granules it speaks of are claimed and nobody else's.

use std::ops::Range;

use crate::fence::Fence;
use crate::headroom::Look;
use crate::id::{GranuleId, ListIx, PoolId, SegmentIx, StreamId};
use crate::space::Granted;
use crate::space::block::BlockIndex;
use crate::space::unmapped::GrowthPoint;

/// One thing to do to the device. Sizes and addresses are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reserve addresses; the plan's commit wants the start.
    Reserve {
        /// Size of the range.
        bytes: u64,
        /// Alignment of its start.
        alignment: u64,
    },
    /// Give a reserved range back.
    Unreserve {
        /// Start of the range.
        address: u64,
        /// Size of the range.
        bytes: u64,
    },
    /// Create physical memory: a handle of one granule, or of several.
    Create {
        /// The first of its granules, which names it from now on.
        granule: GranuleId,
        /// Its size.
        bytes: u64,
        /// Whose memory it is.
        place: Place,
    },
    /// Release physical memory that is mapped nowhere.
    Release {
        /// Its name.
        granule: GranuleId,
    },
    /// Map a handle.
    Map {
        /// Where.
        address: u64,
        /// The handle's size.
        bytes: u64,
        /// Its name.
        granule: GranuleId,
    },
    /// Open a mapped range to the device.
    SetAccess {
        /// Start of the range.
        address: u64,
        /// Size of the range.
        bytes: u64,
    },
    /// Unmap a range; its last use is known to be complete.
    Unmap {
        /// Start of the range.
        address: u64,
        /// Size of the range.
        bytes: u64,
    },
    /// Map a handle where nobody sees it yet, to be written before it is mapped at home. It is
    /// unmapped there again once the plan is over.
    Stage {
        /// Its name.
        granule: GranuleId,
        /// Its size.
        bytes: u64,
    },
    /// Bring every stream to a stop that may use memory, once it has done what it was given before.
    Hold,
    /// Begin to copy what is at an address into the whole of a staged handle.
    Copy {
        /// From where.
        address: u64,
        /// The handle's size.
        bytes: u64,
        /// The handle.
        granule: GranuleId,
    },
    /// Begin to copy what is at an address to another one, where nothing is in use.
    CopyTo {
        /// From where.
        address: u64,
        /// How much.
        bytes: u64,
        /// To where.
        to: u64,
    },
    /// Wait, on the host, until all that was begun to be copied is.
    FinishCopies,
    /// Unmap a handle whose copies are about to take its place; undone, it is mapped there again.
    Lift {
        /// Where it is mapped.
        address: u64,
        /// Its size.
        bytes: u64,
        /// Its name.
        granule: GranuleId,
    },
    /// Let the streams go on.
    LetGo,
    /// Allocate plain memory; the plan's commit wants the address.
    Malloc {
        /// Size.
        bytes: u64,
    },
    /// Free plain memory.
    Free {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
    },
    /// Record a fence.
    Record {
        /// The fence.
        fence: Fence,
    },
    /// Make a stream wait, on the device, for a fence or for any later one of the same stream.
    Wait {
        /// The stream that waits.
        stream: StreamId,
        /// What it waits for.
        fence: Fence,
    },
    /// Wait, on the host, until the device is idle.
    SynchronizeDevice,
}

/// Whose memory a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The device's.
    Device,
    /// The host's, which the device reads and writes over the bus. Live memory is there only while
    /// the device makes room for it.
    Host,
}

/// Steps to carry out in order, and what the heap will make of them.
#[derive(Debug)]
#[must_use = "a plan holds blocks until it is committed or abandoned"]
pub struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) intent: Intent,
}

impl Plan {
    /// What to do, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether steps that were done are to be undone, in reverse order, when a later one fails.
    /// Otherwise they stand: what was given back is worth keeping, and a recorded fence cannot be
    /// taken back.
    pub const fn is_all_or_nothing(&self) -> bool {
        !matches!(self.intent, Intent::Trim { .. } | Intent::Order { .. } | Intent::Free { .. })
    }
}

/// What a committed plan led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The request is served.
    Granted(Granted),
    /// The way is free: make the request again.
    Prepared,
    /// Fences are recorded: see which have passed, then make the request again.
    Recorded,
    /// Nothing more to do.
    Done,
}

/// The fences that steps record.
pub(crate) fn recorded(steps: &[Step]) -> impl Iterator<Item = Fence> + '_ {
    steps.iter().filter_map(|step| match *step {
        Step::Record { fence } => Some(fence),
        _ => None,
    })
}

/// The sizes of the handles that steps create, in bytes.
pub(crate) fn created(steps: &[Step]) -> impl Iterator<Item = u64> + '_ {
    steps.iter().filter_map(|step| match *step {
        Step::Create { bytes, .. } => Some(bytes),
        _ => None,
    })
}

/// How many bytes steps copy.
pub(crate) fn copied_bytes(steps: &[Step]) -> u64 {
    let copied = steps.iter().filter_map(|step| match *step {
        Step::Copy { bytes, .. } | Step::CopyTo { bytes, .. } => Some(bytes),
        _ => None,
    });
    copied.sum()
}

/// Which free memory may serve a request before it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reuse {
    /// Its own free list, and memory that nobody uses any more: for streams under capture.
    OwnStream,
    /// Also other streams' blocks, if ordered before this stream already.
    Ordered,
    /// Also other streams' blocks that are to be ordered first: by a wait on the device, or by
    /// recording fences that may pass.
    MayWait,
}

/// A request, as one try of it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The free list of the request's pool, class and stream.
    pub(crate) list: ListIx,
    pub(crate) requested: u64,
    pub(crate) bytes: u64,
    /// How far it goes for memory before it grows.
    pub(crate) reuse: Reuse,
    /// What it may know of the device.
    pub(crate) look: Look,
}

impl Request {
    /// One that takes what is ordered before its stream, and goes by what is known.
    pub(crate) const fn of(list: ListIx, requested: u64, bytes: u64) -> Self {
        Self { list, requested, bytes, reuse: Reuse::Ordered, look: Look::Past }
    }
}

/// What a plan is for, with the blocks it claims.
#[derive(Debug)]
pub(crate) enum Intent {
    /// Addresses for a mapped segment, of homes or of windows.
    Reserve { list: ListIx, bytes: u64, is_window: bool },
    /// A plain segment, and a block of it for a request.
    Malloc { request: Request, bytes: u64 },
    /// New memory at home: to serve a request together with the free blocks around it, or just to
    /// be there.
    Grow { request: Option<Request>, point: GrowthPoint, created_bytes: u64, has_large: bool },
    /// Granules of claimed donors, mapped in a window to serve a request.
    Remap { request: Request, window: BlockIndex, donors: Vec<BlockIndex> },
    /// Fences of other streams to record, and those that a stream is to wait for.
    Order { user: StreamId, fences: Vec<Fence> },
    /// Fences that a freed block waits for.
    Free { block: BlockIndex, fences: Vec<Fence> },
    /// A fence of a stream, the last one if it is retired.
    Mark { fence: Fence },
    /// An idle device: every fence issued so far, every quarantined block,
    /// and the pools released by then.
    Synchronize { fences: Vec<Fence>, quarantined: Vec<BlockIndex>, pools: Vec<PoolId> },
    /// What is live in a handle gets other memory behind its addresses.
    Move(Move),
    /// What is live in the pages of a granule gets free memory of another one; these claimed blocks
    /// are what belongs to others from then on.
    Mesh { guests: Vec<Range<u64>>, home: Option<u64>, meshed: Vec<BlockIndex> },
    /// Memory and addresses to give back.
    Trim { releases: Vec<Release> },
}

/// A move of what is live in a handle.
#[derive(Debug)]
pub(crate) struct Move {
    /// What the handle backs, and where its home begins, if that is a window.
    pub(crate) addresses: Range<u64>,
    pub(crate) home: Option<u64>,
    /// What was free beside it, in these claimed blocks, has no memory afterwards.
    pub(crate) emptied: Vec<BlockIndex>,
    pub(crate) created_bytes: u64,
}

/// Something claimed to be given back to the device; what of it was, the steps tell.
#[derive(Debug)]
pub(crate) enum Release {
    /// A block whose backing is unmapped: one step. Its handles are released, or kept to be mapped
    /// elsewhere.
    Backing { block: BlockIndex },
    /// A block of which ranges lead to memory beside its home: those are unmapped.
    Aliases { block: BlockIndex },
    /// A block over a page that shares the granule of another one, which begins at this address and
    /// gets what belongs to the first, in bytes from the start: one step.
    Guest { block: BlockIndex, own: Vec<Range<u64>>, host: u64 },
    /// A plain segment, or the addresses of a mapped one, whose only block is claimed: the step at
    /// this position.
    Segment { segment: SegmentIx, step: usize },
}
