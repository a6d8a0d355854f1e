//! Moves: handles of which only a part is in use, and the steps that give what is live in one other
//! memory behind the same addresses.
//!
//! The new memory is at home where the old one was: no block changes what it is, and what was free
//! beside it becomes addresses without memory. A handle moves as a whole or not at all: none that
//! backs a window, that one leads to, that is pinned, or that others have.

use crate::id::GranuleId;
use std::ops::Range;

use super::PageTable;
use super::granule::PageAddr;
use super::span::Span;
use crate::plan::Step;
use crate::policy;

/// A handle at home, of which some granules are live.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    /// Where it is mapped.
    pub(crate) addresses: Range<u64>,
    granule: GranuleId,
    /// Runs of live granules: where, in granules from its start.
    live: Vec<Range<usize>>,
    /// How many granules are not.
    free: usize,
}

impl Sparse {
    /// How many bytes a move gives back.
    pub(crate) const fn free_bytes(&self, granule_bytes: u64) -> u64 {
        self.free as u64 * granule_bytes
    }

    /// The sizes of the handles that what is live needs, in granules, in order: powers of two.
    fn targets(&self) -> impl Iterator<Item = usize> + '_ {
        self.live.iter().flat_map(|run| {
            let mut left = run.len();
            std::iter::from_fn(move || {
                let size = 1 << left.checked_ilog2()?;
                left -= size;
                Some(size)
            })
        })
    }

    /// What a move costs, in the unit of [`policy::growth_price`].
    pub(crate) fn price(&self) -> u64 {
        let live = self.live.iter().map(|run| run.len() as u64).sum();
        policy::move_price(self.targets().count() as u64, live)
    }

    /// How many bytes a move has to create: for what no handle of the right size backs nothing.
    pub(crate) fn bytes_to_create(&self, table: &PageTable) -> u64 {
        let mut idle: Vec<GranuleId> = table.granules.idle().to_vec();
        let missing = self.targets().filter(|&size| table.take_of_size(&mut idle, size).is_none());
        missing.sum::<usize>() as u64 * table.granule_bytes
    }

    /// Whether a move holds the streams for no longer than they may be.
    pub(crate) fn is_quick(&self) -> bool {
        self.targets().count() <= policy::TARGETS_OF_A_MOVE
    }

    /// The ranges that are not live, in order.
    pub(crate) fn free_ranges(&self, granule_bytes: u64) -> Vec<Range<u64>> {
        let Range { start, end } = self.addresses;
        let at = |granules: usize| start + granules as u64 * granule_bytes;
        let starts = std::iter::once(start).chain(self.live.iter().map(|run| at(run.end)));
        let ends = self.live.iter().map(|run| at(run.start)).chain(std::iter::once(end));
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect()
    }
}

impl Span<'_> {
    /// The handle that it begins in, if that may move: `is_live` tells of a range of one granule
    /// whether anybody may use a byte of it. `None` also where all of it is live, or nothing.
    pub(crate) fn sparse(&self, mut is_live: impl FnMut(Range<u64>) -> bool) -> Option<Sparse> {
        let (table, segment) = (self.table, self.segment);
        let page = table.page_at(segment, self.addresses.start);
        let granule = table.pages(segment).granule(page)?;
        let first = page - table.granules.before(granule);
        let is_movable = table.granules.is_home(granule)
            && table.granules.mappings(granule).is_empty()
            && !table.granules.is_shared(granule);
        let start = table.address_of(PageAddr { segment, page: first as u32 });
        let count = table.granules.handle(granule).len();
        let addresses = start..start + count as u64 * table.granule_bytes;
        let is_pinned = || table.pins.touch(addresses.clone());
        let may_move = count > 1 && is_movable && !is_pinned();
        if !may_move {
            return None;
        }
        let mut live: Vec<Range<usize>> = Vec::new();
        for at in 0..count {
            let start = start + at as u64 * table.granule_bytes;
            if !is_live(start..start + table.granule_bytes) {
                continue;
            }
            match live.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => live.push(at..at + 1),
            }
        }
        let free = count - live.iter().map(ExactSizeIterator::len).sum::<usize>();
        let granule = GranuleId(table.granules.handle(granule).start as u32);
        let is_sparse = free > 0 && free < count;
        is_sparse.then_some(Sparse { addresses, granule, live, free })
    }
}

impl PageTable {
    /// Takes a handle of so many granules out of idle ones that lead nowhere.
    fn take_of_size(&self, idle: &mut Vec<GranuleId>, granules: usize) -> Option<GranuleId> {
        let fits = |&id: &GranuleId| {
            self.granules.handle(id).len() == granules && self.granules.mappings(id).is_empty()
        };
        let at = idle.iter().position(fits)?;
        Some(idle.swap_remove(at))
    }

    /// Plans to move what is live in a handle. What can fail comes first, and until the new memory
    /// is open the old one exists.
    pub(crate) fn plan_move(&mut self, sparse: &Sparse) -> Vec<Step> {
        let mut idle: Vec<GranuleId> = self.granules.idle().to_vec();
        let (mut creates, mut stages, mut copies, mut maps) = (vec![], vec![], vec![], vec![]);
        let sizes: Vec<usize> = sparse.targets().collect();
        let mut sizes = sizes.into_iter();
        for run in &sparse.live {
            let start = sparse.addresses.start + run.start as u64 * self.granule_bytes;
            let end = start + run.len() as u64 * self.granule_bytes;
            let mut address = start;
            while address < end {
                let size = sizes.next().unwrap_or(1);
                let bytes = size as u64 * self.granule_bytes;
                let granule = match self.take_of_size(&mut idle, size) {
                    Some(granule) => {
                        self.granules.take_idle(&[granule]);
                        granule
                    }
                    None => {
                        let granule = self.granules.name(size as u16);
                        creates.push(Step::Create { granule, bytes });
                        granule
                    }
                };
                stages.push(Step::Stage { granule, bytes });
                copies.push(Step::Copy { address, bytes, granule });
                maps.push(Step::Map { address, bytes, granule });
                address += bytes;
            }
            maps.push(Step::SetAccess { address: start, bytes: end - start });
        }
        let Range { start: address, end } = sparse.addresses;
        let lift = Step::Lift { address, bytes: end - address, granule: sparse.granule };
        let mut steps = creates;
        steps.append(&mut stages);
        steps.push(Step::Hold);
        steps.append(&mut copies);
        steps.extend([Step::FinishCopies, lift]);
        steps.append(&mut maps);
        steps.push(Step::LetGo);
        steps
    }
}
