//! What the oracle is told of blocks, each time with a kernel that uses the block.

use crate::state::State;
use crate::violation::Violation;
use drystone_driver::Stream;

impl State {
    pub(crate) fn check_alloc(&mut self, address: u64, bytes: u64, stream: Stream) {
        let Some(index) = self.pretend_kernel(address, stream) else { return };
        let pieces = self.memory.resolve(address, bytes);
        if let Some(oracle) = &mut self.oracle {
            oracle.allocated(&mut self.log, (address, bytes), (stream, index), pieces);
        }
    }

    pub(crate) fn check_use(&mut self, address: u64, stream: Stream) {
        let Some(index) = self.pretend_kernel(address, stream) else { return };
        if let Some(oracle) = &mut self.oracle {
            let pieces =
                oracle.size_of(address).and_then(|bytes| self.memory.resolve(address, bytes));
            oracle.used(&mut self.log, address, (stream, index), pieces);
        }
    }

    pub(crate) fn check_free(&mut self, address: u64) {
        let Some(oracle) = &mut self.oracle else { return };
        for (stream, index) in oracle.streams_of(&mut self.log, address) {
            // A stream destroyed meanwhile takes no more kernels; its uses so far still count.
            if self.streams.get(stream).is_ok_and(|queue| queue.index == index) {
                self.check_use(address, stream);
            }
        }
        self.oracle.iter_mut().for_each(|oracle| oracle.released(address));
    }

    /// Whether a stream that used a block is held.
    pub(crate) fn is_used_on_held(&mut self, address: u64) -> bool {
        let Some(oracle) = self.oracle.as_ref().filter(|_| !self.held.is_empty()) else {
            return false;
        };
        let streams = oracle.streams_at(address);
        streams.into_iter().any(|stream| self.is_held(stream))
    }

    /// Launches the kernel that a check stands for, and returns the stream's index.
    fn pretend_kernel(&mut self, address: u64, stream: Stream) -> Option<u32> {
        let duration_ns = self.rng.up_to(self.config.check_kernel_ns);
        // A broken capture takes no kernel, which is the program's trouble and not the block's.
        let _ = self.launch(stream, duration_ns);
        let index = self.streams.get(stream).ok().map(|queue| queue.index);
        if index.is_none() {
            self.log.add(Violation::UnknownStream { address, stream });
        }
        index
    }
}
