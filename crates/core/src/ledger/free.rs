//! The way of a free: back to the driver at once, in the order of the block's stream; or, where
//! other streams used the block, once the host knows that they are done with it.
//!
//! Nobody's stream is made to wait for another (B29). Where recording a use fails, the block is
//! quarantined until the device was idle (B5, B8). A block that a graph owns can be freed only
//! within a capture; afterwards it is the graph's, and only the books forget it.

use super::{AsyncPools, Entry, State};
use crate::block::BlockIndex;
use crate::error::FreeError;
use crate::fence::Fence;
use crate::id::StreamId;
use crate::plan::{Intent, Plan, Step};
use crate::policy;

/// In whose order a block goes back to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOrder {
    /// Of its own stream, which is not captured.
    Own(StreamId),
    /// Of its own stream, within the capture under way; where there is none, not at all.
    Graph(StreamId),
    /// Of any stream, best of this one: every use is known to be complete.
    Any(StreamId),
}

/// A block that goes back to the driver, to be handed back by [`AsyncPools::departed`].
#[derive(Debug)]
#[must_use = "the block stays in the books until it is said to have departed or not"]
pub struct DeferredFree {
    pub(super) index: u32,
    pub(super) address: u64,
    pub(super) route: FreeOrder,
}

impl DeferredFree {
    /// Where the block starts.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// In whose order it goes.
    pub const fn route(&self) -> FreeOrder {
        self.route
    }
}

/// The answer to a free.
#[derive(Debug)]
pub enum FreeOutcome {
    /// Done: the graph that owns the block keeps it.
    Done,
    /// Give the block back to the driver.
    Now(DeferredFree),
    /// Record the uses: the block waits for them.
    Plan(Plan),
}

impl AsyncPools {
    /// Frees a live block.
    ///
    /// # Errors
    /// The address is unknown, inside a block, or free already; nothing has changed.
    pub fn free(&mut self, address: u64) -> Result<FreeOutcome, FreeError> {
        let index = self.find_live(address)?;
        self.free_block(index, address)
    }

    /// Frees a live block, given the size it was allocated with.
    ///
    /// # Errors
    /// As [`free`](Self::free), and another size than the block's; nothing has changed.
    pub fn free_sized(&mut self, address: u64, given_bytes: u64) -> Result<FreeOutcome, FreeError> {
        let index = self.find_live(address)?;
        let requested_bytes = self.entry(index).map_or(0, |entry| entry.requested);
        if given_bytes != requested_bytes {
            return Err(FreeError::WrongSize { address, given_bytes, requested_bytes });
        }
        self.free_block(index, address)
    }

    fn free_block(&mut self, index: u32, address: u64) -> Result<FreeOutcome, FreeError> {
        let Some(entry) = self.table[index as usize].as_mut() else {
            return Err(FreeError::Unknown { address });
        };
        entry.state = State::FreeOutcome;
        let (bytes, stream, is_graphs) = (entry.bytes, entry.stream, entry.is_graphs);
        let uses = std::mem::take(&mut entry.uses);
        self.stats.free(policy::class(bytes) as usize, bytes);
        if is_graphs {
            self.by_address.remove(&address);
            if uses.is_empty() {
                return Ok(FreeOutcome::Now(DeferredFree {
                    index,
                    address,
                    route: FreeOrder::Graph(stream),
                }));
            }
            // Ordering the free after other streams could draw them into the capture.
            self.forget(index);
            return Ok(FreeOutcome::Done);
        }
        let (fences, steps) = self.fences_of(&uses, stream);
        if fences.is_empty() {
            self.by_address.remove(&address);
            let is_live = self.streams.live(stream).is_ok();
            let route = if is_live { FreeOrder::Own(stream) } else { FreeOrder::Any(stream) };
            return Ok(FreeOutcome::Now(DeferredFree { index, address, route }));
        }
        Ok(FreeOutcome::Plan(Plan {
            steps,
            intent: Intent::Free { block: BlockIndex(index), fences },
        }))
    }

    /// What a freed block waits for: a fence on each stream that uses it, and the last of its own
    /// if that is retired, as far as they have not passed.
    fn fences_of(&mut self, uses: &[StreamId], own: StreamId) -> (Vec<Fence>, Vec<Step>) {
        let (mut fences, mut steps) = (Vec::new(), Vec::new());
        for &stream in uses.iter().chain([&own]) {
            // Its own order needs no fence, as long as something can be queued in it.
            if stream == own && !self.streams.at(stream.index).is_retired {
                continue;
            }
            let Some((fence, is_new)) = self.streams.fence_of_use(stream) else { continue };
            fences.push(fence);
            if is_new {
                steps.push(Step::Record { fence });
            }
        }
        (fences, steps)
    }

    /// The fences of a freed block are recorded: it waits for those that have not passed yet.
    pub(super) fn wait_for(&mut self, index: u32, fences: &[Fence]) {
        if let Some(entry) = self.entry_mut(index) {
            entry.state = State::Waiting;
            entry.uses = fences.iter().map(|fence| fence.stream).collect();
        }
        for &fence in fences {
            let state = self.streams.at_mut(fence.stream.index);
            let is_passed =
                state.generation != fence.stream.generation || state.passed >= fence.point;
            if is_passed {
                self.pass_use(index, fence.stream);
            } else {
                state.enqueue(fence.point, BlockIndex(index));
            }
        }
    }

    /// A use of a waiting block is complete; after the last one it may go.
    pub(super) fn pass_use(&mut self, index: u32, stream: StreamId) {
        let Some(entry) = self.entry_mut(index) else {
            return;
        };
        entry.uses.retain(|&one| one != stream);
        entry.is_complete |= entry.stream == stream;
        if entry.uses.is_empty() {
            entry.state = State::Ready;
            self.ready.push(index);
        }
    }

    pub(super) fn quarantine(&mut self, index: u32) {
        let Some(entry) = self.entry_mut(index) else {
            return;
        };
        entry.state = State::Quarantined;
        let bytes = entry.bytes;
        self.stats.quarantined_bytes += bytes;
        self.quarantine.push(index);
    }

    /// A synchronisation that had taken a block along ended: the device was idle, or it failed.
    pub(super) fn release_from_quarantine(&mut self, index: u32, is_idle: bool) {
        let Some(entry) = self.entry_mut(index) else {
            return;
        };
        entry.is_complete |= is_idle;
        let (was_quarantined, bytes) = (entry.state == State::Quarantined, entry.bytes);
        if was_quarantined && !is_idle {
            self.quarantine.push(index);
            return;
        }
        entry.state = State::Ready;
        self.ready.push(index);
        if was_quarantined {
            self.stats.quarantined_bytes -= bytes;
        }
    }

    /// The blocks that may go back to the driver now. To be taken again after each fence that
    /// passes, and after a free that failed.
    pub fn deferred_frees(&mut self) -> Vec<DeferredFree> {
        let mut departures = Vec::new();
        for index in std::mem::take(&mut self.ready) {
            let Some(entry) = self.entry(index) else {
                continue;
            };
            let (address, stream) = (entry.address, entry.stream);
            let own = self.streams.at(stream.index);
            let is_over = own.generation != stream.generation
                || (own.is_retired && own.passed == own.issued)
                || entry.is_complete;
            let route = match (is_over, own.is_retired) {
                (true, _) => FreeOrder::Any(stream),
                (false, false) => FreeOrder::Own(stream),
                (false, true) => {
                    self.ready.push(index);
                    continue;
                }
            };
            if let Some(entry) = self.entry_mut(index) {
                entry.state = State::FreeOutcome;
            }
            self.by_address.remove(&address);
            departures.push(DeferredFree { index, address, route });
        }
        departures
    }

    /// Whether there is a block that may go back to the driver.
    pub const fn has_deferred_frees(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A block has gone back to the driver, or could not.
    pub fn finish_free(&mut self, departure: DeferredFree, is_done: bool) {
        let DeferredFree { index, address, .. } = departure;
        let is_graphs = self.entry(index).is_some_and(|entry| entry.is_graphs);
        if is_done || is_graphs {
            self.forget(index);
        } else if let Some(entry) = self.entry_mut(index) {
            entry.state = State::Ready;
            self.ready.push(index);
            self.by_address.insert(address, index);
        }
    }

    /// Takes a block out of the books.
    fn forget(&mut self, index: u32) {
        let Some(entry) = self.table.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        self.spare.push(index);
        let Entry { bytes, requested, pool, account, is_graphs, is_counted, .. } = entry;
        let home = &mut self.pools[pool as usize];
        home.entries -= 1;
        if is_graphs {
            self.graph_bytes -= bytes;
        } else {
            home.active_bytes -= bytes;
        }
        if is_counted {
            self.accounts[account as usize].active_bytes.take(bytes);
            let class = policy::class(bytes) as usize;
            self.stats.complete(class, requested, bytes);
            self.stats.all.segments.take(1);
            self.stats.classes[class].segments.take(1);
            self.stats.classes[class].reserved_bytes.take(bytes);
        }
        self.count_reserved();
    }
}
