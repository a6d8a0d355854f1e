//! What a live block is made of, for those who give it to other processes.
//!
//! A live block keeps its handles, and these stay where they are (I13): nothing need be pinned for
//! as long as it is not freed.

use super::Heap;
use crate::error::FreeError;
use crate::policy::SegmentKind;
use crate::vm::handles::HandleAt;

impl Heap {
    /// The handles that the live block at an address leads to, as a whole and in order; `None` if
    /// it is plain memory, which has none.
    ///
    /// # Errors
    /// There is no such block.
    pub fn handles_of(&self, address: u64) -> Result<Option<Vec<HandleAt>>, FreeError> {
        let block = &self.space.blocks[self.space.find_live(address)?];
        Ok(match self.space.list(block.list).kind {
            SegmentKind::Mapped => Some(self.vm.under(block).handles()),
            SegmentKind::Plain => None,
        })
    }
}
