//! The invariants, one function each. Numbers as in `docs/invariants.md`.
//!
//! O(n) in the number of blocks: for tests, fuzzing and debugging, not for every operation.

mod backing;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::bin::{BINS, Bin};
use crate::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::granule::{GranuleState, Place};
use crate::heap::Heap;
use crate::policy::SegmentKind;
use crate::size::QUANTUM;
use crate::stats::Gauge;

/// An invariant that does not hold, with what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The invariant's number: 7 for I7.
    pub invariant: u8,
    /// What was found.
    pub finding: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "I{} is broken: {}", self.invariant, self.finding)
    }
}

impl std::error::Error for Broken {}

pub(crate) fn hold(
    invariant: u8,
    holds: bool,
    finding: impl FnOnce() -> String,
) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { invariant, finding: finding() }) }
}

/// Every block with its index, segment by segment, in address order within each.
type Tiles = Vec<(BlockIndex, Block)>;

impl Heap {
    /// Proves every invariant of the heap.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let tiles = self.check_i1_blocks_tile_their_segment()?;
        self.check_i2_free_neighbours_are_joined(&tiles)?;
        self.check_i3_filed_once(&tiles)?;
        self.check_i4_bins_fit_their_blocks()?;
        self.check_i5_bitmaps_agree_with_lists()?;
        self.check_i6_live_addresses_lead_to_their_block(&tiles)?;
        self.check_i7_sizes_are_whole_quanta(&tiles)?;
        self.check_i13_granules_and_places_agree()?;
        self.check_i13_handles_stay_whole()?;
        self.check_i8_counters_agree(&tiles)?;
        self.check_i9_pending_blocks_wait(&tiles)?;
        self.check_i12_pools_keep_to_themselves(&tiles)?;
        self.check_i8_accounts_agree(&tiles)?;
        self.check_i13_blocks_are_backed(&tiles)?;
        self.check_i16_pinned_memory_stays()
    }

    fn check_i1_blocks_tile_their_segment(&self) -> Result<Tiles, Broken> {
        let mut tiles = Vec::with_capacity(self.blocks.len());
        for (number, segment) in self.segments.iter() {
            let mut address = segment.address;
            let mut previous = BlockIndex::NONE;
            let mut next = segment.first;
            while let Some(index) = next.some() {
                let block = self.blocks[index];
                let fits = block.address == address
                    && block.segment == number
                    && block.previous == previous;
                hold(1, fits, || format!("block {block:?} does not follow {address:#x}"))?;
                tiles.push((index, block));
                address = block.end();
                previous = index;
                next = block.next;
            }
            let end = segment.address + segment.bytes;
            hold(1, address == end, || format!("blocks end at {address:#x}, not at {end:#x}"))?;
        }
        hold(1, tiles.len() == self.blocks.len(), || {
            format!("{} blocks in segments, {} in the table", tiles.len(), self.blocks.len())
        })?;
        Ok(tiles)
    }

    fn check_i2_free_neighbours_are_joined(&self, tiles: &Tiles) -> Result<(), Broken> {
        for (_, block) in tiles {
            let Some(next) = block.next.some().map(|next| self.blocks[next]) else {
                continue;
            };
            let both = |state| block.state == state && next.state == state;
            let split =
                both(BlockState::Free) && block.list == next.list || both(BlockState::Hollow);
            hold(2, !split, || format!("{block:?} and the block after it are not joined"))?;
        }
        Ok(())
    }

    fn check_i3_filed_once(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut filed = vec![0u8; self.blocks.capacity()];
        let mut stands = |index: BlockIndex, state| {
            let block = &self.blocks[index];
            filed[index.0 as usize] += 1;
            hold(3, block.state == state, || format!("{block:?} stands among the {state:?}"))?;
            let Some(next) = block.filed_next.some() else {
                return Ok(());
            };
            let is_chained = matches!(state, BlockState::Free | BlockState::Hollow);
            hold(3, !is_chained || self.blocks[next].filed_previous == index, || {
                format!("{:?} does not know that it follows {block:?}", self.blocks[next])
            })
        };
        for (number, list) in self.lists.iter().enumerate() {
            for (_, index) in list.bins(&self.blocks) {
                stands(index, BlockState::Free)?;
            }
            for (&key, &index) in &list.berths {
                stands(index, BlockState::Alias)?;
                let block = &self.blocks[index];
                let is_own = self.size_and_address(index) == key && block.list as usize == number;
                hold(3, is_own, || format!("{block:?} stands in list {number} as {key:?}"))?;
            }
            for index in list.hollow.into_iter().flat_map(|head| self.blocks.filed_from(head)) {
                stands(index, BlockState::Hollow)?;
                let block = &self.blocks[index];
                let of = self.segments.get(block.segment).map(|s| s.list as usize);
                hold(3, of == Some(number) && block.list as usize == number, || {
                    format!("{block:?} stands in list {number}, not in its segment's")
                })?;
            }
        }
        for &index in &self.quarantine {
            stands(index, BlockState::Quarantined)?;
        }
        for &(index, block) in tiles {
            let found = filed[index.0 as usize];
            let expected = match block.state {
                BlockState::Free | BlockState::Hollow => 1..=1,
                BlockState::Alias if self.is_whole_berth(index) => 1..=1,
                // A synchronisation under way has taken them along.
                BlockState::Quarantined => 0..=1,
                BlockState::Live
                | BlockState::Pending
                | BlockState::Claimed
                | BlockState::Lent
                | BlockState::Alias => 0..=0,
            };
            hold(3, expected.contains(&found), || format!("{block:?} is filed {found} times"))?;
        }
        Ok(())
    }

    fn check_i4_bins_fit_their_blocks(&self) -> Result<(), Broken> {
        for list in &self.lists {
            for (bin, index) in list.bins(&self.blocks) {
                let block = self.blocks[index];
                let right = Bin::of_block(block.bytes);
                hold(4, bin == right && block.bin == bin.0, || {
                    format!("{block:?} stands in bin {bin:?}, not in {right:?}")
                })?;
            }
        }
        Ok(())
    }

    fn check_i5_bitmaps_agree_with_lists(&self) -> Result<(), Broken> {
        for (number, list) in self.lists.iter().enumerate() {
            let mut filled = vec![false; BINS];
            for (bin, index) in list.bins(&self.blocks) {
                filled[bin.index()] = true;
                hold(5, self.blocks[index].list as usize == number, || {
                    format!("{:?} stands in list {number}", self.blocks[index])
                })?;
            }
            for bin in 0..BINS as u16 {
                let says = list.bitmap.contains(Bin(bin));
                hold(5, says == filled[bin as usize], || {
                    format!("list {number} says {says} of bin {bin}")
                })?;
            }
            hold(5, list.bitmap.levels_agree(), || {
                format!("list {number}: the levels of its bitmap differ")
            })?;
        }
        Ok(())
    }

    fn check_i6_live_addresses_lead_to_their_block(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut mapped = 0;
        for &(index, block) in tiles {
            let found = self.map.find(&self.blocks, block.address);
            let must = matches!(
                block.state,
                BlockState::Live | BlockState::Pending | BlockState::Quarantined
            );
            let may = must || block.state == BlockState::Claimed;
            hold(6, !must || found == Some(index), || format!("{block:?} is not in the map"))?;
            // Two blocks may start at one address when the segment of one is being given back.
            hold(6, may || found != Some(index), || format!("{block:?} is in the map"))?;
            mapped += usize::from(found == Some(index));
        }
        hold(6, mapped == self.map.len(), || {
            format!("{mapped} blocks are in the map, which counts {}", self.map.len())
        })
    }

    fn check_i7_sizes_are_whole_quanta(&self, tiles: &Tiles) -> Result<(), Broken> {
        for (_, block) in tiles {
            let whole = block.bytes.is_multiple_of(QUANTUM)
                && block.address.is_multiple_of(QUANTUM)
                && block.bytes > 0;
            let served = block.state != BlockState::Live || block.requested <= block.bytes;
            hold(7, whole && served, || format!("{block:?}"))?;
        }
        Ok(())
    }

    fn check_i8_counters_agree(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut sums = [[0u64; 6]; 2];
        for &(index, block) in tiles {
            let class = self.list(block.list).class as usize;
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
            BlockState::Claimed => self.map.find(&self.blocks, block.address) == Some(index),
            _ => false,
        }
    }

    fn check_i8_accounts_agree(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut sums = vec![0u64; self.lists.len()];
        for (index, block) in tiles {
            if self.is_active(*index, block) {
                sums[block.list as usize] += block.bytes;
            }
        }
        for (list, bytes) in self.lists.iter().zip(sums) {
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
        let count = |state| self.granules.iter().filter(|granule| granule.1 == state).count();
        let bytes = |state| count(state) as u64 * self.config.granule_bytes;
        let classes = small.reserved_bytes.current + large.reserved_bytes.current;
        let least = classes + bytes(GranuleState::Idle);
        let most = least + bytes(GranuleState::Planned);
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
        let segments = self.segments.iter().count() as u64;
        hold(8, stats.all.segments.current == segments, || {
            format!("{segments} segments, {} counted", stats.all.segments.current)
        })
    }

    fn reserved_by_walk(&self, class: usize) -> u64 {
        self.segments
            .iter()
            .filter(|(_, segment)| self.list(segment.list).class as usize == class)
            .map(|(number, segment)| match segment.kind {
                SegmentKind::Plain => segment.bytes,
                SegmentKind::Mapped => {
                    let places = (0..segment.slot_count() as u32)
                        .map(|slot| Place { segment: number, slot });
                    let backed = places.filter(|&place| self.is_backed(place));
                    backed.count() as u64 * self.config.granule_bytes
                }
            })
            .sum()
    }

    fn check_i9_pending_blocks_wait(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut waits = vec![0usize; self.blocks.capacity()];
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
            let Some(segment) = self.segments.get(block.segment) else {
                continue;
            };
            let (own, home) = (self.list(block.list), self.list(segment.list));
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
}
