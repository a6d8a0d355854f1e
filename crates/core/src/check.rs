//! The invariants of the heap, one function each. Numbers as in `docs/invariants.md`. Those of the
//! block space and of the page table alone are proved there (`space::check`, `vm::check`).
//!
//! O(n) in the number of blocks: for tests, fuzzing and debugging, not for every operation.

#[cfg(test)]
mod tests;

use crate::broken::{Broken, hold};
use crate::heap::Heap;
use crate::policy::SegmentKind;
use crate::space::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::space::check::Tiles;
use crate::stats::Gauge;

impl Heap {
    /// Proves every invariant of the heap.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let tiles = self.space.check_i1_blocks_tile_their_segment()?;
        self.space.check_i2_free_neighbours_are_joined(&tiles)?;
        self.check_i3_filed_once(&tiles)?;
        self.space.check(&tiles)?;
        self.vm.check()?;
        self.check_i8_counters_agree(&tiles)?;
        self.check_i9_pending_blocks_wait(&tiles)?;
        self.check_i12_pools_keep_to_themselves(&tiles)?;
        self.check_i8_lists_agree(&tiles)?;
        self.check_i13_blocks_are_backed(&tiles)?;
        self.check_i16_pinned_memory_stays()
    }

    fn check_i3_filed_once(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut filed = vec![0u8; self.space.blocks.capacity()];
        let mut stands = |index: BlockIndex, state| {
            let block = &self.space.blocks[index];
            filed[index.0 as usize] += 1;
            hold(3, block.state == state, || format!("{block:?} stands among the {state:?}"))?;
            let Some(next) = block.filed_next.some() else {
                return Ok(());
            };
            let is_chained = matches!(state, BlockState::Free | BlockState::Unmapped);
            hold(3, !is_chained || self.space.blocks[next].filed_previous == index, || {
                format!("{:?} does not know that it follows {block:?}", self.space.blocks[next])
            })
        };
        for (number, list) in self.space.lists().iter().enumerate() {
            for (_, index) in list.bins(&self.space.blocks) {
                stands(index, BlockState::Free)?;
            }
            for index in
                list.unmapped.into_iter().flat_map(|head| self.space.blocks.filed_from(head))
            {
                stands(index, BlockState::Unmapped)?;
                let block = &self.space.blocks[index];
                let of = self.space.segments[block.segment].list.index();
                hold(3, of == number && block.list.index() == number, || {
                    format!("{block:?} stands in list {number}, not in its segment's")
                })?;
            }
        }
        for (key, index) in self.space.idle_windows.iter() {
            stands(index, BlockState::IdleWindow)?;
            let block = &self.space.blocks[index];
            hold(3, self.window_key(index) == key, || format!("{block:?} stands as {key:?}"))?;
        }
        for &index in &self.quarantine {
            stands(index, BlockState::Quarantined)?;
        }
        for &(index, block) in tiles {
            let found = filed[index.0 as usize];
            let expected = match block.state {
                BlockState::Free | BlockState::Unmapped => 1..=1,
                BlockState::IdleWindow
                    if self.vm.is_whole_window(block.segment, &block.range()) =>
                {
                    1..=1
                }
                // A synchronisation under way has taken them along.
                BlockState::Quarantined => 0..=1,
                BlockState::Live
                | BlockState::Pending
                | BlockState::Claimed
                | BlockState::Remapped
                | BlockState::IdleWindow => 0..=0,
            };
            hold(3, expected.contains(&found), || format!("{block:?} is filed {found} times"))?;
        }
        Ok(())
    }

    fn check_i8_counters_agree(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut sums = [[0u64; 6]; 2];
        for &(index, block) in tiles {
            let class = self.space.list(block.list).class as usize;
            let sum = &mut sums[class];
            match block.state {
                BlockState::Live => {
                    sum[0] += block.requested;
                    sum[1] += block.bytes;
                    sum[2] += block.bytes;
                    sum[3] += 1;
                    sum[4] += 1;
                }
                _ if self.is_active(index, &block) => {
                    sum[0] += block.requested;
                    sum[2] += block.bytes;
                    sum[4] += 1;
                }
                _ => {}
            }
        }
        for (class, sum) in sums.iter_mut().enumerate() {
            let stats = &self.stats.classes[class];
            sum[5] = self.reserved_by_walk(class);
            let stored = [
                stats.requested_bytes.current,
                stats.allocated_bytes.current,
                stats.active_bytes.current,
                stats.allocations.current,
                stats.active_blocks.current,
                stats.reserved_bytes.current,
            ];
            hold(8, *sum == stored, || {
                format!("class {class}: walked {sum:?}, stored {stored:?}")
            })?;
        }
        self.check_i8_order()?;
        self.check_i8_idle_granules()
    }

    /// Live, or freed but not settled; of claimed blocks those whose free is under way.
    fn is_active(&self, index: BlockIndex, block: &Block) -> bool {
        match block.state {
            BlockState::Live | BlockState::Pending | BlockState::Quarantined => true,
            BlockState::Claimed => {
                self.space.map.find(&self.space.blocks, block.address) == Some(index)
            }
            _ => false,
        }
    }

    fn check_i8_lists_agree(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut sums = vec![0u64; self.space.lists().len()];
        for (index, block) in tiles {
            if self.is_active(*index, block) {
                sums[block.list.index()] += block.bytes;
            }
        }
        for (list, bytes) in self.space.lists().iter().zip(sums) {
            let Gauge { current, peak, .. } = list.active_bytes;
            hold(8, bytes == current && current <= peak, || {
                let (pool, stream) = (list.pool, list.stream);
                format!("pool {pool}, stream {stream}: walked {bytes}, stored {current} of {peak}")
            })?;
        }
        Ok(())
    }

    /// Reserved bytes of all are those of both classes and the idle granules. Of granules in plans
    /// under way only the plans know.
    fn check_i8_idle_granules(&self) -> Result<(), Broken> {
        let [small, large] = &self.stats.classes;
        let (idle, planned) = self.vm.idle_and_planned_bytes();
        let classes = small.reserved_bytes.current + large.reserved_bytes.current;
        let (least, most) = (classes + idle, classes + idle + planned);
        let reserved = self.stats.all.reserved_bytes.current;
        hold(8, (least..=most).contains(&reserved), || {
            format!("{reserved} bytes reserved, from {least} to {most} accounted for")
        })
    }

    /// Requested <= active, allocated <= active <= reserved, in each class and in all.
    fn check_i8_order(&self) -> Result<(), Broken> {
        let stats = &self.stats;
        for one in [&stats.all, &stats.classes[0], &stats.classes[1]] {
            let [requested, allocated, active, reserved] = [
                one.requested_bytes.current,
                one.allocated_bytes.current,
                one.active_bytes.current,
                one.reserved_bytes.current,
            ];
            hold(8, requested <= active && allocated <= active && active <= reserved, || {
                format!(
                    "requested {requested}, allocated {allocated}, active {active}, \
                     reserved {reserved}"
                )
            })?;
        }
        let both = |gauge: fn(&crate::SizeClassStats) -> u64| {
            gauge(&stats.classes[0]) + gauge(&stats.classes[1]) == gauge(&stats.all)
        };
        let sums = both(|s| s.requested_bytes.current)
            && both(|s| s.allocated_bytes.current)
            && both(|s| s.active_bytes.current)
            && both(|s| s.allocations.current)
            && both(|s| s.active_blocks.current)
            && both(|s| s.segments.current);
        hold(8, sums, || format!("classes do not sum to all: {stats:?}"))?;
        let segments = self.space.segments.iter().count() as u64;
        hold(8, stats.all.segments.current == segments, || {
            format!("{segments} segments, {} counted", stats.all.segments.current)
        })
    }

    fn reserved_by_walk(&self, class: usize) -> u64 {
        self.space
            .segments
            .iter()
            .filter(|(_, segment)| self.space.list(segment.list).class as usize == class)
            .map(|(number, segment)| match segment.kind {
                SegmentKind::Plain => segment.bytes,
                SegmentKind::Mapped => {
                    self.vm.backed_pages(number) as u64 * self.config.granule_bytes
                }
            })
            .sum()
    }

    fn check_i9_pending_blocks_wait(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut waits = vec![0usize; self.space.blocks.capacity()];
        for index in 0..self.streams.len() as u32 {
            let stream = self.streams.at(index);
            let mut last = 0;
            for (point, block) in stream.waiting() {
                hold(9, point > stream.passed && point >= last, || {
                    format!("point {point} of stream {index} should have been served")
                })?;
                last = point;
                waits[block.0 as usize] += 1;
            }
        }
        for &(index, block) in tiles {
            let waiting = waits[index.0 as usize];
            let expected = match block.state {
                BlockState::Pending => self.uses.get(block.uses).len(),
                _ => 0,
            };
            let is_pending = block.state == BlockState::Pending;
            hold(9, waiting == expected && is_pending == (waiting > 0), || {
                format!("{block:?} waits for {waiting} fences, {expected} uses")
            })?;
        }
        let used = tiles.iter().filter(|(_, block)| block.uses != NO_USES).count();
        hold(9, used == self.uses.len(), || {
            format!("{used} blocks have uses, {} are recorded", self.uses.len())
        })
    }

    fn check_i12_pools_keep_to_themselves(&self, tiles: &Tiles) -> Result<(), Broken> {
        for (_, block) in tiles {
            let segment = &self.space.segments[block.segment];
            let (own, home) = (self.space.list(block.list), self.space.list(segment.list));
            hold(12, own.pool == home.pool && own.class == home.class, || {
                format!("{block:?} left its pool or class")
            })?;
            let pool = self.pools.at(home.pool);
            hold(12, segment.kind == home.kind && home.kind == pool.kind, || {
                format!("a {:?} segment in a pool of {:?} ones", segment.kind, pool.kind)
            })?;
        }
        Ok(())
    }

    /// Outside of plans under way, blocks that are unmapped, remapped or idle windows have no memory
    /// of their own, and all others have it throughout. A page is part of a remapped block if and
    /// only if it is the home of a granule that backs another page.
    fn check_i13_blocks_are_backed(&self, tiles: &Tiles) -> Result<(), Broken> {
        for &(index, block) in tiles {
            let segment = &self.space.segments[block.segment];
            if segment.kind == SegmentKind::Plain || block.state == BlockState::Claimed {
                continue;
            }
            let is_remapped = block.state == BlockState::Remapped;
            let in_place = match block.state {
                BlockState::Remapped => !block.is_window,
                BlockState::IdleWindow => block.is_window,
                _ => true,
            };
            hold(13, in_place && block.is_window == segment.is_window, || {
                format!("{block:?} is in the wrong segment")
            })?;
            for page in self.vm.views(block.segment, &block.range()) {
                let knows = !is_remapped || page.remapped == index;
                let agrees = page.is_backed == block.state.is_backed();
                hold(13, agrees && page.is_remapped == is_remapped && knows, || {
                    format!("{block:?} lies on {page:?}")
                })?;
            }
        }
        Ok(())
    }

    /// Whatever is pinned is in a segment, and backed.
    fn check_i16_pinned_memory_stays(&self) -> Result<(), Broken> {
        for (address, end) in self.vm.pinned() {
            let is_kept = self.space.segments.containing(address).is_some_and(|ix| {
                let is_plain = self.space.segments[ix].kind == SegmentKind::Plain;
                is_plain || self.vm.views(ix, &(address..end)).all(|page| page.is_backed)
            });
            hold(16, is_kept, || format!("pinned {address:#x} to {end:#x} is not backed"))?;
        }
        Ok(())
    }
}
