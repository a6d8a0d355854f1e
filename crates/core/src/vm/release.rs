//! Giving memory back: unmapping what only leads to memory that is used elsewhere, and releasing
//! handles at home.

use crate::id::GranuleId;
use std::ops::Range;

use super::PageTable;
use super::granule::PageAddr;
use crate::plan::Step;
use crate::space::block::Block;

impl PageTable {
    /// Of a block without memory of its own, these ranges were unmapped, which led to others'.
    /// Whether it is no window, or none any more: a whole one that leads nowhere is forgotten.
    pub(crate) fn unmap_aliases(&mut self, block: &Block, unmapped: &[Range<u64>]) -> bool {
        let segment = block.segment;
        for range in unmapped {
            for page in self.span(segment, range.clone()).pages() {
                if let Some(granule) = self.pages(segment).granule(page) {
                    self.granules.remove_mapping(granule, PageAddr { segment, page: page as u32 });
                }
                self.pages_mut(segment).unmap(page);
            }
        }
        if !block.is_window {
            return true;
        }
        self.renew_runs(block);
        let span = self.under(block);
        let is_over = span.is_whole_window() && span.is_unmapped();
        if is_over {
            let first = span.pages().start;
            self.pages_mut(segment).remove_window(first);
        }
        is_over
    }

    /// Plans to unmap a block at home and to release what is behind it: adds the steps, and
    /// returns the handles.
    pub(crate) fn plan_release(&mut self, block: &Block, steps: &mut Vec<Step>) -> Vec<GranuleId> {
        let handles = self.plan_unmap_home(block, steps);
        steps.extend(handles.iter().map(|&granule| Step::Release { granule }));
        handles
    }

    /// Plans to unmap a block at home: adds the step, and returns the handles behind it.
    pub(crate) fn plan_unmap_home(
        &mut self,
        block: &Block,
        steps: &mut Vec<Step>,
    ) -> Vec<GranuleId> {
        let granules = self.under(block).mapped_pages().map(|(_, granule)| granule);
        let handles: Vec<GranuleId> =
            granules.filter(|&granule| self.granules.before(granule) == 0).collect();
        assert!(!handles.is_empty(), "memory is released where there is none");
        assert!(!self.pins.touch(block.range()), "pinned memory is released");
        steps.push(Step::Unmap { address: block.address, bytes: block.bytes });
        for &granule in &handles {
            let is_alone = self.granules.mappings(granule).is_empty();
            assert!(is_alone, "a handle is released with aliases");
            self.granules.plan(granule);
        }
        handles
    }

    /// Takes the handles for a plan that are created, back nothing and are mapped nowhere.
    pub(crate) fn take_releasable_idle(&mut self) -> Vec<GranuleId> {
        let mut idle = self.granules.idle().to_vec();
        idle.retain(|&granule| self.granules.mappings(granule).is_empty());
        self.granules.take_idle(&idle);
        idle
    }

    /// A handle that is mapped nowhere was released, or could not be. Returns the bytes released.
    pub(crate) fn finish_release(&mut self, handle: GranuleId, is_done: bool) -> u64 {
        if is_done {
            let granules = self.granules.handle(handle).len() as u64;
            self.granules.set_vacant(handle);
            granules * self.granule_bytes
        } else {
            self.granules.set_idle(handle);
            0
        }
    }

    /// A block at home was unmapped; or could not be, and is backed as before.
    pub(crate) fn finish_unmap_home(&mut self, block: &Block, is_done: bool) {
        assert!(!block.is_window, "a window is unmapped as a home");
        for (page, granule) in self.under(block).mapped_pages().collect::<Vec<_>>() {
            if is_done {
                self.pages_mut(page.segment).unmap(page.page as usize);
            } else {
                self.granules.set_backing(granule, page);
            }
        }
    }
}
