//! [`Program`]: the program around an allocator. It tells the device's oracle of every block it
//! gets, uses and gives back, so that every test is also a test of reuse and overlap.

use std::sync::Arc;

use drystone::driver::{Driver, Stream};
use drystone::{AllocateError, Allocator, Backend, FreeError, Options, PoolId, StreamId};

use crate::device::TestDevice;

/// An allocator on a device.
pub struct Program {
    /// Before its device, which another test takes and resets once it is given up.
    pub allocator: Allocator,
    pub device: Arc<dyn TestDevice>,
    /// The most that one small block can keep from going back to the device: a granule on each
    /// side, or the largest plain segment that blocks share.
    pub slack_bytes: u64,
}

/// A stream, as the device and as the allocator know it.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    pub stream: Stream,
    pub id: StreamId,
}

/// A live block.
#[derive(Debug)]
#[must_use = "a block has to be given back"]
pub struct Block {
    pub address: u64,
    pub bytes: u64,
    pub requested: u64,
}

impl Block {
    pub fn overlaps(&self, other: &Block) -> bool {
        self.address < other.address + other.bytes && other.address < self.address + self.bytes
    }
}

impl Program {
    pub fn new(device: Arc<dyn TestDevice>, options: Options) -> Self {
        let driver = device.driver();
        Self::with_driver(device, driver, options)
    }

    /// A program whose allocator sees the device through another driver.
    pub fn with_driver(
        device: Arc<dyn TestDevice>,
        driver: Arc<dyn Driver>,
        options: Options,
    ) -> Self {
        let allocator = Allocator::new(driver, &options).unwrap();
        let slack_bytes = match options.backend {
            Some(Backend::Malloc | Backend::Async) => u64::MAX / 1024,
            _ => 2 * options.granule_bytes,
        };
        Self { device, allocator, slack_bytes }
    }

    /// The default stream.
    pub fn default_lane(&self) -> Lane {
        self.lane_of(Stream::DEFAULT)
    }

    /// A new stream.
    pub fn lane(&self) -> Lane {
        self.lane_of(self.device.create_stream())
    }

    /// A new stream of which nobody says when it is destroyed.
    pub fn passing_lane(&self) -> Lane {
        let stream = self.device.create_stream();
        Lane { stream, id: self.allocator.add_passing_stream(stream).unwrap() }
    }

    pub fn lane_of(&self, stream: Stream) -> Lane {
        Lane { stream, id: self.allocator.add_stream(stream).unwrap() }
    }

    pub fn try_allocate_in(
        &self,
        pool: PoolId,
        lane: Lane,
        requested: u64,
    ) -> Result<Block, AllocateError> {
        let grant = self.allocator.allocate_raw(pool, lane.id, requested)?;
        assert!(grant.bytes >= requested, "{requested} bytes asked for, {} given", grant.bytes);
        self.device.handed_out(grant.address, requested, lane.stream);
        Ok(Block { address: grant.address, bytes: grant.bytes, requested })
    }

    pub fn try_allocate(&self, lane: Lane, requested: u64) -> Result<Block, AllocateError> {
        self.try_allocate_in(PoolId::DEFAULT, lane, requested)
    }

    #[track_caller]
    pub fn allocate(&self, lane: Lane, requested: u64) -> Block {
        self.try_allocate(lane, requested).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A kernel on another stream uses the block, and the allocator is told.
    pub fn use_on(&self, block: &Block, lane: Lane) {
        self.device.used(block.address, lane.stream);
        self.allocator.record_stream(block.address, lane.id).unwrap();
    }

    pub fn free(&self, block: Block) {
        self.try_free(&block).unwrap();
    }

    pub fn try_free(&self, block: &Block) -> Result<(), FreeError> {
        self.device.taken_back(block.address);
        self.allocator.free(block.address)
    }

    /// Reserved bytes.
    pub fn reserved(&self) -> u64 {
        self.allocator.stats().all.reserved_bytes.current
    }

    /// Every invariant holds, and nothing illegal was done.
    #[track_caller]
    pub fn check(&self) {
        if let Err(broken) = self.allocator.check() {
            panic!("{broken}");
        }
        if let Err(finding) = self.device.verdict() {
            panic!("{finding}");
        }
    }

    /// Ends the program: everything has been given back, or `left_over` is.
    #[track_caller]
    pub fn end(self) {
        self.check();
        let Self { device, allocator, .. } = self;
        device.end_graphs();
        drop(allocator);
        if let Err(finding) = device.verdict() {
            panic!("at teardown: {finding}");
        }
        if let Err(left) = device.emptiness() {
            panic!("left on the device: {left}");
        }
    }
}
