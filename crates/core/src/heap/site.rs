//! Sites: where a mapped segment can grow for a request, and at what cost.
//!
//! A site is the front of a hollow block together with the free blocks around it. Where its
//! addresses still lead to a granule that is free, backing them again costs no driver call.

use super::Heap;
use super::harvest::Victims;
use crate::block::{BlockIndex, BlockState};
use crate::granule::{GranuleId, Place};
use crate::plan::Wanted;
use crate::size::round_up;

/// How many hollow blocks a search looks at, as long as one of them will do. Any site holds the
/// same granules, so what a longer search could save is a few mappings.
const LOOK: usize = 16;

/// A place to grow.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) hollow: BlockIndex,
    /// How many granules it takes, from the front of the hollow block on.
    pub(super) granules: usize,
    /// Places in it, by position, whose alias leads to a granule that is free.
    pub(super) kept: Vec<(usize, GranuleId)>,
    /// Aliases in it that must be unmapped first.
    pub(super) in_the_way: Vec<Place>,
    /// The free blocks before and after, if they are part of it.
    pub(super) before: BlockIndex,
    pub(super) after: BlockIndex,
}

impl Site {
    /// Granules that have to be mapped.
    pub(super) fn unmapped(&self) -> usize {
        self.granules - self.kept.len()
    }

    /// Fewest driver calls first, then fewest granules.
    fn rank(&self) -> (usize, usize) {
        (self.unmapped() + self.in_the_way.len(), self.granules)
    }
}

/// What one search for a site knows of each granule: whether it can be taken, and whether the site
/// that is being looked at takes it already. Kept from search to search for its memory alone.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// By granule: below `first` nothing, from `first` on it can be taken; equal to `site`, it is.
    stamps: Vec<u64>,
    first: u64,
    site: u64,
}

impl Marks {
    /// Forgets everything.
    fn begin(&mut self, granules: usize) {
        self.stamps.resize(granules, 0);
        self.site += 1;
        self.first = self.site;
    }

    fn allow(&mut self, granule: GranuleId) {
        self.stamps[granule.index()] = self.first;
    }

    fn begin_site(&mut self) {
        self.site += 1;
    }

    /// Takes a granule for the site, if it can be taken and is not yet.
    fn take(&mut self, granule: GranuleId) -> bool {
        let stamp = &mut self.stamps[granule.index()];
        let can = *stamp >= self.first && *stamp != self.site;
        if can {
            *stamp = self.site;
        }
        can
    }
}

impl Heap {
    /// Where to grow for a request, among the blocks that became hollow last: the fewest mappings
    /// to make, then the fewest granules, then the lowest address.
    pub(super) fn best_site(&mut self, wanted: Wanted, victims: &Victims) -> Option<Site> {
        let mut marks = std::mem::take(&mut self.marks);
        marks.begin(self.granules.names());
        self.takeable(victims).for_each(|granule| marks.allow(granule));
        let best = self.find_site(wanted, victims, &mut marks);
        self.marks = marks;
        best
    }

    fn find_site(&self, wanted: Wanted, victims: &Victims, marks: &mut Marks) -> Option<Site> {
        let mut best: Option<((usize, usize, u64), Site)> = None;
        let mut next = self.list(wanted.list).hollow;
        let mut looks = 0;
        while let Some(index) = next.some() {
            looks += 1;
            if looks > LOOK && best.is_some() {
                break;
            }
            let hollow = &self.blocks[index];
            next = hollow.home_next;
            let most = best.as_ref().map_or(usize::MAX, |(rank, _)| rank.0);
            if let Some(site) = self.site_at(index, wanted, (victims, &mut *marks), most) {
                let (mappings, granules) = site.rank();
                let rank = (mappings, granules, hollow.address);
                if best.as_ref().is_none_or(|best| rank < best.0) {
                    best = Some((rank, site));
                }
            }
        }
        best.map(|(_, site)| site)
    }

    /// The site at a hollow block; `None` if it cannot hold the request, or costs more than
    /// `most` driver calls.
    fn site_at(
        &self,
        index: BlockIndex,
        wanted: Wanted,
        (victims, marks): (&Victims, &mut Marks),
        most: usize,
    ) -> Option<Site> {
        let hollow = &self.blocks[index];
        let granule_bytes = self.config.granule_bytes;
        let before_bytes = self.free_bytes(hollow.previous, wanted.list);
        let missing = wanted.bytes.saturating_sub(before_bytes).max(1);
        let mut backed_bytes = round_up(missing, granule_bytes)?;
        let mut after = BlockIndex::NONE;
        if backed_bytes > hollow.bytes {
            let after_bytes = self.free_bytes(hollow.next, wanted.list);
            if before_bytes + hollow.bytes + after_bytes < wanted.bytes {
                return None;
            }
            backed_bytes = hollow.bytes;
            after = hollow.next;
        }
        let before = if before_bytes > 0 { hollow.previous } else { BlockIndex::NONE };
        let granules = (backed_bytes / granule_bytes) as usize;
        let mut site = Site {
            hollow: index,
            granules,
            kept: Vec::new(),
            in_the_way: Vec::new(),
            before,
            after,
        };
        marks.begin_site();
        self.look_at_aliases(&mut site, (victims, marks), most)?;
        Some(site)
    }

    /// Sorts the aliases of a site; `None` if one is in the way and cannot be unmapped yet, or if
    /// the site costs too much.
    fn look_at_aliases(
        &self,
        site: &mut Site,
        (victims, marks): (&Victims, &mut Marks),
        most: usize,
    ) -> Option<()> {
        let hollow = &self.blocks[site.hollow];
        let segment = self.segments.get(hollow.segment)?;
        let first = ((hollow.address - segment.address) / self.config.granule_bytes) as usize;
        let last = (first + site.granules).min(segment.slot_count());
        let never_mapped = site.granules - last.saturating_sub(first);
        let mut cost = never_mapped;
        let spared = victims.ranges_of([site.before, site.after]);
        for slot in first..last {
            let place = Place { segment: hollow.segment, slot: slot as u32 };
            let Some(granule) = segment.granule(slot) else {
                cost += 1;
                continue;
            };
            let alias = segment.alias(slot)?;
            if alias.is_open
                && !alias.is_claimed
                && !self.is_within(granule, spared)
                && marks.take(granule)
            {
                site.kept.push((slot - first, granule));
            } else if self.is_evictable(alias) {
                site.in_the_way.push(place);
                cost += 2;
            } else {
                return None;
            }
            if cost > most {
                return None;
            }
        }
        (cost <= most).then_some(())
    }

    /// Size of a block if it is free in this list, else 0.
    fn free_bytes(&self, index: BlockIndex, list: u32) -> u64 {
        match index.some().map(|index| &self.blocks[index]) {
            Some(block) if block.state == BlockState::Free && block.list == list => block.bytes,
            _ => 0,
        }
    }

    // Hollow blocks: chained through their home links, in the list their segment was made for.

    /// Makes a homeless block hollow, joined with the hollow blocks around it.
    pub(super) fn hollow_out(&mut self, index: BlockIndex) {
        let mut index = index;
        let Some(segment) = self.segments.get(self.blocks[index].segment) else {
            return;
        };
        let list = segment.list;
        if self.is_hollow(self.blocks[index].next) {
            self.unlink_hollow(self.blocks[index].next);
            self.blocks.absorb_next(index);
        }
        let previous = self.blocks[index].previous;
        if self.is_hollow(previous) {
            self.unlink_hollow(previous);
            self.blocks.absorb_next(previous);
            index = previous;
        }
        self.blocks[index].list = list;
        // Its aliases know when their last uses are over, each its own.
        self.blocks[index].free_after = 0;
        self.link_hollow(index);
        self.refile(self.blocks[index].previous);
    }

    /// Adds a block to the chain of hollow blocks of its list.
    pub(super) fn link_hollow(&mut self, index: BlockIndex) {
        let list = self.blocks[index].list as usize;
        let head = self.lists[list].hollow;
        let block = &mut self.blocks[index];
        block.state = BlockState::Hollow;
        block.home_previous = BlockIndex::NONE;
        block.home_next = head;
        if let Some(head) = head.some() {
            self.blocks[head].home_previous = index;
        }
        self.lists[list].hollow = index;
    }

    pub(super) fn unlink_hollow(&mut self, index: BlockIndex) {
        let block = self.blocks[index];
        if let Some(next) = block.home_next.some() {
            self.blocks[next].home_previous = block.home_previous;
        }
        match block.home_previous.some() {
            Some(previous) => self.blocks[previous].home_next = block.home_next,
            None => self.lists[block.list as usize].hollow = block.home_next,
        }
    }

    /// Files a free block anew after the block behind it became hollow or ceased to be.
    pub(super) fn refile(&mut self, index: BlockIndex) {
        if let Some(index) = index.some()
            && self.blocks[index].state == BlockState::Free
        {
            self.remove_free(index);
            self.insert_free(index);
        }
    }
}
