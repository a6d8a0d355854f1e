//! [`Growable`]: elements in device memory that grow and shrink at an address that never changes.
//!
//! Keeps: what is handed out lies before the front; and nothing is given up before the stream has
//! waited for the uses that cudarc noted. cudarc sees one slice over all of the addresses, so that
//! its notes outlive every growth.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice,
    SyncOnDrop, ValidAsZeroBits,
};
use drystone::{AllocateError, SizeError};

use crate::device::StreamMemory;
use crate::error::MemoryError;
use crate::uses::{Fate, Uses};

/// A cache that grows with the conversation, say: contiguous, never copied, and valid in graphs.
///
/// See [`drystone::Growable`] for what it takes and gives. Physical memory is behind its elements
/// alone, in whole granules of 2 MiB. cudarc orders streams and notes uses over all of it as over
/// one slice.
#[derive(Debug)]
pub struct Growable<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    memory: ManuallyDrop<drystone::Growable>,
    uses: Uses,
    len: usize,
    elements: PhantomData<T>,
}

impl StreamMemory {
    /// Reserves addresses for up to so many elements, which may be more than the device has. There
    /// is none yet.
    ///
    /// # Errors
    /// The device or the backend maps no memory, or there are no addresses.
    ///
    /// # Panics
    /// In cudarc, if the driver has no event left.
    pub fn reserve<T: DeviceRepr>(&self, max_len: usize) -> Result<Growable<T>, MemoryError> {
        let lane = &self.lane;
        // What cudarc would panic over comes to light here.
        lane.stream.context().bind_to_thread()?;
        let mut memory = self.allocator().reserve(lane.id, bytes_of::<T>(max_len)?)?;
        if let Some(tag) = &self.tag {
            memory = memory.tagged(tag);
        }
        let room = memory.room_bytes() as usize / size_of::<T>().max(1);
        // SAFETY: reserved addresses. cudarc reads and writes none by itself, and views of what
        // has memory alone are handed out; the slice is never dropped.
        let slice = unsafe { lane.stream.upgrade_device_ptr(memory.address(), room) };
        let (slice, memory) = (ManuallyDrop::new(slice), ManuallyDrop::new(memory));
        Ok(Growable { slice, memory, uses: Uses::new(lane), len: 0, elements: PhantomData })
    }
}

fn bytes_of<T>(len: usize) -> Result<u64, MemoryError> {
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    let too_large = || AllocateError::Request(SizeError::TooLarge { bytes }.into());
    if bytes > 1 << 47 { Err(too_large().into()) } else { Ok(bytes) }
}

impl<T> Growable<T> {
    /// How many elements there can be.
    pub fn room(&self) -> usize {
        self.slice.len()
    }

    /// The first element's address, which never changes. Whoever uses it on other streams orders
    /// them.
    pub fn address(&self) -> CUdeviceptr {
        self.memory.address()
    }

    /// Physical bytes behind the elements, in whole granules.
    pub fn backed_bytes(&self) -> u64 {
        self.memory.backed_bytes()
    }

    /// Grows to so many elements; does nothing if there are as many. Those before stay as they
    /// are. Legal while the stream is captured.
    ///
    /// # Errors
    /// Out of memory, with figures and the way out; more than the room. There are as many as
    /// before.
    ///
    /// # Safety
    /// The new elements are written before they are read, or any bytes are a value of `T`.
    pub unsafe fn grow_to(&mut self, len: usize) -> Result<(), MemoryError> {
        self.uses.lane.stream.context().bind_to_thread()?;
        self.memory.grow_to(bytes_of::<T>(len)?)?;
        self.len = self.len.max(len);
        Ok(())
    }

    /// The same with new elements that are zero once the stream reaches what is queued on it next.
    /// In a capture the fill is part of the graph, and every launch repeats it.
    ///
    /// # Errors
    /// As [`grow_to`](Self::grow_to), or the fill failed.
    pub fn grow_zeros_to(&mut self, len: usize) -> Result<(), MemoryError>
    where
        T: DeviceRepr + ValidAsZeroBits,
    {
        let before = self.len;
        // SAFETY: filled at once.
        unsafe { self.grow_to(len) }?;
        if len > before {
            let stream = Arc::clone(&self.uses.lane.stream);
            let filled = stream.memset_zeros(&mut self.slice_mut(before..));
            if let Err(error) = filled {
                self.shrink_to(before)?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Grows over all that is left of the device except so many bytes, which are everything
    /// else's: see [`drystone::Growable::commit_rest`]. Returns how many elements there are then.
    ///
    /// # Errors
    /// A driver call failed, or a stream is being captured.
    ///
    /// # Safety
    /// As [`grow_to`](Self::grow_to).
    pub unsafe fn commit_rest(&mut self, margin_bytes: u64) -> Result<usize, MemoryError> {
        self.uses.lane.stream.context().bind_to_thread()?;
        let bytes = self.memory.commit_rest(margin_bytes)?;
        self.len = (bytes as usize / size_of::<T>().max(1)).max(self.len);
        Ok(self.len)
    }

    /// Shrinks to so many elements; does nothing if there are as few. What is behind them is given
    /// up once the stream has passed what is queued on it, and all uses that cudarc noted.
    ///
    /// # Errors
    /// The stream cannot wait for those uses; nothing has changed.
    pub fn shrink_to(&mut self, len: usize) -> Result<(), MemoryError> {
        if len < self.len {
            self.wait_for_uses()?;
            self.memory.shrink_to(bytes_of::<T>(len)?)?;
            self.len = len;
        }
        Ok(())
    }

    /// Notes that it is also used on another stream, for contexts whose event tracking is off; else
    /// cudarc sees to it.
    ///
    /// # Errors
    /// The stream is another device's.
    pub fn record_stream(&self, other: &StreamMemory) -> Result<(), MemoryError> {
        other.check_own(&self.uses.lane.device)?;
        self.memory.record_stream(other.lane.id)?;
        self.uses.note(&other.lane);
        Ok(())
    }

    /// The stream waits for every use that cudarc noted.
    fn wait_for_uses(&mut self) -> Result<(), MemoryError> {
        let context = Arc::clone(self.uses.lane.stream.context());
        context.bind_to_thread()?;
        let earlier = context.check_err();
        let stream = Arc::clone(&self.uses.lane.stream);
        drop(self.slice.device_ptr_mut(&stream));
        let waited = context.check_err();
        context.record_err(earlier);
        Ok(waited?)
    }

    /// All elements.
    pub fn as_view(&self) -> CudaView<'_, T> {
        self.slice.slice(..self.len)
    }

    /// All elements, to be written.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.slice_mut(..self.len)
    }

    /// The elements in `range`.
    ///
    /// # Panics
    /// As cudarc does: the range reaches beyond the end.
    #[expect(clippy::expect_used, reason = "cudarc's own does")]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> CudaView<'_, T> {
        self.try_slice(range).expect("the range reaches beyond the end")
    }

    /// The elements in `range`; `None` if that reaches beyond the end.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Option<CudaView<'_, T>> {
        self.slice.try_slice(self.within(range)?)
    }

    /// The elements in `range`, to be written.
    ///
    /// # Panics
    /// As cudarc does: the range reaches beyond the end.
    #[expect(clippy::expect_used, reason = "cudarc's own does")]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> CudaViewMut<'_, T> {
        self.try_slice_mut(range).expect("the range reaches beyond the end")
    }

    /// The elements in `range`, to be written; `None` if that reaches beyond the end.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<CudaViewMut<'_, T>> {
        let range = self.within(range)?;
        self.slice.try_slice_mut(range)
    }

    /// A range, if it is one of elements that there are.
    fn within(&self, range: impl RangeBounds<usize>) -> Option<Range<usize>> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.checked_add(1)?,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        (start <= end && end <= self.len).then_some(start..end)
    }
}

impl<T> DeviceSlice<T> for Growable<T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.uses.lane.stream
    }
}

impl<T> DevicePtr<T> for Growable<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr(stream)
    }
}

impl<T> DevicePtrMut<T> for Growable<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr_mut(stream)
    }
}

impl<T> Drop for Growable<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is not used again.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        let fate = self.uses.end(slice, None);
        if fate == Fate::Never {
            return;
        }
        // SAFETY: the memory is not used again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        if fate == Fate::Keep {
            let kept = Arc::new((memory, self.uses.take()));
            kept.1.keep(&kept);
        }
    }
}
