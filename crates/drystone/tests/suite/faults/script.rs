//! [`Script`]: the steps of a scenario, each of which may meet a fault.

use std::collections::BTreeMap;

use drystone::driver::{CaptureMode, ErrorCode};
use drystone::{AllocateError, PoolId, ShareError};
use drystone_sim::FaultMode;

use crate::device::{Fault, FaultyDevice};
use crate::program::{Block, Lane, Program};

type Request = (PoolId, Lane, u64);

pub struct Script<'a> {
    program: &'a Program,
    device: &'a dyn FaultyDevice,
    plan: Option<Fault>,
    blocks: BTreeMap<&'static str, Block>,
    /// Requests that failed under a fault that stays.
    refused: Vec<Request>,
    pools: Vec<PoolId>,
}

impl<'a> Script<'a> {
    pub fn new(program: &'a Program, device: &'a dyn FaultyDevice, plan: Option<Fault>) -> Self {
        if let Some(plan) = &plan {
            device.plan(plan);
        }
        let (blocks, refused, pools) = Default::default();
        Self { program, device, plan, blocks, refused, pools }
    }

    fn stays(&self) -> bool {
        self.plan.is_some_and(|plan| plan.mode == FaultMode::Forever)
    }

    /// A new stream. One that the allocator cannot be told of under a fault is told of without.
    pub fn lane(&mut self) -> Lane {
        let stream = self.device.create_stream();
        if let Ok(id) = self.program.allocator.add_stream(stream) {
            return Lane { stream, id };
        }
        let fault = self.plan.filter(|_| self.stays());
        if fault.is_some() {
            self.device.clear_faults();
        }
        let lane = self.program.lane_of(stream);
        fault.iter().for_each(|plan| self.device.plan(plan));
        lane
    }

    pub fn pool(&mut self) -> PoolId {
        self.pools.push(self.program.allocator.add_pool());
        self.pools[self.pools.len() - 1]
    }

    pub fn allocate(&mut self, name: &'static str, lane: Lane, bytes: u64) {
        self.allocate_in(name, PoolId::DEFAULT, lane, bytes);
    }

    pub fn allocate_in(&mut self, name: &'static str, pool: PoolId, lane: Lane, bytes: u64) {
        let mut result = self.program.try_allocate_in(pool, lane, bytes);
        self.program.check();
        if let Err(error) = &result {
            self.expect(error, bytes);
            if self.stays() {
                self.refused.push((pool, lane, bytes));
                return;
            }
            result = self.program.try_allocate_in(pool, lane, bytes);
            self.program.check();
        }
        let block = result.unwrap_or_else(|error| panic!("`{name}`, the same again: {error}"));
        assert!(self.blocks.insert(name, block).is_none());
    }

    /// An error has to tell of the fault, or of the memory that could not be had because of it.
    fn expect(&self, error: &AllocateError, asked: u64) {
        let plan = self.plan.unwrap_or_else(|| panic!("without a fault: {error}"));
        match error {
            AllocateError::OutOfMemory(error) => assert_eq!(error.requested_bytes, asked),
            AllocateError::Driver { error, bytes } => {
                assert!(plan.call.is_none_or(|call| call == error.call), "{error}");
                assert_eq!((error.code, *bytes), (plan.code, asked));
            }
            error => panic!("{error}"),
        }
    }

    pub fn use_on(&mut self, name: &str, lane: Lane) {
        if let Some(block) = self.blocks.get(name) {
            self.program.use_on(block, lane);
        }
    }

    /// Gives a block to another process, which is this one, and takes it back.
    pub fn share(&mut self, name: &str) {
        let Some(block) = self.blocks.get(name) else { return };
        let allocator = &self.program.allocator;
        let imported = allocator.export(block.address).and_then(|exported| {
            let handles = exported.handles.iter().map(|one| (&*one.descriptor, one.bytes));
            allocator.import(&handles.collect::<Vec<_>>())
        });
        match imported {
            Err(ShareError::Driver { error } | ShareError::NotShareable { error }) => {
                let plan = self.plan.unwrap_or_else(|| panic!("without a fault: {error}"));
                // A device that cannot say whether it captures is left alone.
                let codes = [plan.code, ErrorCode::CaptureUnsupported];
                assert!(codes.contains(&error.code), "{error}");
            }
            Err(ShareError::Plain { .. } | ShareError::DriversOwn) => {}
            imported => drop(imported.unwrap()),
        }
        self.program.check();
    }

    /// A free never fails for what the driver does.
    pub fn free(&mut self, name: &str) {
        if let Some(block) = self.blocks.remove(name) {
            self.program.free(block);
            self.program.check();
        }
    }

    pub fn work(&mut self, lane: Lane, duration_us: u64) {
        self.device.work(lane.stream, duration_us);
    }

    pub fn pass(&mut self, duration_us: u64) {
        self.device.pass(duration_us);
    }

    pub fn trim(&mut self) {
        let before = self.program.reserved();
        let result = self.program.allocator.trim();
        self.program.check();
        let given_back = match &result {
            Ok(bytes) => *bytes,
            Err(error) => error.given_back_bytes,
        };
        assert_eq!(self.program.reserved(), before - given_back);
        if result.is_err() {
            assert!(self.plan.is_some());
            if !self.stays() {
                self.program.allocator.trim().unwrap();
                self.program.check();
            }
        }
    }

    pub fn retire(&mut self, lane: Lane) {
        self.program.allocator.retire_stream(lane.id).unwrap();
        self.device.destroy_stream(lane.stream);
        self.program.check();
    }

    /// Runs steps in a capture, which they must leave intact.
    pub fn capture(&mut self, lane: Lane, steps: impl FnOnce(&mut Self)) {
        self.device.begin_capture(lane.stream, CaptureMode::Global);
        steps(self);
        assert!(self.device.end_capture(lane.stream), "the capture is broken");
    }

    /// The fault clears: every request that failed succeeds, and everything is given back.
    pub fn end(mut self) -> u64 {
        let fired = self.device.faults_fired();
        self.device.clear_faults();
        while let Some(name) = self.blocks.keys().next().copied() {
            self.free(name);
        }
        self.program.allocator.trim().unwrap();
        self.program.check();
        let lane = self.program.default_lane();
        for (pool, _, bytes) in std::mem::take(&mut self.refused) {
            let block = self.program.try_allocate_in(pool, lane, bytes).unwrap();
            self.program.check();
            self.program.free(block);
        }
        for pool in self.pools {
            self.program.allocator.release_pool(pool).unwrap();
        }
        self.program.allocator.trim().unwrap();
        let stats = self.program.allocator.stats();
        assert_eq!((stats.all.reserved_bytes.current, stats.quarantined_bytes), (0, 0));
        fired
    }
}
