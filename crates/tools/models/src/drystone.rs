//! Drystone itself behind the replay engine's trait, on a simulated device.
//!
//! Invariant: what is measured is the library as programs use it, its lock included; only streams
//! and pools are looked up by the trace's dense numbers.

use ::drystone::{
    AllocateError, Allocator, BlockState, BuildError, Options, PoolId, SegmentKind, SegmentView,
    SizeClass, StreamId,
};
use drystone_driver::{DriverError, Stream};
use drystone_sim::SimDevice;
use drystone_trace::replay::{self, DriverCost, Layout, Refusal, Remaps, Replayed, Usage};
use std::sync::Arc;

use crate::work::{self, works_on_device};

/// Drystone on a simulated device.
#[derive(Debug)]
pub struct Replay {
    device: SimDevice,
    allocator: Allocator,
    device_streams: Vec<Stream>,
    streams: Vec<StreamId>,
    pools: Vec<PoolId>,
}

/// Why no replay could be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// The device cannot do what the options ask.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The device refused a stream.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl Replay {
    /// A fresh allocator for a trace with that many streams and pools.
    /// Errors: the device cannot do what the options ask.
    pub fn new(
        options: &Options,
        device: &SimDevice,
        streams: u16,
        pools: u8,
    ) -> Result<Self, SetUpError> {
        let allocator = Allocator::new(Arc::new(device.clone()), options)?;
        let device_streams = work::streams(device, streams);
        let streams =
            device_streams.iter().map(|&s| allocator.add_stream(s)).collect::<Result<_, _>>()?;
        // A trace has no other streams.
        allocator.know_all_streams(|_, run| run(Vec::new()));
        let private = (1..pools).map(|_| allocator.add_pool());
        let pools = std::iter::once(PoolId::DEFAULT).chain(private).collect();
        Ok(Self { device: device.clone(), allocator, device_streams, streams, pools })
    }

    /// The allocator, for its statistics.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }
}

impl Replayed for Replay {
    works_on_device!(device_streams);

    #[inline]
    fn allocate(&mut self, bytes: u64, stream: u16, pool: u8) -> Result<u64, Refusal> {
        let (stream, pool) = (self.streams[stream as usize], self.pools[pool as usize]);
        match self.allocator.allocate_raw(pool, stream, bytes) {
            Ok(grant) => Ok(grant.address),
            Err(error) => Err(refusal(&error)),
        }
    }

    #[inline]
    fn free(&mut self, address: u64) {
        let freed = self.allocator.free(address);
        debug_assert_eq!(freed, Ok(()));
    }

    fn record_stream(&mut self, address: u64, stream: u16) {
        let recorded = self.allocator.record_stream(address, self.streams[stream as usize]);
        debug_assert_eq!(recorded, Ok(()));
    }

    fn wait_for_device(&mut self) {
        self.device.finish_all();
    }

    /// In the order in which PyTorch has it: the pool is announced, then the capture begins.
    fn begin_capture(&mut self, stream: u16, pool: u8) {
        let expected = self.allocator.expect_capture(self.pools[pool as usize]);
        debug_assert_eq!(expected, Ok(()));
        work::begin_capture(&self.device, self.device_streams[stream as usize]);
    }

    fn end_capture(&mut self, stream: u16, pool: u8) {
        let ended = work::end_capture(&self.device, self.device_streams[stream as usize]);
        debug_assert_eq!(ended, Ok(()));
        self.allocator.end_captures(self.pools[pool as usize]);
    }

    fn empty_cache(&mut self) {
        // A trace records that the cache was emptied, not what came of it: neither do we.
        let _ = self.allocator.trim();
    }

    #[inline]
    fn usage(&self) -> Usage {
        let (allocated_bytes, reserved_bytes) = self.allocator.allocated_and_reserved_bytes();
        Usage { allocated_bytes, reserved_bytes }
    }

    fn driver_cost(&self) -> DriverCost {
        DriverCost { calls: self.device.calls(), time_us: self.device.driver_time_us() }
    }

    fn remaps(&self) -> Remaps {
        let (stats, remapped) = (self.allocator.stats(), self.allocator.remap_stats());
        Remaps {
            granule_remaps: stats.granule_remaps,
            remapped_granules: remapped.remapped_granules,
            aliases: remapped.aliases,
            alias_bytes: remapped.alias_bytes(),
            moves: stats.moves,
            moved_bytes: stats.moved_bytes,
        }
    }

    fn layout(&self) -> Option<Layout> {
        let segments = self.allocator.snapshot().iter().map(segment_layout).collect();
        Some(Layout { segments })
    }
}

#[cold]
fn refusal(error: &AllocateError) -> Refusal {
    Refusal { message: error.to_string() }
}

fn segment_layout(segment: &SegmentView) -> replay::LayoutSegment {
    let blocks = segment.blocks.iter().map(|block| replay::LayoutBlock {
        address: block.address,
        bytes: block.bytes,
        requested_bytes: block.requested_bytes,
        stream: block.stream as u16,
        state: match block.state {
            BlockState::Live => replay::BlockState::Live,
            BlockState::Pending | BlockState::Quarantined => replay::BlockState::Pending,
            BlockState::Free | BlockState::Claimed => replay::BlockState::Free,
            _ => replay::BlockState::Unmapped,
        },
    });
    replay::LayoutSegment {
        address: segment.address,
        bytes: segment.bytes,
        stream: segment.stream as u16,
        pool: segment.pool as u8,
        is_small: segment.class == SizeClass::Small,
        is_expandable: segment.kind == SegmentKind::Mapped,
        blocks: blocks.collect(),
    }
}
