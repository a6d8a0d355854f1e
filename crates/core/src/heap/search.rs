//! Search: what there is for one request, seen and not touched. Runs of other streams' free blocks,
//! donors of a remap, and the window to serve it in.

use std::ops::ControlFlow;

use super::windows::own_parts;
use crate::config::Config;
use crate::fence::{OrderBetween, StreamOrder, Streams};
use crate::id::StreamIx;
use crate::plan::{Request, Reuse};
use crate::policy::{self, CrossStream, SegmentKind};
use crate::pool::{Pool, Pools};
use crate::space::Space;
use crate::space::bin::Bin;
use crate::space::block::{Block, BlockIndex, BlockState};
use crate::space::free_list::FreeList;
use crate::vm::PageTable;
use crate::vm::donors::{Donor, Donors};
use crate::vm::window::WindowFit;

/// Adjacent free blocks, from the first to the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) first: BlockIndex,
    pub(super) last: BlockIndex,
}

/// A run with its size and address, by which the best one is chosen.
type Sized = (u64, u64, Run);

/// How many blocks of a list, large enough themselves, a request looks at once one serves: of
/// thousands of one size any will do, and others wait for the heap meanwhile.
pub(super) const LOOK: usize = 1024;

#[cfg(test)]
thread_local! {
    /// How many blocks were looked at.
    pub(super) static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A window that a request could be served in.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) index: BlockIndex,
    pub(super) fit: WindowFit,
}

/// A heap as one request sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    pub(super) space: &'a Space,
    pub(super) vm: &'a PageTable,
    pub(super) streams: &'a Streams,
    pub(super) pools: &'a Pools<Pool>,
    pub(super) config: &'a Config,
    pub(super) request: Request,
    /// The request's stream.
    pub(super) user: StreamIx,
    /// How many whole granules hold it.
    pub(super) granules: usize,
    /// There is room to spare for it.
    pub(super) is_roomy: bool,
}

/// What a search for donors has found so far.
#[derive(Default)]
struct Found {
    donors: Vec<Donor>,
    /// How many blocks were looked at.
    looked: usize,
    /// How much can be taken at once.
    ordered_bytes: u64,
}

impl Search<'_> {
    /// Whether the request's stream may be made to wait.
    pub(super) fn may_wait(&self) -> bool {
        self.config.cross_stream == CrossStream::Wait
    }

    // Runs.

    /// The smallest run of adjacent free blocks that serves the request and holds a block of
    /// another stream; at the lowest address if equal.
    ///
    /// Looks at other streams' blocks that are large enough themselves, smallest first, and at
    /// those at borders, if all of these together are.
    pub(super) fn run(&self, worst: StreamOrder) -> Option<Run> {
        let (blocks, bytes) = (&self.space.blocks, self.request.bytes);
        let own = self.space.list(self.request.list);
        let lists = || {
            let lists = self.pools.at(own.pool).lists(own.class);
            lists.map(|(_, list)| (list, self.space.list(list)))
        };
        let border_bytes: u64 = lists().map(|(_, list)| list.borders.bytes()).sum();
        let mut best = None;
        for (_, other) in lists().filter(|&(list, _)| list != self.request.list) {
            if border_bytes >= bytes {
                let starts = other.borders.blocks().iter();
                starts.for_each(|&start| self.look_at_run(start, worst, &mut best));
            }
            for (looked, start) in other.filed_from(blocks, bytes).enumerate() {
                // In a later bin all are larger than the best.
                let is_over = |best: &Sized| {
                    looked >= LOOK || Bin::of_block(blocks[start].bytes) > Bin::of_block(best.0)
                };
                if best.as_ref().is_some_and(is_over) {
                    break;
                }
                self.look_at_run(start, worst, &mut best);
            }
        }
        best.map(|(_, _, run)| run)
    }

    /// Whether blocks of other streams serve a request before anything is remapped.
    ///
    /// With room to spare whole handles do in their place, which go home when they are free: what
    /// is cut out of another stream's block stays away longer, and its owner grows. A captured
    /// request takes what others freed only of a pool whose graphs never run at the same time.
    pub(super) fn may_take_runs(&self) -> bool {
        let list = self.space.list(self.request.list);
        let is_open = self.pools.is_open(list);
        self.config.cross_stream != CrossStream::Never
            && match self.request.reuse {
                Reuse::OwnStream => !is_open && self.pools.at(list.pool).is_exclusive,
                Reuse::Ordered | Reuse::MayWait => {
                    let remaps = self.config.remaps && list.kind == SegmentKind::Mapped;
                    !remaps || !is_open || !self.is_roomy
                }
            }
    }

    /// A run that serves the request with room to spare, before memory is created.
    pub(super) fn roomy_run(&self) -> Option<Run> {
        let may_take = self.request.reuse != Reuse::OwnStream
            && self.config.cross_stream != CrossStream::Never;
        may_take.then(|| self.run(StreamOrder::Ordered))?
    }

    /// Looks at the run in which a block is the first of another stream.
    #[inline(never)]
    fn look_at_run(&self, start: BlockIndex, worst: StreamOrder, best: &mut Option<Sized>) {
        #[cfg(test)]
        LOOKED.set(LOOKED.get() + 1);
        let (blocks, list) = (&self.space.blocks, self.request.list);
        let joins = |index: BlockIndex| {
            index.some().is_some_and(|index| {
                let block = &blocks[index];
                block.state == BlockState::Free
                    && (!block.is_window || self.stays(block))
                    && (block.list == list || self.may_join(index, worst))
            })
        };
        let previous = blocks[start].previous;
        let is_later = || blocks[previous].list != list || joins(blocks[previous].previous);
        if !joins(start) || joins(previous) && is_later() {
            return;
        }
        let mut run = Run { first: start, last: start };
        while joins(blocks[run.first].previous) {
            run.first = blocks[run.first].previous;
        }
        while joins(blocks[run.last].next) {
            run.last = blocks[run.last].next;
        }
        let address = blocks[run.first].address;
        let bytes = blocks[run.last].end() - address;
        if bytes >= self.request.bytes
            && best.as_ref().is_none_or(|best| (bytes, address) < (best.0, best.1))
        {
            *best = Some((bytes, address, run));
        }
    }

    /// Whether rests of a window stay where they are. Others go home with the last use of their
    /// handle, all of it in the order of one stream.
    fn stays(&self, block: &Block) -> bool {
        let handles = self.vm.under(block).handles_around();
        !self.pools.is_open(self.space.list(block.list))
            && own_parts(self.space, self.vm, block, handles).is_empty()
    }

    /// Whether a run may have a free block of another stream.
    fn may_join(&self, index: BlockIndex, worst: StreamOrder) -> bool {
        match self.request.reuse {
            Reuse::OwnStream => self.streams.is_complete(self.space, index),
            Reuse::Ordered | Reuse::MayWait => self.order(index) <= worst,
        }
    }

    /// Of a run, the blocks of other streams that the request's is not ordered with.
    pub(super) fn unordered(&self, run: Run) -> Vec<BlockIndex> {
        let blocks = &self.space.blocks;
        let end = blocks[run.last].end();
        let all = blocks.onward(run.first).take_while(|&index| blocks[index].address < end);
        let is_unordered = |index: &BlockIndex| {
            let is_own = blocks[*index].list == self.request.list;
            !is_own && self.order(*index) != StreamOrder::Ordered
        };
        all.filter(is_unordered).collect()
    }

    /// What it takes for a free block to be used on the request's stream.
    fn order(&self, index: BlockIndex) -> StreamOrder {
        self.streams.order_of(self.space, index, self.user)
    }

    // Donors.

    /// The free memory from which the request may take whole handles: of its own stream, or of all;
    /// none where nothing is remapped.
    ///
    /// The largest first, of its own stream before others. Once they have enough, or where there is
    /// room to create it, no more than a bound are looked at.
    pub(super) fn donors(&self, is_own_only: bool) -> Donors {
        let lists = || self.pools.open_mapped(self.space);
        let own = lists().filter(|list| list.stream == self.user);
        let others = lists().filter(|list| list.stream != self.user && !is_own_only);
        self.donors_of(own.chain(others))
    }

    /// The same of the request's own pool, which is private: what serves nobody else.
    ///
    /// Lists of other streams only if graphs of the pool never run at the same time: what goes home
    /// serves any of its streams.
    pub(super) fn private_donors(&self) -> Donors {
        let own = self.space.list(self.request.list);
        let is_exclusive = self.pools.at(own.pool).is_exclusive;
        let lists = self.space.lists().iter().filter(|list| list.pool == own.pool);
        self.donors_of(lists.filter(|list| is_exclusive || list.stream == self.user))
    }

    fn donors_of<'a>(&self, lists: impl Iterator<Item = &'a FreeList>) -> Donors {
        let mut found = Found::default();
        if self.config.remaps {
            let _ = { lists }.try_for_each(|list| self.add_donors(list, &mut found));
        }
        Donors::new(found.donors)
    }

    /// Adds what the request may take of the free blocks of a list, until that is enough.
    fn add_donors(&self, list: &FreeList, found: &mut Found) -> ControlFlow<()> {
        let granule_bytes = self.config.granule_bytes;
        let enough_bytes = self.granules as u64 * granule_bytes;
        let order = self.streams.order_between(list.stream, self.user);
        let is_private = !self.pools.is_open(list);
        for bin in list.bins_down_to(granule_bytes) {
            for block in list.bin(&self.space.blocks, bin) {
                found.looked += 1;
                let is_enough = self.is_roomy || found.ordered_bytes >= enough_bytes;
                if found.looked > LOOK && is_enough {
                    return ControlFlow::Break(());
                }
                #[cfg(test)]
                LOOKED.set(LOOKED.get() + 1);
                let free = &self.space.blocks[block];
                // What a private pool has borrowed stays in its window.
                if is_private && free.is_window {
                    continue;
                }
                self.vm.under(free).to_take(|whole| {
                    let Some(is_ordered) = self.is_ordered(free, order, is_private) else { return };
                    found.ordered_bytes += if is_ordered { whole.end - whole.start } else { 0 };
                    found.donors.push(Donor {
                        block,
                        segment: free.segment,
                        start: whole.start,
                        end: whole.end,
                        is_foreign: order.is_foreign,
                        is_ordered,
                    });
                });
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the request may take of a free block at once; `None` if not even after a wait.
    fn is_ordered(&self, free: &Block, order: OrderBetween, is_private: bool) -> Option<bool> {
        let is_over = free.free_after <= order.passed;
        if self.request.reuse == Reuse::OwnStream {
            // Captured work runs later, on any stream: only memory that nobody uses is safe, and
            // what the same stream has freed in its private pool.
            return (is_over || is_private && !order.is_foreign).then_some(true);
        }
        if is_over || !order.is_foreign {
            return Some(true);
        }
        match order.of(free.free_after) {
            _ if self.config.cross_stream == CrossStream::Never => None,
            StreamOrder::Ordered => Some(true),
            StreamOrder::Recorded | StreamOrder::Unrecorded => Some(false),
            StreamOrder::Never => None,
        }
    }

    // Windows.

    /// A window of addresses that lead nowhere, with room for all of the last handle.
    pub(super) fn unmapped_window(&self) -> Option<Window> {
        let bytes =
            self.granules as u64 * self.config.granule_bytes + policy::LAST_HANDLE_BEYOND_BYTES;
        let mut unmapped = self.space.unmapped_blocks(self.request.list, true);
        let index = unmapped.find(|&index| self.space.blocks[index].bytes >= bytes)?;
        Some(Window { index, fit: self.fresh() })
    }

    /// How the request fits into addresses that lead nowhere.
    pub(super) fn fresh(&self) -> WindowFit {
        let room = policy::LAST_HANDLE_BEYOND_BYTES / self.config.granule_bytes;
        WindowFit::unmapped(self.granules, room as usize)
    }

    /// The idle window that costs the fewest driver calls, and fewer than `most`.
    pub(super) fn idle_window(&self, donors: &Donors, most: usize) -> Option<Window> {
        let mut best: Option<Window> = None;
        let granules = self.granules;
        let large_enough = self.space.idle_windows.of_size(self.request.list, granules as u32);
        for index in large_enough.take(policy::windows_to_look_at(granules)) {
            let most = best.as_ref().map_or(most, |best| best.fit.calls);
            let block = &self.space.blocks[index];
            if let Some(fit) = self.vm.under(block).fit(granules, donors, most) {
                let is_best = fit.calls == 0;
                best = Some(Window { index, fit });
                if is_best {
                    break;
                }
            }
        }
        best
    }
}
