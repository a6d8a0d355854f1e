//! What an engine may be generic over: [`DeviceAllocator`], and [`Alloc`], cudarc's names for it.

use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DeviceRepr, HostSlice, ValidAsZeroBits};
use drystone::{AllocateError, SizeError};

use crate::block::Block;
use crate::error::MemoryError;
use crate::slice::PooledSlice;

/// Gives device memory in the order of a stream.
pub trait DeviceAllocator {
    /// The stream.
    fn stream(&self) -> &Arc<CudaStream>;

    /// Memory of so many bytes, which contain whatever is there.
    ///
    /// # Errors
    /// Out of memory, with figures and the way out.
    fn allocate(&self, bytes: u64) -> Result<Block, MemoryError>;
}

/// Typed memory of any [`DeviceAllocator`], by the names that cudarc's stream has for it.
pub trait Alloc: DeviceAllocator {
    /// `len` elements that contain whatever is there.
    ///
    /// # Errors
    /// Out of memory, with figures and the way out.
    ///
    /// # Safety
    /// They are written before they are read, or any bytes are a value of `T`.
    unsafe fn alloc<T: DeviceRepr>(&self, len: usize) -> Result<PooledSlice<T>, MemoryError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let too_large = || AllocateError::Request(SizeError::TooLarge { bytes }.into());
        let bytes = if bytes > 1 << 47 { return Err(too_large().into()) } else { bytes };
        // SAFETY: a block of that size; of the contents the caller promises the same.
        unsafe { PooledSlice::over(self.allocate(bytes)?, len) }
    }

    /// `len` elements that are zero once the stream reaches what is queued on it next.
    ///
    /// # Errors
    /// Out of memory, or the fill failed.
    fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        len: usize,
    ) -> Result<PooledSlice<T>, MemoryError> {
        // SAFETY: filled at once.
        let mut slice = unsafe { self.alloc(len) }?;
        if len > 0 {
            self.stream().memset_zeros(&mut slice)?;
        }
        Ok(slice)
    }

    /// A copy of memory of the host's.
    ///
    /// # Errors
    /// Out of memory, or the copy failed.
    fn clone_htod<T: DeviceRepr, Src: HostSlice<T> + ?Sized>(
        &self,
        source: &Src,
    ) -> Result<PooledSlice<T>, MemoryError> {
        // SAFETY: written at once.
        let mut slice = unsafe { self.alloc(source.len()) }?;
        if !source.is_empty() {
            self.stream().memcpy_htod(source, &mut slice)?;
        }
        Ok(slice)
    }

    /// A copy of device memory, made on this stream.
    ///
    /// # Errors
    /// Out of memory, or the copy failed.
    fn clone_dtod<T: DeviceRepr, Src: DevicePtr<T>>(
        &self,
        source: &Src,
    ) -> Result<PooledSlice<T>, MemoryError> {
        // SAFETY: written at once.
        let mut slice = unsafe { self.alloc(source.len()) }?;
        if !source.is_empty() {
            self.stream().memcpy_dtod(source, &mut slice)?;
        }
        Ok(slice)
    }
}

impl<A: DeviceAllocator + ?Sized> Alloc for A {}
