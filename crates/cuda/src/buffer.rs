//! [`Buffer`]: device memory from any allocator, typed, wherever cudarc takes a slice.
//!
//! Kernel arguments, copies, fills, and the libraries that cudarc wraps take it, or a part of it,
//! as they take cudarc's own `CudaSlice`. Unlike that, it makes no events, calls nothing of CUDA,
//! and is freed by dropping its owner.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, LaunchArgs, PushKernelArg,
    SyncOnDrop, ValidAsZeroBits,
};

/// A block of device memory that is given back when this is dropped.
pub trait DeviceBlock {
    /// Where it starts on the device; aligned for every element type.
    fn address(&self) -> CUdeviceptr;

    /// Its size in bytes.
    fn bytes(&self) -> u64;
}

/// A type of which any bytes are a value, so that memory nobody has written may be read.
///
/// # Safety
/// Every pattern of `size_of::<Self>()` bytes is a value of the type.
pub unsafe trait AnyBits: DeviceRepr + ValidAsZeroBits {}

macro_rules! any_bits {
    ($($type:ty),*) => {$(
        // SAFETY: a number without invalid patterns.
        unsafe impl AnyBits for $type {}
    )*};
}

any_bits!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
#[cfg(feature = "f16")]
any_bits!(half::f16, half::bf16);

/// `len` elements of device memory, which belong to an owner and are given back when that is
/// dropped.
///
/// The memory is used in the order of the buffer's stream. Who uses it on another stream orders
/// the two streams, and tells the owner, if that reuses memory in stream order: cudarc's own
/// tracking of streams does not see this type.
#[derive(Debug)]
pub struct Buffer<T, Owner> {
    /// Before the stream, which an owner may need while it is dropped.
    owner: Owner,
    pointer: CUdeviceptr,
    len: usize,
    stream: Arc<CudaStream>,
    marker: PhantomData<T>,
}

/// A part of a [`Buffer`], to be read.
#[derive(Debug)]
pub struct BufferView<'a, T> {
    pointer: CUdeviceptr,
    len: usize,
    stream: &'a Arc<CudaStream>,
    marker: PhantomData<&'a T>,
}

/// A part of a [`Buffer`], to be written.
#[derive(Debug)]
pub struct BufferViewMut<'a, T> {
    pointer: CUdeviceptr,
    len: usize,
    stream: &'a Arc<CudaStream>,
    marker: PhantomData<&'a mut T>,
}

impl<T: AnyBits, Owner: DeviceBlock> Buffer<T, Owner> {
    /// The front of an owner's memory as `len` elements. What they contain is whatever is there.
    ///
    /// As safe as cudarc's [`DevicePtr`], which anybody may implement: a wrong address is a wrong
    /// device address.
    ///
    /// # Errors
    /// The owner, whose memory is too small.
    pub fn of(owner: Owner, len: usize, stream: Arc<CudaStream>) -> Result<Self, Owner> {
        let bytes = len.checked_mul(size_of::<T>()).map(|bytes| bytes as u64);
        if bytes.is_none_or(|bytes| bytes > owner.bytes()) {
            return Err(owner);
        }
        Ok(Self { pointer: owner.address(), owner, len, stream, marker: PhantomData })
    }
}

impl<T, Owner> Buffer<T, Owner> {
    /// Device memory as a buffer.
    ///
    /// # Safety
    ///
    /// As long as `owner` lives, `len` elements of `T` from `pointer` on are device memory that is
    /// reachable from the stream's device, aligned for `T`, and nobody else's; they can be used in
    /// the order of `stream` from the work that is queued on it next. Dropping the owner makes the
    /// memory reusable only in that order. Its contents are whatever they are: any bytes must be a
    /// value of `T`, or the elements must be written before they are read.
    pub unsafe fn new(
        pointer: CUdeviceptr,
        len: usize,
        stream: Arc<CudaStream>,
        owner: Owner,
    ) -> Self {
        Self { owner, pointer, len, stream, marker: PhantomData }
    }

    /// Who gives the memory back.
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Takes the memory's owner out: the memory lives on as long as that does.
    pub fn into_owner(self) -> Owner {
        self.owner
    }

    /// The first element's address.
    pub const fn address(&self) -> CUdeviceptr {
        self.pointer
    }

    /// The elements in `range`; `None` if that reaches beyond the end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Option<BufferView<'_, T>> {
        let (pointer, len) = part::<T>(self.pointer, self.len, &range)?;
        Some(BufferView { pointer, len, stream: &self.stream, marker: PhantomData })
    }

    /// The elements in `range`, to be written; `None` if that reaches beyond the end.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<BufferViewMut<'_, T>> {
        let (pointer, len) = part::<T>(self.pointer, self.len, &range)?;
        Some(BufferViewMut { pointer, len, stream: &self.stream, marker: PhantomData })
    }
}

impl<'a, T> BufferView<'a, T> {
    /// The elements in `range` of this part; `None` if that reaches beyond its end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Option<BufferView<'a, T>> {
        let (pointer, len) = part::<T>(self.pointer, self.len, &range)?;
        Some(BufferView { pointer, len, stream: self.stream, marker: PhantomData })
    }
}

impl<T> BufferViewMut<'_, T> {
    /// The elements in `range` of this part; `None` if that reaches beyond its end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Option<BufferView<'_, T>> {
        let (pointer, len) = part::<T>(self.pointer, self.len, &range)?;
        Some(BufferView { pointer, len, stream: self.stream, marker: PhantomData })
    }

    /// The elements in `range` of this part, to be written; `None` if that reaches beyond its end.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<BufferViewMut<'_, T>> {
        let (pointer, len) = part::<T>(self.pointer, self.len, &range)?;
        Some(BufferViewMut { pointer, len, stream: self.stream, marker: PhantomData })
    }
}

/// Start and number of the elements in `range`.
fn part<T>(
    pointer: CUdeviceptr,
    len: usize,
    range: &impl RangeBounds<usize>,
) -> Option<(CUdeviceptr, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1)?,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    let is_within = start <= end && end <= len;
    is_within.then(|| (pointer + (start * size_of::<T>()) as u64, end - start))
}

/// What cudarc asks of a slice, for a type with `pointer`, `len` and `stream`.
macro_rules! readable {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> DeviceSlice<T> for $type {
            fn len(&self) -> usize {
                self.len
            }

            fn stream(&self) -> &Arc<CudaStream> {
                &self.stream
            }
        }

        impl<$($generics)*> DevicePtr<T> for $type {
            fn device_ptr<'s>(&'s self, _: &'s CudaStream) -> (CUdeviceptr, SyncOnDrop<'s>) {
                (self.pointer, SyncOnDrop::Record(None))
            }
        }
    };
}

macro_rules! writable {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> DevicePtrMut<T> for $type {
            fn device_ptr_mut<'s>(
                &'s mut self,
                _: &'s CudaStream,
            ) -> (CUdeviceptr, SyncOnDrop<'s>) {
                (self.pointer, SyncOnDrop::Record(None))
            }
        }
    };
}

readable!([T, Owner] Buffer<T, Owner>);
readable!([T] BufferView<'_, T>);
readable!([T] BufferViewMut<'_, T>);
writable!([T, Owner] Buffer<T, Owner>);
writable!([T] BufferViewMut<'_, T>);

/// A kernel takes the address, which stays where it is until the launch.
macro_rules! kernel_argument {
    ([$($generics:tt)*] $reference:ty) => {
        // SAFETY: pushes a reference to the address, which lives as long as the launch arguments.
        unsafe impl<'a, 'b: 'a, $($generics)*> PushKernelArg<$reference> for LaunchArgs<'a> {
            #[inline(always)]
            fn arg(&mut self, argument: $reference) -> &mut Self {
                self.arg(&argument.pointer)
            }
        }
    };
}

kernel_argument!([T, Owner] &'b Buffer<T, Owner>);
kernel_argument!([T, Owner] &'b mut Buffer<T, Owner>);
kernel_argument!(['c: 'b, T] &'b BufferView<'c, T>);
kernel_argument!(['c: 'b, T] &'b mut BufferViewMut<'c, T>);

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_part_starts_at_its_first_element() {
        assert_eq!(part::<f32>(0x1000, 8, &(2..5)), Some((0x1008, 3)));
        assert_eq!(part::<f32>(0x1000, 8, &..), Some((0x1000, 8)));
        assert_eq!(part::<f32>(0x1000, 8, &(6..)), Some((0x1018, 2)));
        assert_eq!(part::<u8>(0x1000, 8, &(..=7)), Some((0x1000, 8)));
        assert_eq!(part::<f32>(0x1000, 8, &(8..8)), Some((0x1020, 0)));
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    fn b35_a_part_beyond_the_end_is_none() {
        assert_eq!(part::<f32>(0x1000, 8, &(2..9)), None);
        assert_eq!(part::<f32>(0x1000, 8, &(5..2)), None);
        assert_eq!(part::<f32>(0x1000, 8, &(..=usize::MAX)), None);
        assert_eq!(part::<f32>(0x1000, 8, &(usize::MAX..)), None);
    }
}
