//! Memsets, in one dimension and in rows.

use crate::abi::Raw;
use crate::effect::{check_on, fill};
use crate::entry::Call;
use crate::queue::queue;
use crate::status::{INVALID_VALUE, Outcome};
use crate::tables::Node;

/// Queues a memset; those without a stream do not wait either, as with CUDA on device memory.
fn set(call: &Call, to: u64, value: u32, width: usize, count: usize, stream: Raw) -> Outcome {
    let bytes = (count as u64).checked_mul(width as u64).ok_or(INVALID_VALUE)?;
    INVALID_VALUE.when(!to.is_multiple_of(width as u64))?;
    let queue = queue(call, stream)?;
    check_on(&queue.device, to, bytes, false)?;
    call.count_bytes(bytes);
    let count = count as u64;
    if queue.push(0, || Node::Set { to, value, width, count })? {
        fill(to, value, width, count);
    }
    Ok(())
}

/// The same for rows.
struct Rows {
    to: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

impl Rows {
    fn set(&self, call: &Call, value: u32, element: usize, stream: Raw) -> Outcome {
        let row = self.width.checked_mul(element).ok_or(INVALID_VALUE)?;
        INVALID_VALUE.when(self.height > 1 && self.pitch < row)?;
        let starts = (0..self.height as u64).map(|y| self.to + y * self.pitch as u64);
        for start in starts {
            set(call, start, value, element, self.width, stream)?;
        }
        Ok(())
    }
}

const NO_STREAM: Raw = Raw(0);

api! {
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds = cuMemsetD8 (to: u64, value: u8, count: usize) |call| {
        set(call, to, value.into(), 1, count, NO_STREAM)
    }

    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds = cuMemsetD16 (
        to: u64, value: u16, count: usize
    ) |call| { set(call, to, value.into(), 2, count, NO_STREAM) }

    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds = cuMemsetD32 (
        to: u64, value: u32, count: usize
    ) |call| { set(call, to, value, 4, count, NO_STREAM) }

    fn cuMemsetD8Async | cuMemsetD8Async_ptsz (
        to: u64, value: u8, count: usize, stream: Raw
    ) |call| { set(call, to, value.into(), 1, count, stream) }

    fn cuMemsetD16Async | cuMemsetD16Async_ptsz (
        to: u64, value: u16, count: usize, stream: Raw
    ) |call| { set(call, to, value.into(), 2, count, stream) }

    fn cuMemsetD32Async | cuMemsetD32Async_ptsz (
        to: u64, value: u32, count: usize, stream: Raw
    ) |call| { set(call, to, value, 4, count, stream) }

    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds = cuMemsetD2D8 (
        to: u64, pitch: usize, value: u8, width: usize, height: usize
    ) |call| { Rows { to, pitch, width, height }.set(call, value.into(), 1, NO_STREAM) }

    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds = cuMemsetD2D16 (
        to: u64, pitch: usize, value: u16, width: usize, height: usize
    ) |call| { Rows { to, pitch, width, height }.set(call, value.into(), 2, NO_STREAM) }

    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds = cuMemsetD2D32 (
        to: u64, pitch: usize, value: u32, width: usize, height: usize
    ) |call| { Rows { to, pitch, width, height }.set(call, value, 4, NO_STREAM) }

    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz (
        to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Raw
    ) |call| { Rows { to, pitch, width, height }.set(call, value.into(), 1, stream) }

    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz (
        to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Raw
    ) |call| { Rows { to, pitch, width, height }.set(call, value.into(), 2, stream) }

    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz (
        to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Raw
    ) |call| { Rows { to, pitch, width, height }.set(call, value, 4, stream) }
}
