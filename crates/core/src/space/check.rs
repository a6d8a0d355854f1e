//! Proves what is about blocks alone: I1, I2, I4 to I7 and I18. O(n) in the number of blocks.

use super::Space;
use super::bin::{BINS, Bin};
use super::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::broken::{Broken, hold};
use crate::id::ListIx;
use crate::size::QUANTUM;

/// Every block with its index, segment by segment, in address order within each.
pub(crate) type Tiles = Vec<(BlockIndex, Block)>;

impl Space {
    /// Proves what its tiles alone cannot show.
    pub(crate) fn check(&self, tiles: &Tiles) -> Result<(), Broken> {
        self.check_i4_bins_fit_their_blocks()?;
        self.check_i5_bitmaps_agree_with_lists()?;
        self.check_i5_borders_are_known(tiles)?;
        self.check_i6_live_addresses_lead_to_their_block(tiles)?;
        self.check_i7_sizes_are_whole_quanta(tiles)?;
        self.check_i18_unjoined_blocks_stand_in_their_trail()
    }

    pub(crate) fn check_i1_blocks_tile_their_segment(&self) -> Result<Tiles, Broken> {
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

    pub(crate) fn check_i2_free_neighbours_are_joined(&self, tiles: &Tiles) -> Result<(), Broken> {
        for (_, block) in tiles {
            let Some(next) = block.next.some().map(|next| self.blocks[next]) else {
                continue;
            };
            let both = |state| block.state == state && next.state == state;
            let split =
                both(BlockState::Free) && block.list == next.list || both(BlockState::Unmapped);
            hold(2, !split, || format!("{block:?} and the block after it are not joined"))?;
        }
        Ok(())
    }

    fn check_i4_bins_fit_their_blocks(&self) -> Result<(), Broken> {
        for list in self.lists() {
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
        for (number, list) in self.lists().iter().enumerate() {
            let mut filled = vec![false; BINS];
            for (bin, index) in list.bins(&self.blocks) {
                filled[bin.index()] = true;
                hold(5, self.blocks[index].list.index() == number, || {
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

    fn check_i5_borders_are_known(&self, tiles: &Tiles) -> Result<(), Broken> {
        let mut found = vec![(0, 0); self.lists().len()];
        for &(index, block) in tiles.iter().filter(|(_, block)| block.state == BlockState::Free) {
            let beside = [block.previous, block.next];
            let is_at_border = beside.iter().any(|&i| self.is_free_elsewhere(i, block.list));
            let borders = &self.list(block.list).borders;
            let stands = borders.blocks().get(block.uses as usize) == Some(&index);
            hold(5, stands == is_at_border && (stands || block.uses == NO_USES), || {
                format!("{block:?} is at a border: {is_at_border}")
            })?;
            if stands {
                let (blocks, bytes) = &mut found[block.list.index()];
                (*blocks, *bytes) = (*blocks + 1, *bytes + block.bytes);
            }
        }
        for (number, (list, found)) in self.lists().iter().zip(found).enumerate() {
            let known = (list.borders.blocks().len(), list.borders.bytes());
            hold(5, known == found, || {
                format!("list {number} has {found:?} at borders, and knows of {known:?}")
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
                BlockState::Live
                    | BlockState::Unjoined
                    | BlockState::Pending
                    | BlockState::Quarantined
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

    /// That each unjoined block stands in one list, I3 proves.
    fn check_i18_unjoined_blocks_stand_in_their_trail(&self) -> Result<(), Broken> {
        for (number, list) in self.lists().iter().enumerate() {
            let is_known = self.knows_trail_of(ListIx(number as u32));
            hold(18, is_known, || format!("nobody knows that list {number} has a trail"))?;
            for &index in list.trail.unjoined() {
                let block = &self.blocks[index];
                let is_own = block.list.index() == number;
                hold(18, is_own && !block.is_window && block.uses == NO_USES, || {
                    format!("list {number} has {block:?} in its trail")
                })?;
            }
        }
        Ok(())
    }
}
