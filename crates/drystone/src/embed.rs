//! Embedding: device memory for engines built on cudarc. Feature `cudarc`.
//!
//! [`DeviceMemory`] is the allocator of a device, [`StreamMemory`] allocates on one of the engine's
//! streams, and a [`Buffer`] goes wherever cudarc takes a slice: kernel arguments, copies, fills,
//! cuBLAS. A buffer makes no event, and dropping it frees into the pool in the order of its stream;
//! after the first few steps of an engine neither allocating nor dropping calls the driver. Safe
//! while the stream is being captured.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use drystone::Options;
//! use drystone::embed::DeviceMemory;
//!
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let memory = DeviceMemory::new(stream.context(), &Options::default())?;
//! let memory = memory.on(&stream)?;
//! let weights = memory.copied(&[1.0f32; 1024])?;
//! let mut scratch = memory.zeros::<f32>(4096)?;
//! stream.memcpy_dtod(&weights, &mut scratch)?;
//! assert!(memory.budget()?.would_fit(1 << 30));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use drystone_core::{SizeError, StreamId};
use drystone_cuda::{CudaDevice, CudaOptions, OpenError};
use drystone_driver::{DriverError, Stream};

pub use drystone_cuda::{AnyBits, device_count};

use crate::allocation::Allocation;
use crate::allocator::Allocator;
use crate::budget::Budget;
use crate::build_error::BuildError;
use crate::error::AllocateError;
use crate::options::Options;

/// Device memory of `T`s, which goes back into the pool when it is dropped.
pub type Buffer<T> = drystone_cuda::Buffer<T, Allocation>;

/// Why an engine did not get its memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The device could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The options ask for what the device has not.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The context is not its device's primary one, which is where the allocator's memory is.
    #[error("the context of device {ordinal} is not its primary one; make it by CudaContext::new")]
    NotPrimary {
        /// The device.
        ordinal: usize,
    },
    /// The stream belongs to another device than the memory.
    #[error("the stream is one of device {stream_ordinal}, the memory one of device {ordinal}")]
    OtherDevice {
        /// The stream's device.
        stream_ordinal: usize,
        /// The memory's device.
        ordinal: usize,
    },
    /// No memory: all figures are in the message.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// A driver call of the allocator failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A fill or a copy failed.
    #[error(transparent)]
    Cuda(#[from] cudarc::driver::DriverError),
}

impl drystone_cuda::DeviceBlock for Allocation {
    fn address(&self) -> u64 {
        self.address()
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }
}

/// The memory of one device. Cloning gives another handle to the same allocator.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    allocator: Allocator,
    ordinal: usize,
}

impl DeviceMemory {
    /// An allocator for the device of a context.
    ///
    /// # Errors
    /// The context is not the device's primary one, the device cannot be opened, or the options ask
    /// for what it has not.
    pub fn new(context: &Arc<CudaContext>, options: &Options) -> Result<Self, EmbedError> {
        let ordinal = context.ordinal();
        if !context.is_primary() {
            return Err(EmbedError::NotPrimary { ordinal });
        }
        let device = CudaDevice::open(ordinal as u32, &CudaOptions::default())?;
        Ok(Self { allocator: Allocator::new(Arc::new(device), options)?, ordinal })
    }

    /// Memory to be used in the order of a stream, which lives at least as long.
    ///
    /// # Errors
    /// The stream belongs to another device.
    pub fn on(&self, stream: &Arc<CudaStream>) -> Result<StreamMemory, EmbedError> {
        let stream_ordinal = stream.context().ordinal();
        if stream_ordinal != self.ordinal {
            return Err(EmbedError::OtherDevice { stream_ordinal, ordinal: self.ordinal });
        }
        let id = self.allocator.add_stream(Stream(stream.cu_stream().addr() as u64))?;
        Ok(StreamMemory { allocator: self.allocator.clone(), stream: Arc::clone(stream), id })
    }

    /// The allocator: statistics, trimming, limits, callbacks.
    pub const fn allocator(&self) -> &Allocator {
        &self.allocator
    }
}

/// Memory in the order of one stream. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub struct StreamMemory {
    allocator: Allocator,
    stream: Arc<CudaStream>,
    id: StreamId,
}

impl StreamMemory {
    /// Memory that contains whatever is there.
    ///
    /// # Errors
    /// Out of memory, with figures and the way out.
    pub fn uninitialised<T: AnyBits>(&self, len: usize) -> Result<Buffer<T>, EmbedError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let allocation = self.allocator.allocate(self.id, bytes)?;
        Buffer::of(allocation, len, Arc::clone(&self.stream))
            .map_err(|_| AllocateError::Request(SizeError::TooLarge { bytes }.into()).into())
    }

    /// Memory that is zero once the stream reaches what is queued on it next.
    ///
    /// # Errors
    /// Out of memory, or the fill failed.
    pub fn zeros<T: AnyBits>(&self, len: usize) -> Result<Buffer<T>, EmbedError> {
        let mut buffer = self.uninitialised(len)?;
        if len > 0 {
            self.stream.memset_zeros(&mut buffer)?;
        }
        Ok(buffer)
    }

    /// A copy of memory of the host's.
    ///
    /// # Errors
    /// Out of memory, or the copy failed.
    pub fn copied<T: AnyBits>(&self, values: &[T]) -> Result<Buffer<T>, EmbedError> {
        let mut buffer = self.uninitialised(values.len())?;
        if !values.is_empty() {
            self.stream.memcpy_htod(values, &mut buffer)?;
        }
        Ok(buffer)
    }

    /// Notes that a buffer of another stream is used on this one, too: after it is dropped its
    /// memory is not used again before this stream has passed the point it has reached by then.
    ///
    /// # Errors
    /// The buffer belongs to another allocator.
    pub fn record_stream<T>(&self, buffer: &Buffer<T>) -> Result<(), crate::RecordStreamError> {
        buffer.owner().record_stream(self.id)
    }

    /// What can still be had.
    ///
    /// # Errors
    /// The driver cannot say how much memory is free.
    pub fn budget(&self) -> Result<Budget, DriverError> {
        self.allocator.budget()
    }

    /// Whether so many bytes could be had now in one buffer. False if the driver cannot say.
    pub fn would_fit(&self, bytes: u64) -> bool {
        self.budget().is_ok_and(|budget| budget.would_fit(bytes))
    }

    /// The stream.
    pub const fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The allocator: statistics, trimming, limits, callbacks.
    pub const fn allocator(&self) -> &Allocator {
        &self.allocator
    }
}
