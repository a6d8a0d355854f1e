//! [`PooledSlice`]: a `CudaSlice` of cudarc's over memory of Drystone's.
//!
//! Keeps: cudarc never frees memory of Drystone's. The slice is handed out shared, never mutably,
//! so that nobody can exchange it for another; what cudarc does with `&mut CudaSlice` goes by
//! [`as_view_mut`](PooledSlice::as_view_mut), or by the traits.

use std::mem::ManuallyDrop;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice,
    LaunchArgs, PushKernelArg, SyncOnDrop,
};

use crate::block::Block;
use crate::error::MemoryError;

/// Elements in device memory of Drystone's, which goes back into its pool when this is dropped.
///
/// It is a `CudaSlice` to whoever reads, and writes by the same names. cudarc notes its uses by
/// events, if the context tracks them: a stream that uses it waits for earlier writers, and the
/// memory serves the next only after all uses. Making one then costs two events and dropping it
/// two waits, as it does for cudarc's own.
#[derive(Debug)]
pub struct PooledSlice<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    /// `None` for a slice that cudarc allocated.
    block: Option<Block>,
}

impl<T> PooledSlice<T> {
    /// The front of a block as `len` elements, which contain whatever is there.
    ///
    /// # Errors
    /// cudarc had kept an error for the next who asks.
    ///
    /// # Panics
    /// In cudarc, if the driver has no event left.
    ///
    /// # Safety
    /// The block has room for them. They are written before they are read, or any bytes are a
    /// value of `T`.
    pub unsafe fn over(block: Block, len: usize) -> Result<Self, MemoryError> {
        let stream = Arc::clone(block.stream());
        // What cudarc would panic over comes to light here.
        stream.context().bind_to_thread()?;
        // SAFETY: the block's memory, which is freed by it alone: never by this slice's drop.
        let slice = unsafe { stream.upgrade_device_ptr(block.address(), len) };
        Ok(Self { slice: ManuallyDrop::new(slice), block: Some(block) })
    }

    /// The first element's address. Whoever uses it on other streams orders them.
    pub fn address(&self) -> CUdeviceptr {
        // Asked on its own stream, where dropping the guard at once records nothing new: the
        // event of reads comes after whatever the stream has queued.
        match &self.block {
            Some(block) => block.address(),
            None => self.slice.device_ptr(self.slice.stream()).0,
        }
    }

    /// The memory, if it is Drystone's.
    pub(crate) const fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// All elements, to be written.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }

    /// The elements in `range`, to be written.
    ///
    /// # Panics
    /// As cudarc does: the range reaches beyond the end.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> CudaViewMut<'_, T> {
        self.slice.slice_mut(range)
    }

    /// The elements in `range`, to be written; `None` if that reaches beyond the end.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<CudaViewMut<'_, T>> {
        self.slice.try_slice_mut(range)
    }

    /// The elements before `mid` and those from it on, to be written.
    ///
    /// # Panics
    /// As cudarc does: `mid` is beyond the end.
    pub fn split_at_mut(&mut self, mid: usize) -> (CudaViewMut<'_, T>, CudaViewMut<'_, T>) {
        self.slice.split_at_mut(mid)
    }

    /// As [`split_at_mut`](Self::split_at_mut); `None` if `mid` is beyond the end.
    pub fn try_split_at_mut(
        &mut self,
        mid: usize,
    ) -> Option<(CudaViewMut<'_, T>, CudaViewMut<'_, T>)> {
        self.slice.try_split_at_mut(mid)
    }

    /// The memory as `len` elements of another type, to be written; `None` if it has no room.
    ///
    /// # Safety
    /// The memory holds values of `S`, or they are written first.
    pub unsafe fn transmute_mut<S>(&mut self, len: usize) -> Option<CudaViewMut<'_, S>> {
        // SAFETY: as the caller promises.
        unsafe { self.slice.transmute_mut(len) }
    }
}

impl<T> Deref for PooledSlice<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

/// Memory that cudarc allocated stays cudarc's, and is freed as such.
impl<T> From<CudaSlice<T>> for PooledSlice<T> {
    fn from(slice: CudaSlice<T>) -> Self {
        Self { slice: ManuallyDrop::new(slice), block: None }
    }
}

impl<T> Drop for PooledSlice<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is not used again.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        match self.block.take() {
            Some(block) => block.free_after(slice),
            None => drop(slice),
        }
    }
}

impl<T> DeviceSlice<T> for PooledSlice<T> {
    fn len(&self) -> usize {
        self.slice.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.slice.stream()
    }
}

impl<T> DevicePtr<T> for PooledSlice<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr(stream)
    }
}

impl<T> DevicePtrMut<T> for PooledSlice<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr_mut(stream)
    }
}

// SAFETY: cudarc's own, of the slice inside, which lives as long as the reference.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b PooledSlice<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, slice: &'b PooledSlice<T>) -> &mut Self {
        self.arg(&*slice.slice)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut PooledSlice<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, slice: &'b mut PooledSlice<T>) -> &mut Self {
        self.arg(&mut *slice.slice)
    }
}

impl<T: DeviceRepr> PooledSlice<T> {
    /// A copy, whose memory comes from where this one's does.
    ///
    /// # Errors
    /// Out of memory, or the copy failed.
    pub fn try_clone(&self) -> Result<Self, MemoryError> {
        let Some(block) = &self.block else {
            return Ok(self.slice.try_clone()?.into());
        };
        let block = Block::new(&block.uses.lane, self.slice.num_bytes() as u64, block.tag())?;
        // SAFETY: a block of that size, which is written now.
        let mut copy = unsafe { Self::over(block, self.slice.len()) }?;
        if !copy.is_empty() {
            self.slice.stream().memcpy_dtod(&*self.slice, &mut copy)?;
        }
        Ok(copy)
    }
}

/// So that a derived `Clone` of an engine's tensors stays in Drystone.
impl<T: DeviceRepr> Clone for PooledSlice<T> {
    /// As [`try_clone`](PooledSlice::try_clone).
    ///
    /// # Panics
    /// As cudarc's does: there is no memory.
    #[expect(clippy::panic, reason = "`Clone` has no other way to say it; `try_clone` has")]
    fn clone(&self) -> Self {
        self.try_clone().unwrap_or_else(|error| panic!("{error}"))
    }
}
