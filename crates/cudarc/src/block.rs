//! [`Block`]: memory of a device's, used in the order of a stream.
//!
//! Keeps: what is asked for while the stream is captured comes from the pool of the capture's
//! session, or, where the program captures without one, from the driver, which makes it the
//! graph's. What becomes of older memory that is dropped meanwhile, `uses` says.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaSlice, CudaStream, result};
use drystone::{Held, PoolId, Tag};

use crate::error::MemoryError;
use crate::lane::{Lane, Pool, is_captured};
use crate::uses::{Fate, Uses};

/// Device memory, used in the order of a stream. Dropping it frees it in that order.
#[derive(Debug)]
pub struct Block {
    pub(crate) uses: Uses,
    /// 0 for an empty one.
    address: CUdeviceptr,
    source: Source,
    tag: Option<Tag>,
}

/// Whose memory a block is.
#[derive(Debug)]
enum Source {
    /// The allocator's.
    Default,
    /// Of a pool for graphs.
    Graphs(Arc<Pool>),
    /// The driver's, asked for in a capture without a session: a node of the graph. The allocator
    /// does not know it, so it counts by itself.
    Driver(#[expect(dead_code, reason = "dropped with the block")] Option<Held>),
}

impl Source {
    /// The pool for graphs that it is of.
    fn pool(&self) -> Option<&Arc<Pool>> {
        if let Source::Graphs(pool) = self { Some(pool) } else { None }
    }
}

impl Block {
    /// Memory on a lane.
    pub(crate) fn new(
        lane: &Arc<Lane>,
        bytes: u64,
        tag: Option<&Tag>,
    ) -> Result<Self, MemoryError> {
        lane.stream.context().bind_to_thread()?;
        let block = |address, source| {
            if let (Some(tag), Source::Default | Source::Graphs(_)) = (tag, &source) {
                // A live block of the allocator's, or none, which counts nothing.
                let _ = lane.device.allocator.tag_block(address, Some(tag));
            }
            Self { uses: Uses::new(lane), address, source, tag: tag.cloned() }
        };
        if bytes == 0 {
            return Ok(block(0, Source::Default));
        }
        let pool = lane.session.lock().as_ref().map(|session| Arc::clone(&session.pool));
        let allocator = &lane.device.allocator;
        if let Some(pool) = pool {
            let granted = allocator.allocate_raw(pool.id, lane.id, bytes)?;
            return Ok(block(granted.address, Source::Graphs(pool)));
        }
        if is_captured(&lane.stream)? {
            // SAFETY: the stream is alive, and its context current.
            let address = unsafe { result::malloc_async(lane.stream.cu_stream(), bytes as usize) };
            return Ok(block(address?, Source::Driver(tag.map(|tag| tag.hold(bytes)))));
        }
        let granted = allocator.allocate_raw(PoolId::DEFAULT, lane.id, bytes)?;
        Ok(block(granted.address, Source::Default))
    }

    /// Where it starts on the device: a multiple of 512, or of 256 where the program captures
    /// without a session. 0 for an empty one.
    pub const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// What it counts under.
    pub(crate) fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
    }

    /// The stream in whose order it is used.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.uses.lane.stream
    }

    /// Frees the memory of a slice over it once the slice's noted uses are over.
    pub(crate) fn free_after<T>(mut self, slice: CudaSlice<T>) {
        if matches!(self.source, Source::Driver(_)) {
            // cudarc frees such memory as its own.
            self.address = 0;
            return drop(slice);
        }
        let fate = self.uses.end(slice, self.source.pool());
        self.give_back(fate);
    }

    /// What becomes of it if it is dropped now.
    fn fate(&mut self) -> Fate {
        if self.address == 0 || matches!(self.source, Source::Driver(_)) {
            return Fate::Free;
        }
        self.uses.fate(self.source.pool())
    }

    /// The memory goes where the next may have it.
    fn give_back(&mut self, fate: Fate) {
        let address = std::mem::take(&mut self.address);
        let lane = &self.uses.lane;
        match (&self.source, fate) {
            _ if address == 0 => {}
            (Source::Driver(_), _) => {
                let context = lane.stream.context();
                context.record_err(context.bind_to_thread());
                // SAFETY: memory of this stream that nobody else frees; the context is current.
                let freed = unsafe { result::free_async(address, lane.stream.cu_stream()) };
                context.record_err(freed);
            }
            (_, Fate::Never) => {}
            (_, Fate::Keep) => {
                let block = Arc::new(Self {
                    uses: self.uses.take(),
                    address,
                    source: std::mem::replace(&mut self.source, Source::Default),
                    tag: self.tag.take(),
                });
                block.uses.keep(&block);
            }
            (_, Fate::Free) => {
                // The address is that of a live block of the allocator's, which only this knows.
                let _ = lane.device.allocator.free(address);
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        let context = Arc::clone(self.stream().context());
        let earlier = context.check_err();
        let fate = self.fate();
        self.give_back(fate);
        context.record_err(earlier);
    }
}
