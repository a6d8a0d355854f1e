//! The blocks that were live before recording began.
//!
//! They are those that the program freed although no entry allocated them, and those that still
//! are allocated at the end although no entry speaks of them. Invariant: one block at most for
//! each address, in address order.

use std::collections::{BTreeMap, HashSet};

use super::converter::{Converter, Step};
use crate::model::Kind;
use crate::snapshot::{Action, BlockState, PoolId, StackId};

/// A block that was live.
struct Old {
    bytes: u64,
    stream: u64,
    pool: Option<PoolId>,
    stack: Option<StackId>,
}

/// Allocates them, at time 0, and marks the end of that. Returns how many there are.
pub(super) fn allocate(converter: &mut Converter<'_>) -> Step<u32> {
    let old = old(converter);
    let count = old.len();
    for (address, block) in old {
        converter.take(0, address, block.bytes, block.stream, block.pool, block.stack)?;
    }
    if count > 0 {
        converter.mark(0, Kind::Iteration)?;
    }
    // Cannot truncate: the builder numbers live blocks with 32 bits.
    Ok(count as u32)
}

fn old(converter: &Converter<'_>) -> BTreeMap<u64, Old> {
    let mut old = BTreeMap::new();
    let mut seen = HashSet::new();
    for (index, entry) in converter.entries.iter().enumerate() {
        match entry.action {
            Action::FreeRequested if seen.insert(entry.address) => {
                let pool = converter.pool_of(index, entry);
                let (bytes, stream) = (entry.bytes, entry.stream);
                old.insert(entry.address, Old { bytes, stream, pool, stack: None });
            }
            // A completion alone is the end of a free from before.
            Action::Alloc | Action::FreeCompleted => drop(seen.insert(entry.address)),
            _ => {}
        }
    }
    for segment in &converter.segments {
        for block in &segment.blocks {
            if block.state == BlockState::Allocated && !seen.contains(&block.address) {
                let bytes = block.requested_bytes.clamp(1, block.bytes.max(1));
                let (stream, pool, stack) = (segment.stream, segment.pool, block.stack);
                old.insert(block.address, Old { bytes, stream, pool, stack });
            }
        }
    }
    old
}
