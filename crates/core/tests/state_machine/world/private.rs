//! Private pools: graphs hold the addresses that they gave, and trees of graphs put blocks back.

use std::collections::btree_map::Entry;

use drystone_core::{Captured, SegmentKind, StreamId};

use super::World;
use super::plans::{Fate, Request};
use crate::reference::Block;

impl World {
    /// A graph may use what a private pool gave for as long as the pool lives.
    pub(super) fn note_graph(&mut self, pool: usize, address: u64, bytes: u64) {
        if pool == 0 || self.kinds[pool] == SegmentKind::Plain {
            return;
        }
        let granule = self.heap.config().granule_bytes;
        for page in (address / granule..(address + bytes).div_ceil(granule)).map(|at| at * granule)
        {
            let behind = self.device.physical(page, granule).expect("a page that leads somewhere");
            match self.graphs.entry(page) {
                Entry::Vacant(entry) => drop(entry.insert((pool, behind))),
                Entry::Occupied(known) => assert_eq!(known.get().1, behind, "{page:#x} (I12)"),
            }
        }
    }

    /// What a private pool gave leads to the same memory until the pool is released (I12).
    pub(super) fn verify_graphs(&self) {
        let granule = self.heap.config().granule_bytes;
        for (&page, (_, behind)) in &self.graphs {
            let now = self.device.physical(page, granule);
            assert_eq!(now.as_ref(), Some(behind), "{page:#x} leads elsewhere (I12)");
        }
    }

    /// Notes the live blocks of a private pool, goes on with it, frees all of it, and puts back
    /// what was noted, where it was.
    pub fn put_back(&mut self, pool: usize, stream: StreamId, sizes: &[u64]) {
        let of_pool = |world: &Self| {
            let live = world.reference.live.values().filter(|block| block.pool == pool);
            live.cloned().collect::<Vec<Block>>()
        };
        if pool == 0 || self.pools[pool].1 {
            return;
        }
        let noted = of_pool(self);
        for block in noted.iter().step_by(2) {
            self.free(block.address);
        }
        for (&bytes, captured) in sizes.iter().zip([Captured::Own, Captured::None].iter().cycle()) {
            self.allocate_with(pool, stream, bytes, *captured, (0, Fate::Complete));
            self.verify();
        }
        for block in of_pool(self) {
            self.free(block.address);
        }
        // What others use or plan with is not free.
        let is_free = self.flights.is_empty()
            && !self.reference.away.values().any(|(block, _)| block.pool == pool);
        for Block { address, bytes, requested, stream, .. } in noted {
            if !self.reference.streams.contains(&stream) {
                continue;
            }
            let place = address..address + bytes;
            let put = self.heap.allocate_at(self.pools[pool].0, stream, requested, place).unwrap();
            assert!(put.is_some() || !is_free, "{address:#x} is not put back");
            if let Some(granted) = put {
                assert_eq!((granted.address, granted.bytes), (address, bytes));
                // The program answers for the order.
                self.synchronize(Fate::Complete);
                self.note(Request { pool, stream, bytes: requested }, granted);
            }
            self.verify();
        }
    }
}
