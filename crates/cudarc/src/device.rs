//! [`DeviceMemory`] and [`StreamMemory`]: what an engine holds.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use drystone::driver::DriverError;
use drystone::{Allocator, Budget, Options, Tag};
use drystone_cuda::{CudaDevice, CudaOptions};

use crate::alloc::DeviceAllocator;
use crate::block::Block;
use crate::error::MemoryError;
use crate::lane::{Device, Lane};
use crate::slice::PooledSlice;

/// The memory of one device. Cloning gives another handle to the same allocator.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    pub(crate) device: Arc<Device>,
}

impl DeviceMemory {
    /// An allocator for the device of a context.
    ///
    /// # Errors
    /// The context is not the device's primary one, the device cannot be opened, or the options ask
    /// for what it has not.
    pub fn new(context: &Arc<CudaContext>, options: &Options) -> Result<Self, MemoryError> {
        let ordinal = context.ordinal();
        check_primary(context)?;
        let device =
            CudaDevice::open(ordinal as u32, &CudaOptions { is_shareable: options.is_shareable })?;
        let allocator = Allocator::new(Arc::new(device), options)?;
        Ok(Self { device: Arc::new(Device::new(allocator, ordinal)) })
    }

    /// Memory to be used in the order of a stream.
    ///
    /// The stream is retired once neither such a handle nor memory of it, or noted as used on it,
    /// is left: what is free then serves other streams.
    ///
    /// # Errors
    /// The stream belongs to another device, or to another context than the primary one.
    pub fn on(&self, stream: &Arc<CudaStream>) -> Result<StreamMemory, MemoryError> {
        let (stream_ordinal, ordinal) = (stream.context().ordinal(), self.device.ordinal);
        if stream_ordinal != ordinal {
            return Err(MemoryError::OtherDevice { stream_ordinal, ordinal });
        }
        check_primary(stream.context())?;
        Ok(StreamMemory { lane: self.device.lane(stream)?, tag: None })
    }

    /// The allocator: statistics, trimming, limits, callbacks.
    pub fn allocator(&self) -> &Allocator {
        &self.device.allocator
    }
}

fn check_primary(context: &CudaContext) -> Result<(), MemoryError> {
    match context.is_primary() {
        true => Ok(()),
        false => Err(MemoryError::NotPrimary { ordinal: context.ordinal() }),
    }
}

/// Memory in the order of one stream. Cloning gives another handle to the same.
///
/// It allocates by [`Alloc`](crate::Alloc), a trait to be brought into scope. That asks the driver
/// one thing, whether the stream is being captured; so does dropping a slice, of each stream that
/// it is noted as used on.
#[derive(Clone, Debug)]
pub struct StreamMemory {
    pub(crate) lane: Arc<Lane>,
    pub(crate) tag: Option<Tag>,
}

impl StreamMemory {
    /// Notes that a slice of another stream is used on this one, too: after it is dropped its
    /// memory is not used again before this stream has passed the point it has reached by then, or,
    /// where this stream is being captured, before the graph is gone. For contexts whose event
    /// tracking is off; else cudarc sees to it.
    ///
    /// # Errors
    /// The slice is of another device's memory.
    pub fn record_stream<T>(&self, slice: &PooledSlice<T>) -> Result<(), MemoryError> {
        let Some(block) = slice.block() else {
            let ordinal = slice.ordinal();
            return Err(MemoryError::OtherMemory { ordinal });
        };
        self.check_own(&block.uses.lane.device)?;
        if block.address() > 0 {
            self.allocator().record_stream(block.address(), self.lane.id)?;
            block.uses.note(&self.lane);
        }
        Ok(())
    }

    pub(crate) fn check_own(&self, device: &Arc<Device>) -> Result<(), MemoryError> {
        match Arc::ptr_eq(device, &self.lane.device) {
            true => Ok(()),
            false => Err(MemoryError::OtherMemory { ordinal: device.ordinal }),
        }
    }

    /// The same memory, where all that is allocated counts under a tag of this name: "weights",
    /// "kv", "scratch". `allocator().tag_stats()` says how much that is.
    ///
    /// Clones of a slice count as it does; what becomes of it in a capture counts on.
    pub fn tagged(&self, name: &str) -> Self {
        Self { lane: Arc::clone(&self.lane), tag: Some(self.allocator().tag(name)) }
    }

    /// What can still be had.
    ///
    /// # Errors
    /// The driver cannot say how much memory is free.
    pub fn budget(&self) -> Result<Budget, DriverError> {
        self.allocator().budget()
    }

    /// Whether so many bytes could be had now in one slice. False if the driver cannot say.
    pub fn would_fit(&self, bytes: u64) -> bool {
        self.budget().is_ok_and(|budget| budget.would_fit(bytes))
    }

    /// The memory of the stream's device.
    pub fn device(&self) -> DeviceMemory {
        DeviceMemory { device: Arc::clone(&self.lane.device) }
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.lane.stream
    }

    /// The allocator: statistics, trimming, limits, callbacks.
    pub fn allocator(&self) -> &Allocator {
        &self.lane.device.allocator
    }
}

impl DeviceAllocator for StreamMemory {
    fn stream(&self) -> &Arc<CudaStream> {
        &self.lane.stream
    }

    fn allocate(&self, bytes: u64) -> Result<Block, MemoryError> {
        Block::new(&self.lane, bytes, self.tag.as_ref())
    }
}
