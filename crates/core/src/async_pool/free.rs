//! Frees: back to the driver at once, in the order of the block's stream; or deferred, where other
//! streams used the block, until the host knows that they are done with it.
//!
//! Nobody's stream is made to wait for another (B29). Where recording a use fails, the block is
//! quarantined until the device was idle (B5, B8). A block that a graph owns can be freed only
//! within a capture; afterwards it is the graph's, and is only forgotten here.

use super::{AsyncPools, Block, State};
use crate::error::FreeError;
use crate::fence::Fence;
use crate::id::StreamId;
use crate::plan::Plan;
use crate::space::block::{BlockIndex, NO_USES};

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

/// A block that goes back to the driver, to be handed back by [`AsyncPools::finish_free`].
#[derive(Debug)]
#[must_use = "the block counts as in use until its free is finished"]
pub struct DeferredFree {
    pub(super) index: BlockIndex,
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
    /// Done: the graph that owns the block keeps it, or it waits for the end of its own stream.
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
        self.blocks[index.slot()].state = State::Freeing;
        let block = self.blocks[index.slot()];
        self.stats.free(block.class() as usize, block.bytes);
        let of = self.pool_stream(&block);
        assert!(block.bytes <= of.allocated_bytes, "more is freed than was allocated");
        of.allocated_bytes -= block.bytes;
        let uses = &mut self.blocks[index.slot()].uses;
        if block.is_graphs && *uses != NO_USES {
            // Ordering the free after other streams could draw them into the capture.
            self.streams.uses.clear(uses);
            self.by_address.remove(&address);
            self.forget(index);
            return Ok(FreeOutcome::Done);
        }
        if let Some(plan) = self.streams.plan_free(index, uses) {
            return Ok(FreeOutcome::Plan(plan));
        }
        self.blocks[index.slot()].state = State::Ready;
        Ok(self.start_free(index).map_or(FreeOutcome::Done, FreeOutcome::Now))
    }

    /// Frees a live block, given the size it was allocated with.
    ///
    /// # Errors
    /// As [`free`](Self::free), and another size than the block's; nothing has changed.
    pub fn free_sized(&mut self, address: u64, given_bytes: u64) -> Result<FreeOutcome, FreeError> {
        let requested_bytes = self.blocks[self.find_live(address)?.slot()].requested;
        if given_bytes != requested_bytes {
            return Err(FreeError::WrongSize { address, given_bytes, requested_bytes });
        }
        self.free(address)
    }

    /// The blocks that may go back to the driver now, those in the order of their own stream only
    /// if that `may_be_named` to the driver. To be taken again after each fence that passes, and
    /// after a free that failed.
    pub fn deferred_frees(&mut self, may_be_named: impl Fn(StreamId) -> bool) -> Vec<DeferredFree> {
        let mut begun = Vec::new();
        for index in std::mem::take(&mut self.deferred) {
            match self.route(&self.blocks[index.slot()]) {
                Some(FreeOrder::Own(stream)) if !may_be_named(stream) => self.deferred.push(index),
                _ => begun.extend(self.start_free(index)),
            }
        }
        begun
    }

    /// Whether freed blocks could not go back yet that wait for no fence.
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Lets a block go back to the driver, or defers that.
    fn start_free(&mut self, index: BlockIndex) -> Option<DeferredFree> {
        let Some(route) = self.route(&self.blocks[index.slot()]) else {
            self.deferred.push(index);
            return None;
        };
        let block = &mut self.blocks[index.slot()];
        block.state = State::Freeing;
        self.by_address.remove(&block.address);
        Some(DeferredFree { index, address: block.address, route })
    }

    /// In whose order a freed block may go. `None` while it may not: it is quarantined, or its
    /// stream is retired, so that nothing can be queued in its order, but may still use it.
    fn route(&self, block: &Block) -> Option<FreeOrder> {
        let Block { stream, state, is_graphs, .. } = *block;
        match state {
            State::Ready if is_graphs => Some(FreeOrder::Graph(stream)),
            State::Ready if self.streams.live(stream).is_ok() => Some(FreeOrder::Own(stream)),
            State::Ready if !self.streams.is_over(stream) => None,
            State::Ready | State::Complete => Some(FreeOrder::Any(stream)),
            _ => None,
        }
    }

    /// A block has gone back to the driver, or could not.
    pub fn finish_free(&mut self, free: DeferredFree, is_done: bool) {
        let DeferredFree { index, address, route } = free;
        let state = self.blocks[index.slot()].state;
        assert!(state == State::Freeing, "a free is finished that was not begun");
        let state = match route {
            FreeOrder::Own(_) if !is_done => State::Ready,
            FreeOrder::Any(_) if !is_done => State::Complete,
            // Whether the capture took the free of a graph's block or not: it is the graph's.
            _ => return self.forget(index),
        };
        self.blocks[index.slot()].state = state;
        self.deferred.push(index);
        self.by_address.insert(address, index.0);
    }

    fn forget(&mut self, index: BlockIndex) {
        let block = self.blocks[index.slot()];
        assert!(block.state == State::Freeing, "a block is forgotten that was not being freed");
        self.blocks[index.slot()].state = State::Gone;
        self.spare.push(index);
        let of = self.pools.at_mut(block.pool);
        assert!(of.blocks > 0, "a pool gives back more than it had");
        of.blocks -= 1;
        let held = self.held_mut(&block);
        assert!(block.bytes <= *held, "a pool gives back more than it held");
        *held -= block.bytes;
        if block.is_counted {
            self.pool_stream(&block).active_bytes.take(block.bytes);
            self.stats.complete(block.class() as usize, block.requested, block.bytes);
        }
        self.count_reserved();
    }

    /// The fences of a freed block are recorded: it waits for those that have not passed yet.
    pub(super) fn wait_for(&mut self, index: BlockIndex, fences: &[Fence]) {
        let block = &mut self.blocks[index.slot()];
        block.state = State::Waiting;
        if self.streams.wait_for(fences, index, &mut block.uses) {
            block.state = State::Ready;
            self.deferred.push(index);
        }
    }

    /// Recording failed (B8): the block stays until the device was idle.
    pub(super) fn quarantine(&mut self, index: BlockIndex) {
        let block = &mut self.blocks[index.slot()];
        assert!(block.state == State::Freeing, "a block is quarantined that was not freed");
        self.streams.uses.clear(&mut block.uses);
        block.state = State::Quarantined;
        self.stats.rare.quarantined_bytes += block.bytes;
        self.deferred.push(index);
    }

    /// The device was idle since a deferred block was freed.
    pub(super) fn complete(&mut self, index: BlockIndex) {
        let block = &mut self.blocks[index.slot()];
        let is_deferred =
            matches!(block.state, State::Ready | State::Complete | State::Quarantined);
        assert!(is_deferred, "a block's last use is over that was not deferred");
        if block.state == State::Quarantined {
            let quarantined = &mut self.stats.rare.quarantined_bytes;
            assert!(block.bytes <= *quarantined, "more leaves the quarantine than went in");
            *quarantined -= block.bytes;
        }
        block.state = State::Complete;
        self.deferred.push(index);
    }
}
