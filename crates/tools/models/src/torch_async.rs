//! A model of PyTorch's backend `cudaMallocAsync`: requests and frees go to the driver's own memory
//! pool, which keeps what is freed, shares it between streams and trims itself.
//!
//! Lives here: what PyTorch 2.15 does around that pool. The pool is the simulated device's.
//! `docs/evidence/models.md` says what of both is published and what is assumed. Invariant: nothing
//! is cached here; a block that other streams use is freed on one stream more, which waits for all.

use std::collections::HashMap;

use drystone_driver::{Call, Driver, DriverError, Event, MemoryPool, MemoryPoolConfig, Stream};
use drystone_sim::SimDevice;
use drystone_trace::replay::{DriverCost, Refusal, Replayed, Usage};

use crate::work::{self, works_on_device};

/// What captured requests are given in place of addresses: those of a graph whose memory went back
/// may be another's.
const CAPTURED: u64 = 1 << 60;

/// A block in the program's hands.
#[derive(Debug)]
struct Block {
    /// Where it is on the device.
    address: u64,
    bytes: u64,
    stream: u16,
    uses: Vec<u16>,
    /// The capture whose graph's memory it is.
    capture: Option<u64>,
}

/// A graph that keeps its memory.
#[derive(Clone, Copy, Debug)]
struct Graph {
    capture: u64,
    bytes: u64,
    /// Of these, what the capture left allocated.
    left_bytes: u64,
}

/// PyTorch over the driver's memory pool, on a simulated device.
#[derive(Debug)]
pub struct Replay {
    device: SimDevice,
    streams: Vec<Stream>,
    /// Where blocks are freed that several streams use.
    unifying: Stream,
    pool: MemoryPool,
    blocks: HashMap<u64, Block>,
    /// Freed in captures, although no capture made them.
    deferred: Vec<Block>,
    captures: u32,
    /// Requests that captures made.
    captured: u64,
    /// The graph of most memory.
    graph: Option<Graph>,
    allocated_bytes: u64,
    reserved_bytes: u64,
    /// What growth of the pool costs, in microseconds.
    grown_us: f64,
}

impl Replay {
    /// A fresh allocator for a trace with that many streams. Streams beyond the default one are
    /// created on the device.
    /// Errors: the device has no memory pools.
    pub fn new(device: &SimDevice, streams: u16) -> Result<Self, DriverError> {
        // PyTorch says so of the device's own pool, which is there from the start.
        let config = MemoryPoolConfig::default().with_release_threshold_bytes(u64::MAX);
        let no_pool = |code| DriverError::new(Call::CreateMemoryPool, code);
        Ok(Self {
            streams: work::streams(device, streams),
            unifying: device.create_stream(),
            pool: device.add_memory_pool(&config).map_err(no_pool)?,
            device: device.clone(),
            blocks: HashMap::new(),
            deferred: Vec::new(),
            captures: 0,
            captured: 0,
            graph: None,
            allocated_bytes: 0,
            reserved_bytes: 0,
            grown_us: 0.0,
        })
    }

    /// One request to the driver, and after a refusal another with what was idle given back.
    fn malloc(&mut self, bytes: u64, stream: Stream) -> Result<u64, DriverError> {
        let first = self.grow(bytes, stream);
        match &first {
            Err(error) if error.is_out_of_memory() && self.captures == 0 => {
                self.device.synchronize_stream(stream)?;
                self.device.trim_memory_pool(self.pool, 0)?;
                self.grow(bytes, stream)
            }
            _ => first,
        }
    }

    /// Takes memory, and the time that it takes where the pool grows.
    fn grow(&mut self, bytes: u64, stream: Stream) -> Result<u64, DriverError> {
        let before = self.look();
        let given = self.device.malloc_async(self.pool, bytes, stream);
        let grown_bytes = self.look().saturating_sub(before);
        if grown_bytes > 0 {
            let config = self.device.config();
            let cost_us = config.costs.get(Call::Malloc).time_us(1, grown_bytes);
            self.grown_us += cost_us;
            if config.calls_take_time {
                self.device.advance_by((cost_us * 1e3) as u64);
            }
        }
        given
    }

    /// What the device gives at this moment, noted for [`Replayed::usage`].
    fn look(&mut self) -> u64 {
        self.reserved_bytes = self.device.physical_bytes();
        self.reserved_bytes
    }

    fn give_back(&mut self, block: &Block) -> Result<(), DriverError> {
        let own = self.streams[usize::from(block.stream)];
        if block.uses.is_empty() {
            return self.device.free_async(block.address, own);
        }
        let others = block.uses.iter().map(|&stream| self.streams[usize::from(stream)]);
        for stream in std::iter::once(own).chain(others) {
            let event: Event = self.device.create_event()?;
            self.device.record(event, stream)?;
            self.device.wait(self.unifying, event)?;
            self.device.destroy_event(event)?;
        }
        self.device.free_async(block.address, self.unifying)
    }

    /// Frees what captures put off, as the next request does.
    fn catch_up(&mut self) {
        for block in std::mem::take(&mut self.deferred) {
            let freed = self.give_back(&block);
            debug_assert_eq!(freed, Ok(()));
        }
    }

    /// Of the graphs that captures made, the one of most memory keeps its own: graphs that run one
    /// after another on a stream share what they have. What the others left allocated they do not
    /// share: memory of the pool stands for it.
    fn keep_largest(&mut self, capture: u64) {
        let kept_bytes = self.graph.map_or(0, |graph| graph.bytes);
        let bytes = self.device.graph_bytes().saturating_sub(kept_bytes);
        let left = self.blocks.values().filter(|block| block.capture == Some(capture));
        let new = Graph { capture, bytes, left_bytes: left.map(|block| block.bytes).sum() };
        let smaller = if bytes <= kept_bytes { Some(new) } else { self.graph.replace(new) };
        if let Some(smaller) = smaller {
            self.device.end_graph(smaller.capture);
            if smaller.left_bytes > 0 {
                // There is room: the graph had more.
                let _ = self.grow(smaller.left_bytes, Stream::DEFAULT);
            }
        }
        self.look();
    }
}

impl Replayed for Replay {
    works_on_device!(streams);

    /// Pools of the program are the backend's to ignore.
    fn allocate(&mut self, bytes: u64, stream: u16, _: u8) -> Result<u64, Refusal> {
        if self.captures == 0 {
            self.catch_up();
        }
        let handle = self.streams[usize::from(stream)];
        let is_any = self.captures > 0;
        let capture = if is_any { self.device.capture_of(handle).ok().flatten() } else { None };
        let address = self.malloc(bytes, handle).map_err(|error| Refusal {
            message: format!("Allocation would exceed allowed memory: {error}"),
        })?;
        let name = if capture.is_some() { CAPTURED + self.captured } else { address };
        self.captured += u64::from(capture.is_some());
        let bytes = bytes.next_multiple_of(512);
        self.allocated_bytes += bytes;
        let block = Block { address, bytes, stream, uses: Vec::new(), capture };
        self.blocks.insert(name, block);
        Ok(name)
    }

    fn free(&mut self, address: u64) {
        let Some(block) = self.blocks.remove(&address) else { return };
        self.allocated_bytes -= block.bytes;
        let handle = self.streams[usize::from(block.stream)];
        let is_under_way =
            |capture: u64| self.captures > 0 && self.device.capture_of(handle) == Ok(Some(capture));
        match block.capture {
            // No graph frees what is not a graph's.
            None if self.captures > 0 => self.deferred.push(block),
            // What a capture has left is its graph's.
            Some(capture) if !is_under_way(capture) => {}
            _ => {
                let freed = self.give_back(&block);
                debug_assert_eq!(freed, Ok(()));
            }
        }
    }

    fn record_stream(&mut self, address: u64, stream: u16) {
        if let Some(block) = self.blocks.get_mut(&address)
            && block.stream != stream
            && !block.uses.contains(&stream)
        {
            block.uses.push(stream);
        }
    }

    fn wait_for_device(&mut self) {
        self.device.finish_all();
        self.look();
    }

    fn begin_capture(&mut self, stream: u16, _: u8) {
        self.captures += 1;
        work::begin_capture(&self.device, self.streams[usize::from(stream)]);
    }

    fn end_capture(&mut self, stream: u16, _: u8) {
        let stream = self.streams[usize::from(stream)];
        let capture = self.device.capture_of(stream);
        let ended = work::end_capture(&self.device, stream);
        debug_assert_eq!(ended, Ok(()));
        self.captures = self.captures.saturating_sub(1);
        if let Ok(Some(capture)) = capture {
            self.keep_largest(capture);
        }
    }

    /// PyTorch waits for the device, and trims; in a capture it would fail.
    fn empty_cache(&mut self) {
        if self.captures == 0 {
            self.catch_up();
            let waited = self.device.synchronize_device();
            let trimmed = waited.and_then(|()| self.device.trim_memory_pool(self.pool, 0));
            debug_assert_eq!(trimmed, Ok(()));
            self.look();
        }
    }

    fn usage(&self) -> Usage {
        let (allocated_bytes, reserved_bytes) = (self.allocated_bytes, self.reserved_bytes);
        Usage { allocated_bytes, reserved_bytes }
    }

    fn driver_cost(&self) -> DriverCost {
        let time_us = self.device.driver_time_us() + self.grown_us;
        DriverCost { calls: self.device.calls(), time_us }
    }
}

#[cfg(test)]
mod tests;
