//! Pins of a heap's memory, and what goes home once they are over.

use std::ops::Range;

use super::Heap;
use crate::error::FreeError;
use crate::policy::SegmentKind;
use crate::space::block::BlockState;
use crate::vm::pins::PinKey;

impl Heap {
    /// Pins the live block that starts at an address: its memory stays where it is (I16). Pins of
    /// one address add up.
    ///
    /// # Errors
    /// There is no such block.
    pub fn pin_mapping(&mut self, address: u64) -> Result<(), FreeError> {
        let index = self.space.find_live(address)?;
        let block = &self.space.blocks[index];
        self.vm.pin(PinKey::Block(address), block.segment, block.range());
        Ok(())
    }

    /// Pins what addresses of one segment lead to, whichever blocks lie there (I16). Pins of one
    /// range add up.
    ///
    /// # Errors
    /// They are none, or not those of one segment, or do not all lead to memory; or what they lead
    /// to is about to go.
    pub fn pin_range(&mut self, addresses: Range<u64>) -> Result<(), FreeError> {
        let unknown = FreeError::Unknown { address: addresses.start };
        if addresses.is_empty() {
            return Err(unknown);
        }
        let index = self.space.segments.holding(&addresses)?;
        let is_backed = self.space.segments[index].kind == SegmentKind::Plain
            || self.vm.span(index, addresses.clone()).views().all(|page| page.is_backed);
        let blocks = self.space.within(&addresses);
        let goes = blocks.iter().any(|&at| self.space.blocks[at].state == BlockState::Claimed);
        if !is_backed || goes {
            return Err(unknown);
        }
        self.vm.pin(PinKey::Range(addresses.start, addresses.end), index, addresses);
        Ok(())
    }

    /// Takes a pin of an address back, whether the block is live still or not. False if there is
    /// none.
    pub fn unpin_mapping(&mut self, address: u64) -> bool {
        self.unpin(PinKey::Block(address))
    }

    /// Takes a pin of a range back, whatever lies there now. False if there is none.
    pub fn unpin_range(&mut self, addresses: Range<u64>) -> bool {
        self.unpin(PinKey::Range(addresses.start, addresses.end))
    }

    fn unpin(&mut self, key: PinKey) -> bool {
        let covered = self.vm.unpin(key);
        if let Some(Some(covered)) = &covered {
            self.windows().send_home_within(covered);
        }
        covered.is_some()
    }
}
