//! A page table by itself: it follows the steps of plans. And what breaks one, to check the checks.

use super::PageTable;
use crate::broken::Broken;
use crate::id::{ListIx, SegmentIx};
use crate::plan::Step;
use crate::policy::SegmentKind;
use crate::space::block::Block;
use crate::space::segment::{Segment, Segments};

impl PageTable {
    /// Swaps the first two runs that are noted of a window.
    pub(crate) fn corrupt_runs(&mut self, segment: SegmentIx, window: u64) {
        let first = self.page_at(segment, window);
        let mut runs = self.pages(segment).runs(first).to_vec();
        assert!(runs.len() > 1);
        runs.swap(0, 1);
        self.pages_mut(segment).set_runs(first, runs);
    }

    /// Lets a page lead where another does, or nowhere, and tells nobody.
    pub(crate) fn corrupt_map(&mut self, segment: SegmentIx, from: Option<usize>, to: usize) {
        let granule = from.and_then(|from| self.pages(segment).granule(from));
        let pages = self.pages_mut(segment);
        pages.unmap(to);
        if let Some(granule) = granule {
            pages.map(to, granule, true);
        }
    }

    /// Proves I16 alone: what breaks it breaks I13 first.
    pub(crate) fn check_pins(&self) -> Result<(), Broken> {
        self.check_i16_pinned_memory_stays(|_| Some(false))
    }
}

const GRANULE: u64 = 2 << 20;

/// A page table with one segment of homes, and a block over all eight pages of it.
fn sample() -> (PageTable, Segments, Block) {
    let (mut table, mut segments) = (PageTable::new(GRANULE), Segments::default());
    let (address, bytes, list) = (16 * GRANULE, 8 * GRANULE, ListIx(0));
    let segment = Segment::new(SegmentKind::Mapped, address, bytes, list, false);
    let ix = segments.insert(segment);
    table.add_segment(ix, address, false);
    (table, segments, Block::claimed(address, bytes, ix, list, false))
}

/// Plans to fill the block: two handles of four granules.
fn plan(table: &mut PageTable, block: &Block) -> Vec<Step> {
    let new = table.new_physical(block.bytes, 0, 4);
    table.plan_growth(block, new)
}

#[test]
fn the_map_follows_the_steps_that_were_done() {
    let (mut table, segments, block) = sample();
    let steps = plan(&mut table, &block);
    assert_eq!(table.commit(&segments, &steps), 0);
    assert_eq!((table.figures().granules, table.figures().idle_bytes), (8, 0));
    assert_eq!(table.under(&block).backed_bytes(), block.bytes);
    let handles = table.under(&block).handles();
    let release = handles.iter().map(|handle| Step::Release { granule: handle.granule });
    let unmap = Step::Unmap { address: block.address, bytes: block.bytes };
    let steps: Vec<Step> = std::iter::once(unmap).chain(release).collect();
    // All but the last: that handle stays, and is the next growth's.
    assert_eq!(table.commit(&segments, &steps[..2]), 4 * GRANULE);
    table.abandon(&segments, &steps[2..], 0);
    assert!(table.under(&block).is_unmapped());
    assert_eq!((table.figures().granules, table.figures().idle_bytes), (4, 4 * GRANULE));
    table.check(4 * GRANULE, 0, |_| Some(false)).unwrap();
    assert_eq!(table.new_physical(block.bytes, 0, 4).created_bytes, 4 * GRANULE);
}

#[test]
fn what_could_not_be_undone_is_idle_behind_an_alias() {
    let (mut table, segments, block) = sample();
    let steps = plan(&mut table, &block);
    // The first handle was created and mapped, the second was not.
    table.abandon(&segments, &steps, 2);
    let half = block.address..block.address + 4 * GRANULE;
    assert_eq!(table.under(&block).mapped_ranges(), [half]);
    assert_eq!((table.under(&block).backed_bytes(), table.figures().mappings), (0, 4));
    assert_eq!((table.figures().granules, table.figures().idle_bytes), (4, 4 * GRANULE));
    table.check(4 * GRANULE, 0, |_| Some(false)).unwrap();
}
