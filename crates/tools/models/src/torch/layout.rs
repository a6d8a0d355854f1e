//! The address map, as PyTorch's own snapshot would show it.
//!
//! An expandable segment gives one entry for each contiguous mapped run; its unmapped rest, nine
//! eighths of the device's memory, is no part of the picture.

use drystone_trace::replay::{BlockState, Layout, LayoutBlock, LayoutSegment};

use super::allocator::Allocator;
use super::block::{Block, BlockId};

impl Allocator {
    /// Every mapped block, sorted by address and grouped into segments.
    pub fn layout(&self) -> Layout {
        let free = self.pools.iter().flat_map(|pool| pool.free.values().copied());
        let waiting = self.events.waiting().chain(self.deferred.iter().copied());
        let mut ids: Vec<BlockId> =
            self.live.values().copied().chain(waiting).chain(free).collect();
        ids.sort_unstable_by_key(|id| self.blocks[*id].address);
        ids.dedup(); // a block waits once for each of its events
        let mut segments: Vec<LayoutSegment> = Vec::new();
        for id in ids {
            let block = &self.blocks[id];
            let continues = block.previous.is_some_and(|id| self.blocks[id].is_mapped);
            match segments.last_mut().filter(|_| continues) {
                Some(segment) => {
                    segment.bytes += block.bytes;
                    segment.blocks.push(drawn(block));
                }
                None => segments.push(LayoutSegment {
                    address: block.address,
                    bytes: block.bytes,
                    stream: block.stream,
                    pool: block.pool.number(),
                    is_small: block.pool.is_small(),
                    is_expandable: block.expandable.is_some(),
                    blocks: vec![drawn(block)],
                }),
            }
        }
        Layout { segments }
    }
}

fn drawn(block: &Block) -> LayoutBlock {
    LayoutBlock {
        address: block.address,
        bytes: block.bytes,
        requested_bytes: block.requested_bytes,
        stream: block.stream,
        state: if block.is_allocated {
            BlockState::Live
        } else if !block.is_idle() {
            BlockState::Pending
        } else {
            BlockState::Free
        },
    }
}
