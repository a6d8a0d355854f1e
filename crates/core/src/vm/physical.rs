//! New memory: handles created, or created before and backing nothing, mapped where they will be at
//! home.

use crate::id::{GranuleId, SegmentIx};

use super::PageTable;
use super::granule::{GranuleState, PageAddr};
use crate::plan::Step;
use crate::space::block::Block;

/// What a growth takes.
#[derive(Debug)]
pub(crate) struct NewPhysical {
    /// Handles that back nothing.
    idle: Vec<GranuleId>,
    /// How many granules are to be created.
    missing: usize,
    /// Their bytes.
    pub(crate) created_bytes: u64,
    /// How many of them a new handle gets at most.
    most: u16,
}

impl NewPhysical {
    /// Whether some of it is created in handles of several granules.
    pub(crate) const fn creates_large_handles(&self) -> bool {
        self.most > 1 && self.missing > 1
    }
}

impl PageTable {
    /// What a growth by so many bytes takes, in new handles of at most so many granules: handles
    /// that back nothing, then new ones.
    pub(crate) fn new_physical(&self, bytes: u64, most: u16) -> NewPhysical {
        assert!(bytes.is_multiple_of(self.granule_bytes), "new memory is not of whole granules");
        assert!(most.is_power_of_two(), "handles are not of powers of two");
        let missing = (bytes / self.granule_bytes) as usize;
        let mut new = NewPhysical { idle: Vec::new(), missing, created_bytes: 0, most };
        for &id in self.granules.idle().iter().rev() {
            let granules = self.granules.handle(id).len();
            if granules <= new.missing {
                new.missing -= granules;
                new.idle.push(id);
            }
        }
        new.created_bytes = new.missing as u64 * self.granule_bytes;
        new
    }

    /// Size of the smallest handle that backs nothing and is larger than so many bytes, but not by
    /// more than may lie beyond them.
    pub(crate) fn idle_handle_above(&self, bytes: u64, beyond_bytes: u64) -> Option<u64> {
        let size = |&id: &GranuleId| self.granules.handle(id).len() as u64 * self.granule_bytes;
        let larger = self.granules.idle().iter().map(size).filter(|&size| size > bytes);
        let most = bytes.saturating_add(beyond_bytes);
        larger.min().filter(|&size| bytes > 0 && size <= most)
    }

    /// Names new handles for the granules that are missing, each of a power of two of them.
    fn name_handles(&mut self, new: &NewPhysical) -> Vec<GranuleId> {
        let mut handles = Vec::with_capacity(new.missing / usize::from(new.most) + 1);
        let (mut left, mut size) = (new.missing, new.most);
        while left > 0 {
            while usize::from(size) > left {
                size /= 2;
            }
            left -= usize::from(size);
            handles.push(self.granules.name(size));
        }
        handles
    }

    /// Plans to map new memory behind a block, which it fills: the steps, and its handles.
    pub(crate) fn plan_new(
        &mut self,
        block: &Block,
        new: NewPhysical,
    ) -> (Vec<Step>, Vec<GranuleId>) {
        let mut address = block.address;
        let pages = (block.bytes / self.granule_bytes) as usize;
        let mut steps = Vec::with_capacity(2 * pages + 1);
        let named = self.name_handles(&new);
        self.granules.take_idle(&new.idle);
        let (idle, mut handles) = (new.idle.len(), new.idle);
        handles.extend(named);
        for (at, &granule) in handles.iter().enumerate() {
            let bytes = self.granules.handle(granule).len() as u64 * self.granule_bytes;
            if at >= idle {
                steps.push(Step::Create { granule, bytes });
            }
            steps.push(Step::Map { address, bytes, granule });
            address += bytes;
        }
        assert!(address == block.end(), "new memory does not fill its place");
        steps.push(Step::SetAccess { address: block.address, bytes: block.bytes });
        (steps, handles)
    }

    /// New memory is mapped and accessible: this is its home.
    pub(crate) fn finish_new(&mut self, block: &Block, handles: &[GranuleId]) {
        let pages = self.under(block).pages();
        let mut next = pages.start;
        for &handle in handles {
            for granule in self.granules.of_handle(handle) {
                let page = PageAddr { segment: block.segment, page: next as u32 };
                self.map_page(page, granule, true);
                self.granules.set_backing(granule, page);
                next += 1;
            }
        }
        assert!(next == pages.end, "new memory does not fill its place");
    }

    /// New memory could not be mapped. What could not be released stays idle; what could not be
    /// unmapped still leads to it, without access as far as anybody knows. Returns how many bytes
    /// stay created.
    pub(crate) fn undo_new(
        &mut self,
        segment: SegmentIx,
        steps: &[Step],
        in_effect: usize,
        handles: &[GranuleId],
    ) -> u64 {
        assert!(in_effect <= steps.len(), "more steps are in effect than were planned");
        let mut left_bytes = 0;
        for (at, step) in steps.iter().enumerate() {
            if let Step::Create { granule, bytes } = *step {
                if at < in_effect {
                    left_bytes += bytes;
                    self.granules.set_idle(granule);
                } else {
                    self.granules.set_vacant(granule);
                }
            }
        }
        self.note_mapped(segment, &steps[..in_effect], false);
        for &granule in handles {
            if self.granules.state(granule) == GranuleState::Planned {
                self.granules.set_idle(granule);
            }
        }
        left_bytes
    }

    pub(super) fn map_page(&mut self, page: PageAddr, granule: GranuleId, is_open: bool) {
        self.pages_mut(page.segment).map(page.page as usize, granule, is_open);
    }

    /// Pages lead to what steps mapped there, beside its home.
    pub(super) fn note_mapped(&mut self, segment: SegmentIx, steps: &[Step], is_open: bool) {
        for step in steps {
            if let Step::Map { address, granule, .. } = *step {
                assert!(self.granules.before(granule) == 0, "a handle is mapped in part");
                let first = self.page_at(segment, address) as u32;
                for (page, granule) in (first..).zip(self.granules.of_handle(granule)) {
                    let page = PageAddr { segment, page };
                    self.granules.add_mapping(granule, page);
                    self.map_page(page, granule, is_open);
                }
            }
        }
    }
}
