//! Freeing: uses on other streams, frees with what they wait for, and frees that are refused.

use drystone_core::{
    BlockState, Captured, Fence, FreeError, Freed, Plan, StateMachine, Step, StreamError, StreamId,
};

use super::World;
use super::plans::{Fate, Purpose};
use crate::reference::{Away, Block};

impl World {
    pub fn record_stream(&mut self, address: u64, stream: StreamId) {
        let recorded = self.heap.record_stream(address, stream);
        if !self.reference.streams.contains(&stream) {
            assert_eq!(recorded, Err(StreamError::Unknown { stream }.into()));
            return;
        }
        assert_eq!(recorded, Ok(()));
        let block = self.reference.live.get_mut(&address).expect("a live block");
        block.work.join(&self.device.clocks.work(stream));
        block.is_worked = true;
        // A stream that took a retired one's place is the block's own stream now.
        if stream.index() != block.stream.index() && !block.uses.contains(&stream) {
            block.uses.push(stream);
        }
    }

    pub fn free_with(&mut self, address: u64, fate: Fate) {
        self.work_on(address);
        let freed = self.heap.free(address).expect("a live block");
        let block = self.reference.free(address);
        let waited_for = self.reference.waited_for(&block);
        match freed {
            Freed::Done => {
                assert_eq!(waited_for, [], "{address:#x} is used elsewhere (P2)");
                self.reference.complete(&block);
                self.note_complete(&block);
            }
            Freed::Plan(plan) => {
                let fences = self.fences_of_free(&plan, &waited_for);
                self.reference.away.insert(address, (block, Away::Claimed));
                self.launch(*plan, Purpose::Free { address, fences }, fate);
            }
        }
    }

    pub fn free(&mut self, address: u64) {
        self.free_with(address, Fate::Complete);
        self.verify();
    }

    /// Asks for blocks, frees the last of them again, the last one first, and asks for them again.
    pub fn go_back(&mut self, pool: usize, stream: StreamId, sizes: &[u64], back: usize) {
        let ask = |world: &mut Self, bytes: u64| {
            let fate = (0, Fate::Complete);
            let given = world.allocate_with(pool, stream, bytes, Captured::None, fate);
            world.verify();
            given.map(|address| (address, bytes))
        };
        let given: Vec<_> = sizes.iter().filter_map(|&bytes| ask(self, bytes)).collect();
        let last = &given[given.len() - back.min(given.len())..];
        for &(address, _) in last.iter().rev() {
            self.free(address);
        }
        for &(_, bytes) in last {
            ask(self, bytes);
        }
    }

    /// The program works on a live block on all its streams that are still there.
    pub(super) fn work_on(&mut self, address: u64) {
        let block = self.reference.live.get_mut(&address).expect("a live block");
        for stream in std::iter::once(block.stream).chain(block.uses.clone()) {
            if self.reference.streams.contains(&stream) {
                block.work.join(&self.device.clocks.work(stream));
                block.is_worked = true;
            }
        }
    }

    /// A free records one fence on each stream that is still there, and no other (B61, B64).
    pub(super) fn fences_of_free(&self, plan: &Plan, waited_for: &[StreamId]) -> Vec<Fence> {
        let mut fences = Vec::new();
        for step in plan.steps() {
            let &Step::Record { fence } = step else { panic!("a free needs {step:?}") };
            assert!(self.reference.streams.contains(&fence.stream));
            fences.push(fence);
        }
        for &stream in waited_for {
            if let Some(&point) = self.reference.retired.get(&stream) {
                fences.push(Fence { stream, point });
            }
        }
        let mut streams: Vec<StreamId> = fences.iter().map(|fence| fence.stream).collect();
        streams.sort_unstable();
        let mut expected = waited_for.to_vec();
        expected.sort_unstable();
        assert_eq!(streams, expected, "fences of a free");
        fences
    }

    pub(super) fn note_complete(&mut self, block: &Block) {
        if block.is_worked {
            let addresses = block.address..block.address + block.bytes;
            self.device.note_work(addresses, &block.physical, &block.work);
        }
    }

    /// Frees an address that is not that of a live block: refused, and nothing changes (P3).
    pub fn free_badly(&mut self, address: u64) -> FreeError {
        let before = self.state();
        let error = self.heap.free(address).map(|_| ()).unwrap_err();
        let stream = self.reference.streams.first().copied();
        assert_eq!(self.heap.size_of(address), Err(error));
        if let Some(stream) = stream {
            assert_eq!(self.heap.record_stream(address, stream), Err(error.into()));
        }
        assert_eq!(self.state(), before, "a refused free changed something");
        let block = before.0.iter().flat_map(|segment| &segment.blocks);
        let mut block = block.filter(|b| b.address <= address && address < b.address + b.bytes);
        let expected = match block.next() {
            None => FreeError::Unknown { address },
            Some(block) => match block.state {
                BlockState::Unmapped => FreeError::Unknown { address },
                BlockState::Live | BlockState::Pending if block.address != address => {
                    FreeError::Interior {
                        address,
                        block_address: block.address,
                        block_bytes: block.bytes,
                    }
                }
                _ => FreeError::AlreadyFree { address },
            },
        };
        assert_eq!(error, expected);
        error
    }
}
