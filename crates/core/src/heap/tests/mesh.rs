//! Meshes with a bug: the check of the heap names the invariant.

use super::*;
use crate::Step;
use crate::space::block::{BlockIndex, BlockState};
use crate::vm::mesh::Mesh;

const GRANULE: u64 = 4 << 20;

/// A heap of four pages on two granules, with what is meshed.
fn meshed() -> (Heap, Vec<BlockIndex>) {
    let config = Config::new(SegmentKind::Mapped, GRANULE, 4 * GRANULE);
    let mut heap = Heap::new(Config { prefer: Prefer::Memory, ..config });
    let stream = heap.add_stream();
    let mut ask = || request(&mut heap, PoolId::DEFAULT, stream, GRANULE / 2, Reuse::OwnStream);
    let blocks: Vec<Granted> = (0..8).map(|_| ask()).collect();
    for at in [0, 2, 5, 7] {
        heap.free(blocks[at].address).unwrap();
    }
    while let Some(plan) = heap.plan_compaction_for(2 * GRANULE) {
        heap.commit(plan, 0);
        heap.check().unwrap();
    }
    assert_eq!((heap.stats().moves, Mesh::all(&heap.vm).len()), (2, 2));
    let all = heap.space.segments.iter().flat_map(|(_, one)| heap.space.blocks.onward(one.first));
    let is_meshed = |index: &BlockIndex| heap.space.blocks[*index].state == BlockState::Meshed;
    let meshed = all.filter(is_meshed).collect();
    (heap, meshed)
}

#[test]
fn i13_what_is_meshed_is_given_away() {
    let (_, all) = meshed();
    assert_eq!(all.len(), 4);
    for at in 0..all.len() {
        let (mut heap, meshed) = meshed();
        heap.space.file(meshed[at]);
        assert_eq!(heap.check().unwrap_err().invariant, 13);
    }
}

/// Its own page is forgotten: unmapped there, as far as the page table knows.
#[test]
fn i13_a_guest_is_forgotten() {
    let (mut heap, _) = meshed();
    let start = Mesh::all(&heap.vm)[0].guest.start;
    let unmap = Step::Unmap { address: start, bytes: GRANULE };
    heap.vm.commit(&heap.space.segments, &[unmap]);
    assert_eq!(heap.check().unwrap_err().invariant, 13);
}
