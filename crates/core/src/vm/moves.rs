//! Moves: handles of which only a part is in use, and the steps that give what is live in one other
//! memory behind the same addresses.
//!
//! The new memory takes the places of the old one, at home and in a window: no block changes what
//! it is, and what was free beside it becomes addresses without memory. A handle moves as a whole
//! or not at all: none that a window leads to beside the one that it backs, that is pinned, or that
//! others have. Several at once move only to be joined: into one handle, and what lay beside that.

use crate::id::{GranuleId, SegmentIx};
use std::ops::Range;

use super::PageTable;
use super::granule::{GranuleState, PageAddr};
use super::handles::HandleAt;
use super::span::Span;
use crate::plan::{Place, Step};
use crate::policy;
use crate::size::{between, push_range};

/// A handle that may move.
#[derive(Clone, Debug)]
pub(crate) struct Movable {
    /// What it backs.
    pub(crate) addresses: Range<u64>,
    /// Where its home begins, if it backs a window.
    pub(crate) home: Option<u64>,
    pub(super) granule: GranuleId,
    segment: SegmentIx,
}

/// A handle of which some granules are live, or all, and are to be parted.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    pub(crate) of: Movable,
    /// Runs of live granules: where, in granules from its start.
    live: Vec<Range<usize>>,
    /// How many granules are not.
    free: usize,
    /// A run that gets one handle, whatever its size; else empty.
    whole: Range<usize>,
}

impl Movable {
    /// What it takes to give each of these granules, by address and in order, a handle of its own.
    pub(crate) fn parted(&self, alone: impl Iterator<Item = u64>, granule_bytes: u64) -> Sparse {
        let at = |address| ((address - self.addresses.start) / granule_bytes) as usize;
        let (mut live, mut end) = (Vec::new(), 0);
        for page in alone.map(at) {
            live.extend([end..page, page..page + 1]);
            end = page + 1;
        }
        live.push(end..at(self.addresses.end));
        live.retain(|run| !run.is_empty());
        Sparse { of: self.clone(), live, free: 0, whole: 0..0 }
    }
}

impl Sparse {
    /// What is in the host's memory, each as a whole, as far as it may move.
    pub(crate) fn on_host(table: &PageTable) -> impl Iterator<Item = Self> {
        table.granules.on_host().iter().filter_map(|&id| match table.granules.state(id) {
            GranuleState::Backing(page) => {
                let address = table.address_of(page);
                let of = table.span(page.segment, address..address).movable()?;
                Some(of.parted(std::iter::empty(), table.granule_bytes))
            }
            _ => None,
        })
    }

    /// How many bytes of the device are kept for it, since it is in the host's memory.
    pub(crate) fn kept_bytes(&self, table: &PageTable) -> u64 {
        let Movable { addresses, granule, .. } = &self.of;
        let is_on_host = table.granules.is_on_host(*granule);
        if is_on_host { addresses.end - addresses.start } else { 0 }
    }

    /// How many bytes a move gives back.
    pub(crate) const fn free_bytes(&self, granule_bytes: u64) -> u64 {
        self.free as u64 * granule_bytes
    }

    /// The sizes of the handles that what is live needs, in granules, in order: powers of two,
    /// unless a run gets one.
    fn targets(&self) -> impl Iterator<Item = usize> + '_ {
        self.live.iter().flat_map(|run| {
            let is_whole = self.whole == *run;
            let mut left = run.len();
            std::iter::from_fn(move || {
                let power = 1 << left.checked_ilog2()?;
                let size = if is_whole { left } else { power };
                left -= size;
                Some(size)
            })
        })
    }

    /// What a move costs, in the unit of [`policy::growth_price`].
    pub(crate) fn price(&self) -> u64 {
        policy::move_price(
            self.targets().count() as u64,
            self.live() as u64,
            self.of.home.is_some(),
        )
    }

    /// How many granules are live.
    pub(crate) fn live(&self) -> usize {
        self.live.iter().map(ExactSizeIterator::len).sum()
    }

    /// How many bytes a move has to create: for what no handle of the right size backs nothing.
    pub(crate) fn bytes_to_create(&self, table: &PageTable) -> u64 {
        let mut idle: Vec<GranuleId> = table.granules.idle().collect();
        let missing = self.targets().filter(|&size| table.take_of_size(&mut idle, size).is_none());
        missing.sum::<usize>() as u64 * table.granule_bytes
    }

    /// Whether a move holds the streams for no longer than they may be.
    pub(crate) fn is_quick(&self) -> bool {
        let places = 1 + usize::from(self.of.home.is_some());
        places * self.targets().count() <= policy::TARGETS_OF_A_MOVE
    }

    /// The ranges that are not live, in order.
    pub(crate) fn free_ranges(&self, granule_bytes: u64) -> Vec<Range<u64>> {
        let whole = &self.of.addresses;
        let at = |granules: usize| whole.start + granules as u64 * granule_bytes;
        between(whole, self.live.iter().map(|run| at(run.start)..at(run.end)))
    }
}

impl Span<'_> {
    /// The handle that it begins in, if that may move.
    pub(crate) fn movable(&self) -> Option<Movable> {
        self.movable_with(0)
    }

    /// The same, if beside what it backs so many guests lead to it and nothing else does.
    pub(super) fn movable_with(&self, guests: usize) -> Option<Movable> {
        let (table, segment) = (self.table, self.segment);
        let page = table.page_at(segment, self.addresses.start);
        let granule = table.pages(segment).granule(page)?;
        let first = PageAddr { segment, page: (page - table.granules.before(granule)) as u32 };
        let granule = GranuleId(table.granules.handle(granule).start as u32);
        let is_home = table.granules.home(granule) == Some(first);
        let is_movable = table.granules.state(granule) == GranuleState::Backing(first)
            && table.granules.mappings(granule).len() == guests + usize::from(!is_home)
            && !table.granules.is_shared(granule);
        let home = table.granules.home(granule).filter(|_| !is_home);
        let start = table.address_of(first);
        let count = table.granules.handle(granule).len();
        let addresses = start..start + count as u64 * table.granule_bytes;
        let home = home.map(|home| table.address_of(home));
        let is_pinned = |start| table.pins.touch(start..start + count as u64 * table.granule_bytes);
        let may_move = is_movable && !is_pinned(start) && !home.is_some_and(is_pinned);
        may_move.then_some(Movable { addresses, home, granule, segment })
    }

    /// The handle that it begins in, if that may move: `is_live` tells of a range of one granule
    /// whether anybody may use a byte of it. `None` also where all of it is live, or nothing.
    pub(crate) fn sparse(&self, mut is_live: impl FnMut(Range<u64>) -> bool) -> Option<Sparse> {
        let (table, of) = (self.table, self.movable()?);
        let count = table.granules.handle(of.granule).len();
        let start = of.addresses.start;
        let mut live: Vec<Range<usize>> = Vec::new();
        for at in 0..count {
            let start = start + at as u64 * table.granule_bytes;
            if is_live(start..start + table.granule_bytes) {
                push_range(&mut live, at..at + 1);
            }
        }
        let free = count - live.iter().map(ExactSizeIterator::len).sum::<usize>();
        let is_sparse = free > 0 && free < count;
        is_sparse.then_some(Sparse { of, live, free, whole: 0..0 })
    }

    /// What it takes to give all granules that it touches one handle, and nothing else, if all
    /// handles that they are of may move.
    pub(crate) fn joined(&self) -> Option<Sparse> {
        let Range { start, end } = self.handles_around();
        let (table, granule_bytes) = (self.table, self.table.granule_bytes);
        let (mut first, mut at) = (None, start);
        while at < end {
            let of = table.span(self.segment, at..at).movable()?;
            if of.home.is_some() || table.granules.is_on_host(of.granule) {
                return None;
            }
            at = of.addresses.end;
            first = first.or(Some(of));
        }
        let of = Movable { addresses: start..end, ..first? };
        let at = |address: u64| ((address - start) / granule_bytes) as usize;
        let whole =
            at(self.addresses.start)..at(self.addresses.end.next_multiple_of(granule_bytes));
        let mut live = vec![0..whole.start, whole.clone(), whole.end..at(end)];
        live.retain(|run| !run.is_empty());
        u16::try_from(whole.len()).is_ok().then_some(Sparse { of, live, free: 0, whole })
    }

    /// Whether windows lead to what it leads to.
    pub(crate) fn has_windows(&self) -> bool {
        self.handles().iter().any(|one| !self.table.granules.mappings(one.granule).is_empty())
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
    /// is open the old one exists. A home in use elsewhere is done within the hold, too: kernels
    /// may have used it that nobody knows to be over. What goes to the host gives its memory
    /// back within the hold, and so does what comes back.
    pub(crate) fn plan_move(&mut self, sparse: &Sparse, place: Place) -> Vec<Step> {
        let mut idle: Vec<GranuleId> = match place {
            Place::Device => self.granules.idle().collect(),
            Place::Host => Vec::new(),
        };
        let (mut creates, mut stages, mut copies, mut maps) = (vec![], vec![], vec![], vec![]);
        let mut homes = Vec::new();
        let Movable { addresses, home, granule, segment } = sparse.of.clone();
        let home_of = |address: u64| Some(home? + (address - addresses.start));
        let bytes = addresses.end - addresses.start;
        let lift = |address| Step::Lift { address, bytes, granule };
        homes.extend(home.map(lift));
        let sizes: Vec<usize> = sparse.targets().collect();
        let mut sizes = sizes.into_iter();
        for run in &sparse.live {
            let start = addresses.start + run.start as u64 * self.granule_bytes;
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
                        if place == Place::Host {
                            self.granules.set_on_host(granule);
                        }
                        creates.push(Step::Create { granule, bytes, place });
                        granule
                    }
                };
                stages.push(Step::Stage { granule, bytes });
                copies.push(Step::Copy { address, bytes, granule });
                maps.push(Step::Map { address, bytes, granule });
                let home = home_of(address);
                homes.extend(home.map(|address| Step::Map { address, bytes, granule }));
                address += bytes;
            }
            let bytes = end - start;
            maps.push(Step::SetAccess { address: start, bytes });
            homes.extend(home_of(start).map(|address| Step::SetAccess { address, bytes }));
        }
        let mut steps = creates;
        steps.append(&mut stages);
        steps.push(Step::Hold);
        steps.append(&mut copies);
        steps.push(Step::FinishCopies);
        steps.append(&mut homes);
        let handles = self.span(segment, addresses).handles().into_iter();
        steps.extend(handles.map(|HandleAt { granule, address, bytes }| Step::Lift {
            address,
            bytes,
            granule,
        }));
        steps.append(&mut maps);
        let is_by_host = place == Place::Host || self.granules.is_on_host(granule);
        steps.extend(is_by_host.then_some(Step::Release { granule }));
        steps.push(Step::LetGo);
        steps
    }
}
