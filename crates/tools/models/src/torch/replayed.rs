//! [`Replay`]: the model behind the replay engine's trait, on a simulated device.
//!
//! Invariant: only requests can be refused; where the driver fails another call, which PyTorch
//! would throw an exception for, the first failure is kept and the replay goes on.

use drystone_driver::{Driver, DriverError, Stream};
use drystone_sim::SimDevice;
use drystone_trace::replay::{DriverCost, Layout, Refusal, Replayed, Usage};

use super::allocator::Allocator;
use super::config::Config;
use super::stats::Stats;
use crate::work::{self, works_on_device};

/// PyTorch's allocator on a simulated device.
#[derive(Debug)]
pub struct Replay {
    device: SimDevice,
    streams: Vec<Stream>,
    allocator: Allocator,
    failure: Option<DriverError>,
}

impl Replay {
    /// A fresh allocator for a trace with that many streams and pools. Streams beyond the default
    /// one are created on the device.
    pub fn new(config: Config, device: &SimDevice, streams: u16, pools: u8) -> Self {
        let streams = work::streams(device, streams);
        let total_bytes = device.info().total_bytes;
        let allocator = Allocator::new(config, streams.clone(), pools, total_bytes);
        Self { device: device.clone(), streams, allocator, failure: None }
    }

    /// The allocator's own figures.
    pub fn stats(&self) -> Stats {
        self.allocator.stats()
    }

    /// The first driver call that failed where nothing could be refused.
    pub fn failure(&self) -> Option<&DriverError> {
        self.failure.as_ref()
    }

    fn note(&mut self, outcome: Result<(), DriverError>) {
        if let Err(error) = outcome {
            self.failure.get_or_insert(error);
        }
    }
}

impl Replayed for Replay {
    works_on_device!(streams);

    fn allocate(&mut self, bytes: u64, stream: u16, pool: u8) -> Result<u64, Refusal> {
        self.allocator
            .allocate(&self.device, bytes, stream, pool)
            .map_err(|error| Refusal { message: error.to_string() })
    }

    fn free(&mut self, address: u64) {
        let outcome = self.allocator.free(&self.device, address);
        self.note(outcome);
    }

    fn record_stream(&mut self, address: u64, stream: u16) {
        self.allocator.record_stream(address, stream);
    }

    fn wait_for_device(&mut self) {
        self.device.finish_all();
    }

    fn begin_capture(&mut self, stream: u16, _: u8) {
        self.allocator.begin_capture();
        work::begin_capture(&self.device, self.streams[stream as usize]);
    }

    fn end_capture(&mut self, stream: u16, _: u8) {
        // Broken where memory ran out in it: PyTorch asks then how much there is, unguarded.
        let _ = work::end_capture(&self.device, self.streams[stream as usize]);
        self.allocator.end_capture();
    }

    fn empty_cache(&mut self) {
        let outcome = self.allocator.empty_cache(&self.device);
        self.note(outcome);
    }

    fn usage(&self) -> Usage {
        let stats = self.allocator.stats();
        Usage { allocated_bytes: stats.allocated_bytes, reserved_bytes: stats.reserved_bytes }
    }

    fn driver_cost(&self) -> DriverCost {
        DriverCost { calls: self.device.calls(), time_us: self.device.driver_time_us() }
    }

    fn layout(&self) -> Option<Layout> {
        Some(self.allocator.layout())
    }
}
