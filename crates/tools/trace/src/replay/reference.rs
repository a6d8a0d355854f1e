//! A slow, obvious allocator for the engine's tests: every block is its own driver allocation, kept
//! for requests of exactly its size. It writes down what it is asked and refuses misuse.

use std::collections::BTreeMap;

use super::{BlockState, DriverCost, Layout, LayoutBlock, LayoutSegment, Refusal, Replayed, Usage};

/// Microseconds that a driver call of the reference costs.
pub(super) const CALL_US: f64 = 100.0;

#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) capacity_bytes: u64,
    pub(super) log: Vec<String>,
    pub(super) now_ns: u64,
    next: u64,
    live: BTreeMap<u64, (u64, u16)>,
    spare: Vec<(u64, u64, u16)>,
    usage: Usage,
    calls: u64,
}

impl Reference {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, next: 1 << 20, ..Self::default() }
    }

    pub(super) fn live_blocks(&self) -> usize {
        self.live.len()
    }
}

impl Replayed for Reference {
    fn advance(&mut self, time_ns: u64) {
        assert!(time_ns >= self.now_ns, "time went back from {} to {time_ns}", self.now_ns);
        self.now_ns = time_ns;
    }

    fn allocate(&mut self, bytes: u64, stream: u16, pool: u8) -> Result<u64, Refusal> {
        let size = bytes.next_multiple_of(512);
        let fits = self.spare.iter().position(|s| s.1 == size && s.2 == stream);
        let address = match fits {
            Some(index) => self.spare.remove(index).0,
            None if self.usage.reserved_bytes + size > self.capacity_bytes => {
                self.log.push(format!("refuse {bytes}"));
                return Err(Refusal { message: format!("no room for {bytes} bytes") });
            }
            None => {
                self.calls += 1;
                self.usage.reserved_bytes += size;
                self.next += size;
                self.next - size
            }
        };
        self.usage.allocated_bytes += size;
        assert!(self.live.insert(address, (size, stream)).is_none());
        self.log.push(format!("allocate {bytes} on {stream} in {pool}"));
        Ok(address)
    }

    fn free(&mut self, address: u64) {
        let (size, stream) = self.live.remove(&address).expect("free of a block that is not live");
        self.usage.allocated_bytes -= size;
        self.spare.push((address, size, stream));
        self.log.push(format!("free {size}"));
    }

    fn record_stream(&mut self, address: u64, stream: u16) {
        assert!(self.live.contains_key(&address), "stream recorded on a block that is not live");
        self.log.push(format!("record {stream}"));
    }

    fn busy_until(&mut self, stream: u16, time_ns: u64) {
        self.log.push(format!("busy {stream} until {time_ns}"));
    }

    fn wait_for_device(&mut self) {
        self.log.push("wait".into());
    }

    fn begin_capture(&mut self, stream: u16, pool: u8) {
        self.log.push(format!("capture {stream} into {pool}"));
    }

    fn join_capture(&mut self, stream: u16, origin: u16) {
        self.log.push(format!("join {stream} to {origin}"));
    }

    fn end_capture(&mut self, stream: u16, pool: u8) {
        self.log.push(format!("end {stream} into {pool}"));
    }

    fn empty_cache(&mut self) {
        self.calls += self.spare.len() as u64;
        self.usage.reserved_bytes -= self.spare.drain(..).map(|s| s.1).sum::<u64>();
        self.log.push("empty".into());
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    /// Every block is a segment of its own.
    fn layout(&self) -> Option<Layout> {
        let live = self
            .live
            .iter()
            .map(|(&address, &(bytes, stream))| (address, bytes, stream, BlockState::Live));
        let spare = self
            .spare
            .iter()
            .map(|&(address, bytes, stream)| (address, bytes, stream, BlockState::Free));
        let mut blocks: Vec<_> = live.chain(spare).collect();
        blocks.sort_by_key(|block| block.0);
        let segment = |(address, bytes, stream, state)| LayoutSegment {
            address,
            bytes,
            stream,
            blocks: vec![LayoutBlock { address, bytes, requested_bytes: bytes, stream, state }],
            ..LayoutSegment::default()
        };
        Some(Layout { segments: blocks.into_iter().map(segment).collect() })
    }

    fn driver_cost(&self) -> DriverCost {
        DriverCost { calls: self.calls, time_us: self.calls as f64 * CALL_US }
    }
}
