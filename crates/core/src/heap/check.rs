//! The invariants of the heap, one function each. Numbers as in `docs/inside/invariants.md`. Those
//! of the block space and of the page table alone are proved there (`space::check`, `vm::check`).
//!
//! O(n) in the number of blocks: for tests, fuzzing and debugging, not for every operation.

#[cfg(test)]
mod tests;

use std::iter::once;

use super::Heap;
use crate::broken::{Broken, hold};
use crate::check as shared;
use crate::counters::Counters;
use crate::id::PoolId;
use crate::policy::SegmentKind;
use crate::space::block::{Block, BlockIndex, BlockState, NO_USES};
use crate::space::check::Tiles;
use crate::vm::mesh::Mesh;

/// Proves every invariant of a heap. The error is the first one that does not hold.
pub(super) fn check(heap: &Heap) -> Result<(), Broken> {
    let tiles = heap.space.check_i1_blocks_tile_their_segment()?;
    heap.space.check_i2_free_neighbours_are_joined(&tiles)?;
    check_i3_filed_once(heap, &tiles)?;
    heap.space.check(&tiles)?;
    let [small, large] = &heap.stats.classes;
    let classes_bytes = small.reserved_bytes.current + large.reserved_bytes.current;
    let is_private = |address| match heap.space.segments.containing(address) {
        Some(ix) if heap.space.segments[ix].kind == SegmentKind::Plain => None,
        found => {
            Some(found.is_some_and(|ix| heap.space.of_segment(ix).pool != PoolId::DEFAULT.index))
        }
    };
    let reserved_bytes = heap.stats.all.reserved_bytes.current;
    heap.vm.check(reserved_bytes, classes_bytes, is_private)?;
    check_i8_counters_agree(heap, &tiles)?;
    check_i9_pending_blocks_wait(heap, &tiles)?;
    check_i12_pools_keep_to_themselves(heap, &tiles)?;
    check_i5_memory_of_others_is_known(heap, &tiles)?;
    check_i8_lists_agree(heap, &tiles)?;
    check_i13_blocks_are_backed(heap, &tiles)?;
    check_i13_shared_granules_have_one_use(heap, &tiles)
}

fn check_i3_filed_once(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    let mut filed = vec![0u8; heap.space.blocks.capacity()];
    let mut stands = |index: BlockIndex, state| {
        let block = &heap.space.blocks[index];
        filed[index.0 as usize] += 1;
        hold(3, block.state == state, || format!("{block:?} stands among the {state:?}"))?;
        let Some(next) = block.filed_next.some() else {
            return Ok(());
        };
        let is_chained = matches!(state, BlockState::Free | BlockState::Unmapped);
        hold(3, !is_chained || heap.space.blocks[next].filed_previous == index, || {
            format!("{:?} does not know that it follows {block:?}", heap.space.blocks[next])
        })
    };
    for (number, list) in heap.space.lists().iter().enumerate() {
        for (_, index) in list.bins(&heap.space.blocks) {
            stands(index, BlockState::Free)?;
        }
        for &index in list.trail.unjoined() {
            stands(index, BlockState::Unjoined)?;
        }
        for index in list.unmapped.into_iter().flat_map(|head| heap.space.blocks.filed_from(head)) {
            stands(index, BlockState::Unmapped)?;
            let block = &heap.space.blocks[index];
            let of = heap.space.segments[block.segment].list.index();
            hold(3, of == number && block.list.index() == number, || {
                format!("{block:?} stands in list {number}, not in its segment's")
            })?;
        }
    }
    for (key, index) in heap.space.idle_windows.iter() {
        stands(index, BlockState::IdleWindow)?;
        let block = &heap.space.blocks[index];
        hold(3, heap.space.window_key(index, heap.config().granule_bytes) == key, || {
            format!("{block:?} stands as {key:?}")
        })?;
    }
    for &index in &heap.quarantine {
        // What a copy may still write to is claimed.
        let state = heap.space.blocks[index].state;
        let is_claimed = state == BlockState::Claimed;
        stands(index, if is_claimed { state } else { BlockState::Quarantined })?;
    }
    for &(index, block) in tiles {
        let found = filed[index.0 as usize];
        let expected = match block.state {
            BlockState::Free | BlockState::Unjoined | BlockState::Unmapped => 1..=1,
            BlockState::IdleWindow if heap.vm.under(&block).is_whole_window() => 1..=1,
            // A synchronisation under way has taken them along.
            BlockState::Quarantined | BlockState::Claimed => 0..=1,
            BlockState::Live
            | BlockState::Pending
            | BlockState::Remapped
            | BlockState::Meshed
            | BlockState::IdleWindow => 0..=0,
        };
        hold(3, expected.contains(&found), || format!("{block:?} is filed {found} times"))?;
    }
    Ok(())
}

fn check_i8_counters_agree(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    let mut walked = Counters::default();
    for (_, block) in tiles.iter().filter(|(index, block)| is_active(heap, *index, block)) {
        let class = heap.space.list(block.list).class as usize;
        walked.count(class, block.requested, block.bytes, block.state);
    }
    for (ix, segment) in heap.space.segments.iter() {
        let whole = segment.address..segment.address + segment.bytes;
        let class = &mut walked.classes[heap.space.list(segment.list).class as usize];
        class.reserved_bytes.add(match segment.kind {
            SegmentKind::Plain => segment.bytes,
            SegmentKind::Mapped => heap.vm.span(ix, whole).backed_bytes(),
        });
        class.segments.add(1);
        walked.all.segments.add(1);
    }
    walked.all.reserved_bytes = heap.stats.all.reserved_bytes;
    shared::check_i8_counters(heap.stats.read(), walked.read())
}

/// Live, or freed but not settled; of claimed blocks those whose free is under way.
fn is_active(heap: &Heap, index: BlockIndex, block: &Block) -> bool {
    match block.state {
        BlockState::Live | BlockState::Pending | BlockState::Quarantined => true,
        BlockState::Claimed => {
            heap.space.map.find(&heap.space.blocks, block.address) == Some(index)
        }
        _ => false,
    }
}

fn check_i8_lists_agree(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    // What is active, leaving, and free.
    let mut sums = vec![[0u64; 3]; heap.space.lists().len()];
    for (index, block) in tiles {
        let [active, leaving, free] = &mut sums[block.list.index()];
        if is_active(heap, *index, block) {
            *active += block.bytes;
            *leaving += if block.state == BlockState::Live { 0 } else { block.bytes };
        }
        *free += if block.state.is_free() { block.bytes } else { 0 };
    }
    for (list, [active, leaving, free]) in heap.space.lists().iter().zip(sums) {
        let of = (list.pool, list.class, list.stream);
        shared::check_i8_gauge(list.active_bytes.read(), active, of)?;
        let (found, held) = ((leaving, free), (list.leaving_bytes, list.free_bytes));
        hold(8, found == held, || {
            format!("{of:?}: {found:?} bytes are leaving and free, not {held:?}")
        })?;
    }
    Ok(())
}

fn check_i9_pending_blocks_wait(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    let blocks = tiles.iter().map(|(index, block)| {
        // A free block's number is no index of uses (I5).
        let uses = if block.state == BlockState::Free { NO_USES } else { block.uses };
        (*index, block.state == BlockState::Pending, uses)
    });
    shared::check_i9_waiting(&heap.streams, blocks)
}

fn check_i12_pools_keep_to_themselves(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    for (_, block) in tiles {
        let segment = &heap.space.segments[block.segment];
        let (own, home) = (heap.space.list(block.list), heap.space.list(segment.list));
        hold(12, own.pool == home.pool && own.class == home.class, || {
            format!("{block:?} left its pool or class")
        })?;
        let pool = heap.pools.at(home.pool);
        hold(12, segment.kind == home.kind && home.kind == pool.kind, || {
            format!("a {:?} segment in a pool of {:?} ones", segment.kind, pool.kind)
        })?;
        let is_part = block.bytes < segment.bytes;
        hold(17, pool.is_split || !is_part, || format!("{block:?} has a part of its segment"))?;
    }
    Ok(())
}

fn check_i5_memory_of_others_is_known(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    for (_, block) in tiles.iter().filter(|(_, block)| !block.is_window) {
        let is_own = heap.space.segments[block.segment].list == block.list;
        hold(5, is_own || heap.space.list(block.list).has_others, || {
            format!("{block:?} stands in a list that knows of no memory of others")
        })?;
    }
    let known = heap.space.lists_with_others();
    let knowing = heap.space.lists().iter().filter(|list| list.has_others).count();
    hold(5, knowing == known.len(), || format!("{knowing} lists, not {known:?}, have others'"))
}

/// Outside of plans under way, blocks that are unmapped, remapped or idle windows have no memory
/// of their own, and all others have it throughout. A page is part of a remapped block if and
/// only if it is the home of a granule that backs another page.
fn check_i13_blocks_are_backed(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    for &(index, block) in tiles {
        let segment = &heap.space.segments[block.segment];
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
        for page in heap.vm.under(&block).views() {
            let knows = !is_remapped || page.remapped == index;
            let agrees = match block.state {
                BlockState::Meshed => page.is_shared,
                state => page.is_backed == state.is_backed(),
            };
            hold(13, agrees && page.is_remapped == is_remapped && knows, || {
                format!("{block:?} lies on {page:?}")
            })?;
        }
    }
    Ok(())
}

/// Each byte of a shared granule belongs to one of its pages, and is meshed in the others.
fn check_i13_shared_granules_have_one_use(heap: &Heap, tiles: &Tiles) -> Result<(), Broken> {
    let mut meshes = Mesh::all(&heap.vm);
    meshes.sort_by_cached_key(|mesh| mesh.host.start);
    for meshes in meshes.chunk_by(|one, other| one.host == other.host) {
        let (mut parts, mut is_leaving) = (Vec::new(), false);
        let host = &meshes[0].host;
        for page in once(host).chain(meshes.iter().map(|mesh| &mesh.guest)) {
            for (_, block) in tiles {
                let within = |at: u64| at.clamp(page.start, page.end) - page.start;
                // A plan is about to unmap it.
                let leaves = block.state == BlockState::Claimed && block.range() == *page;
                is_leaving |= leaves;
                let part = (within(block.address), within(block.end()));
                if part.0 < part.1 && block.state != BlockState::Meshed && !leaves {
                    parts.push(part);
                }
            }
        }
        parts.sort_unstable();
        let ends = once(0).chain(parts.iter().map(|part| part.1));
        let starts = parts.iter().map(|part| part.0);
        let starts = starts.chain(once(heap.config().granule_bytes));
        let mut between = ends.zip(starts);
        let is_one = between.all(|(end, start)| end == start || (is_leaving && end < start));
        hold(13, is_one, || {
            format!("of the granule at {:#x} these are in use: {parts:x?}", host.start)
        })?;
    }
    Ok(())
}
