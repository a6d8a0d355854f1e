//! New memory: handles created, or created before and backing nothing, mapped where they will be at
//! home. And those that back nothing, given back.

use crate::id::GranuleId;

use super::PageTable;
use crate::plan::{Place, Step};
use crate::space::block::Block;

/// What a growth takes.
#[derive(Debug)]
pub(crate) struct NewPhysical {
    /// Size of all of it.
    pub(crate) bytes: u64,
    /// Handles that back nothing.
    idle: Vec<GranuleId>,
    /// How many granules are to be created.
    missing: usize,
    /// Their bytes.
    pub(crate) created_bytes: u64,
    /// How many of them a new handle gets at most.
    most: u16,
    /// The last one is a handle by itself.
    is_last_alone: bool,
}

impl NewPhysical {
    /// Whether the last granule is a handle by itself: two blocks share it.
    pub(crate) fn with_last_alone(self, is_last_alone: bool) -> Self {
        Self { is_last_alone, ..self }
    }

    /// Whether some of it is created in handles of several granules.
    pub(crate) const fn creates_large_handles(&self) -> bool {
        self.most > 1 && self.missing > 1
    }
}

/// Names a handle of this size that another process made. It backs nothing. `None` if that is
/// no size of a handle.
pub(crate) fn adopt(table: &mut PageTable, bytes: u64) -> Option<GranuleId> {
    let granules = u16::try_from(bytes / table.granule_bytes).ok()?;
    if granules == 0 || !bytes.is_multiple_of(table.granule_bytes) {
        return None;
    }
    let granule = table.granules.name(granules);
    table.granules.set_idle(granule);
    Some(granule)
}

/// The size of a handle of the device's memory that nobody else knows.
pub(crate) fn loose_bytes(table: &PageTable, granule: GranuleId) -> Option<u64> {
    let is_known = table.granules.is_shared(granule) || table.granules.is_on_host(granule);
    (!is_known).then(|| table.handle_bytes(granule))
}

impl PageTable {
    /// What a growth by so many bytes takes, in new handles of at most so many granules: handles
    /// that back nothing, then new ones. In place of new ones it may take a handle that backs
    /// nothing and reaches beyond by so many bytes.
    pub(crate) fn new_physical(&self, bytes: u64, beyond_bytes: u64, most: u16) -> NewPhysical {
        assert!(bytes.is_multiple_of(self.granule_bytes), "new memory is not of whole granules");
        let granules_of = |id| self.granules.handle(id).len();
        let mut missing = (bytes / self.granule_bytes) as usize;
        let mut idle: Vec<GranuleId> = self.granules.idle().collect();
        // The largest first: they leave the least over.
        idle.sort_by_cached_key(|&id| self.handle_bytes(id));
        idle.reverse();
        // The smallest of those that are too large.
        let mut above = None;
        idle.retain(|&id| {
            let is_taken = granules_of(id) <= missing;
            if is_taken {
                missing -= granules_of(id);
            } else {
                above = Some(id);
            }
            is_taken
        });
        let mut over = 0;
        let over_most = beyond_bytes / self.granule_bytes;
        let is_near =
            |&id: &GranuleId| missing > 0 && (granules_of(id) - missing) as u64 <= over_most;
        if let Some(above) = above.filter(is_near) {
            over = granules_of(above) - missing;
            missing = 0;
            // It may do for some of the others, too.
            idle.retain(|&id| {
                let is_needed = granules_of(id) > over;
                over -= if is_needed { 0 } else { granules_of(id) };
                is_needed
            });
            idle.push(above);
        }
        let bytes = bytes + over as u64 * self.granule_bytes;
        let created_bytes = missing as u64 * self.granule_bytes;
        NewPhysical { bytes, idle, missing, created_bytes, most, is_last_alone: false }
    }

    /// Names new handles for the granules that are missing, as few as hold them.
    fn name_handles(&mut self, new: &NewPhysical) -> Vec<GranuleId> {
        let most = usize::from(new.most);
        assert!(most > 0, "handles have no granules");
        let last = usize::from(new.is_last_alone && new.missing > 0);
        let others = new.missing - last;
        let sizes = (0..others).step_by(most).map(|at| most.min(others - at));
        let sizes = sizes.chain((last > 0).then_some(last));
        sizes.map(|size| self.granules.name(size as u16)).collect()
    }

    /// Plans to map new memory behind a block, which it fills.
    pub(crate) fn plan_growth(&mut self, block: &Block, new: NewPhysical) -> Vec<Step> {
        let mut address = block.address;
        let pages = (block.bytes / self.granule_bytes) as usize;
        let mut steps = Vec::with_capacity(2 * pages + 1);
        let named = self.name_handles(&new);
        self.granules.take_idle(&new.idle);
        let idle = new.idle.into_iter().map(|granule| (granule, false));
        for (granule, is_new) in idle.chain(named.into_iter().map(|granule| (granule, true))) {
            let bytes = self.handle_bytes(granule);
            if is_new {
                let place = Place::Device;
                steps.push(Step::Create { granule, bytes, place });
            }
            steps.push(Step::Map { address, bytes, granule });
            address += bytes;
        }
        assert!(address == block.end(), "new memory does not fill its place");
        steps.push(Step::SetAccess { address: block.address, bytes: block.bytes });
        steps
    }

    /// Plans to release handles that are created, back nothing and are mapped nowhere: all, or all
    /// of the host's memory and so many bytes of the device's, in as few handles as hold them.
    /// Takes them, and adds the steps.
    pub(crate) fn plan_idle_release(&mut self, bytes: Option<u64>, steps: &mut Vec<Step>) {
        let is_alone = |granule: &GranuleId| self.granules.mappings(*granule).is_empty();
        let mut idle: Vec<GranuleId> = self.granules.all_idle().filter(is_alone).collect();
        if let Some(mut left) = bytes {
            let is_on_host = |id: &mut GranuleId| self.granules.is_on_host(*id);
            let mut taken: Vec<GranuleId> = idle.extract_if(.., is_on_host).collect();
            idle.sort_by_cached_key(|&id| self.handle_bytes(id));
            while left > 0 && !idle.is_empty() {
                // The smallest that will do, else the largest.
                let at =
                    idle.partition_point(|&id| self.handle_bytes(id) < left).min(idle.len() - 1);
                let id = idle.remove(at);
                left = left.saturating_sub(self.handle_bytes(id));
                taken.push(id);
            }
            idle = taken;
        }
        self.granules.take_idle(&idle);
        steps.extend(idle.into_iter().map(|granule| Step::Release { granule }));
    }
}
