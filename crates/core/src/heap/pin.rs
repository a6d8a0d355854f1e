//! Pinning blocks, and what is pinned and on loan (I16, `crate::pin`).

use super::Heap;
use crate::error::FreeError;
use crate::policy::SegmentKind;
use crate::stats::RemapStats;

impl Heap {
    /// Pins the live block that starts at an address. Pins of one address add up.
    ///
    /// # Errors
    /// There is no such block.
    pub fn pin_mapping(&mut self, address: u64) -> Result<(), FreeError> {
        let index = self.find_live(address)?;
        let block = &self.blocks[index];
        let pinned = address..block.end();
        let covered = match self.list(block.list).kind {
            SegmentKind::Mapped => self.handles_around(block.segment, pinned.clone()),
            SegmentKind::Plain => pinned.clone(),
        };
        self.pins.pin(pinned, covered);
        Ok(())
    }

    /// Takes a pin of an address back, whether the block is live still or not. False if there is
    /// none.
    pub fn unpin_mapping(&mut self, address: u64) -> bool {
        let left = self.pins.unpin(address);
        if left == Some(0) {
            self.send_all_home();
        }
        left.is_some()
    }

    /// What is out on loan and what is pinned.
    pub fn remap_stats(&self) -> RemapStats {
        RemapStats {
            granule_bytes: self.config().granule_bytes,
            remapped_granules: self.remapped_granules,
            aliases: self.granules.mapping_count() as u64,
            pinned_bytes: self.pins.bytes(),
        }
    }
}
