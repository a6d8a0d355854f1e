//! [`UseTable`]: the streams that use a block beside its own, for the few blocks that have any.
//!
//! A block holds an index into the table, or [`NO_USES`]; an index in the table is of one block and
//! has at least one stream.

use crate::id::StreamId;
use crate::space::block::NO_USES;

/// The streams that use a block beside its own, for the few blocks that have such uses.
#[derive(Debug, Default)]
pub(crate) struct UseTable {
    table: Vec<Vec<StreamId>>,
    spare: Vec<u32>,
}

impl UseTable {
    /// Streams recorded under an index; none for [`NO_USES`].
    pub(crate) fn get(&self, uses: u32) -> &[StreamId] {
        self.table.get(uses as usize).map_or(&[], Vec::as_slice)
    }

    /// How many indices are in use.
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.spare.len()
    }

    /// Adds a stream, once. The index is a new one if it was [`NO_USES`].
    pub(crate) fn add(&mut self, uses: &mut u32, stream: StreamId) {
        if *uses == NO_USES {
            *uses = self.spare.pop().unwrap_or_else(|| {
                assert!(self.table.len() < NO_USES as usize, "more uses than indices");
                self.table.push(Vec::new());
                (self.table.len() - 1) as u32
            });
            assert!(self.table[*uses as usize].is_empty(), "two blocks share their uses");
        }
        let streams = &mut self.table[*uses as usize];
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Removes a stream; true if none is left, and the index is [`NO_USES`] again.
    pub(crate) fn remove(&mut self, uses: &mut u32, stream: StreamId) -> bool {
        assert!(*uses != NO_USES, "a use that is over was never recorded");
        let streams = &mut self.table[*uses as usize];
        streams.retain(|&s| s != stream);
        let is_last = streams.is_empty();
        if is_last {
            self.spare.push(std::mem::replace(uses, NO_USES));
        }
        is_last
    }

    /// Removes all streams of an index, which is [`NO_USES`] again.
    pub(crate) fn clear(&mut self, uses: &mut u32) {
        if *uses != NO_USES {
            self.table[*uses as usize].clear();
            self.spare.push(std::mem::replace(uses, NO_USES));
        }
    }
}
