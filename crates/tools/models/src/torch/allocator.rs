//! [`Allocator`]: its state, and what becomes of a block that nobody uses any more.
//!
//! Invariants: `live` holds exactly the blocks in the program's hands, by address; a free block has
//! no free neighbour that is mapped alike; `stats` are the sums over all blocks.

use std::collections::HashMap;

use drystone_driver::Stream;

use super::block::{BlockId, Blocks};
use super::block_pool::BlockPool;
use super::config::Config;
use super::events::Events;
use super::expandable::Expandables;
use super::pool_id::PoolId;
use super::stats::Stats;

/// A request on its way down the ladder.
pub(super) struct Request {
    /// After rounding.
    pub(super) bytes: u64,
    pub(super) stream: u16,
    pub(super) pool: PoolId,
}

/// PyTorch's caching allocator of one device, native or with expandable segments.
///
/// Streams and pools are the dense numbers of a trace. All methods take the driver they act on; it
/// must be the same one every time.
#[derive(Debug)]
pub struct Allocator {
    pub(super) config: Config,
    /// What the process may hold, in bytes; `None` without a memory fraction.
    pub(super) allowed_bytes: Option<u64>,
    /// The device's streams, by dense number.
    pub(super) streams: Vec<Stream>,
    pub(super) blocks: Blocks,
    /// By [`PoolId`].
    pub(super) pools: Vec<BlockPool>,
    pub(super) live: HashMap<u64, BlockId>,
    pub(super) events: Events,
    pub(super) expandables: Expandables,
    pub(super) captures: u32,
    /// Blocks freed meanwhile that other streams use, whose events wait for the end of captures.
    pub(super) deferred: Vec<BlockId>,
    pub(super) stats: Stats,
}

impl Allocator {
    /// An allocator with nothing cached. `streams` are the device's streams by dense number, the
    /// default stream first; `pools` counts the pools, the default pool among them; `total_bytes`
    /// is the device's memory.
    pub fn new(config: Config, streams: Vec<Stream>, pools: u8, total_bytes: u64) -> Self {
        let fraction = config.memory_fraction;
        let mut block_pools = Vec::new();
        block_pools.resize_with(usize::from(pools.max(1)) * 2, BlockPool::default);
        Self {
            allowed_bytes: (fraction < 1.0).then_some((fraction * total_bytes as f64) as u64),
            config,
            streams,
            blocks: Blocks::default(),
            pools: block_pools,
            live: HashMap::new(),
            events: Events::default(),
            expandables: Expandables::default(),
            captures: 0,
            deferred: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The figures at this moment.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// A capture begins: until it is over no event is recorded or asked, and nothing given back.
    pub fn begin_capture(&mut self) {
        self.captures += 1;
    }

    /// A capture is over.
    pub fn end_capture(&mut self) {
        self.captures = self.captures.saturating_sub(1);
    }

    /// Whether a request for a pool counts as made in a capture: while there is one, and for a
    /// private pool always, which is in use only within a capture or a `use_mem_pool` context.
    pub(super) fn is_restrained(&self, pool: u8) -> bool {
        self.captures > 0 || pool != 0
    }

    /// Puts a block that nobody uses any more back into its pool.
    pub(super) fn complete_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        self.stats.active_bytes -= block.bytes;
        self.stats.requested_bytes -= std::mem::take(&mut block.requested_bytes);
        let pool = block.pool.index();
        self.merge_with_neighbours(id);
        self.pools[pool].insert(id, &mut self.blocks);
    }

    /// Joins a block that is in no pool with both neighbours, where they are idle and mapped alike.
    pub(super) fn merge_with_neighbours(&mut self, id: BlockId) {
        for neighbour in [self.blocks[id].previous, self.blocks[id].next].into_iter().flatten() {
            let other = &self.blocks[neighbour];
            if other.is_idle() && other.is_mapped == self.blocks[id].is_mapped {
                self.pools[other.pool.index()].remove(other);
                self.blocks.absorb(id, neighbour);
            }
        }
    }

    /// The device's handle of a dense stream number that was checked before.
    pub(super) fn device_stream(&self, stream: u16) -> Stream {
        self.streams.get(usize::from(stream)).copied().unwrap_or(Stream::DEFAULT)
    }
}
