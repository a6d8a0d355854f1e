//! Copies and fills.
//!
//! Addresses are unified, so the direction that a program states is only checked to be one; rows
//! that it calls the host's are taken for the host's.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::context::{check_device, in_context, primary};
use crate::driver::{self, Address, Copy2d, Handle, Status, Stream};
use crate::error;
use crate::forward::{forward, per_thread};
use crate::last_error::record;

/// `cudaMemcpyKind`: which side is the host and which the device.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Direction(c_int);

impl Direction {
    /// Whatever the addresses say.
    pub const UNIFIED: Self = Self(4);

    /// The sides' memory types as the driver numbers them, source first; none for no direction.
    fn sides(self) -> Option<(c_uint, c_uint)> {
        const HOST: c_uint = 1;
        const UNIFIED: c_uint = 4;
        match self.0 {
            0 => Some((HOST, HOST)),
            1 => Some((HOST, UNIFIED)),
            2 => Some((UNIFIED, HOST)),
            3 | 4 => Some((UNIFIED, UNIFIED)),
            _ => None,
        }
    }
}

impl crate::forward::Argument for Direction {}

fn checked(direction: Direction, call: impl FnOnce() -> Status) -> Status {
    in_context(|| match direction.sides() {
        Some(_) => call(),
        None => error::INVALID_MEMCPY_DIRECTION,
    })
}

/// Copies, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy(
    to: Address,
    from: Address,
    size: usize,
    direction: Direction,
) -> Status {
    // SAFETY: the caller's addresses are good for as many bytes.
    checked(direction, || unsafe { driver::cuMemcpy(to, from, size) })
}

/// Copies in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyAsync(
    to: Address,
    from: Address,
    size: usize,
    direction: Direction,
    stream: Stream,
) -> Status {
    // SAFETY: the caller's addresses are good for as many bytes.
    checked(direction, || unsafe { driver::cuMemcpyAsync(to, from, size, stream) })
}

/// Copies between the primary contexts of two devices.
fn between(to: c_int, from: c_int, copy: impl FnOnce(Handle, Handle) -> Status) -> Status {
    in_context(|| {
        for device in [to, from] {
            match check_device(device) {
                error::SUCCESS => {}
                status => return status,
            }
        }
        match (primary(to), primary(from)) {
            (Ok(there), Ok(here)) => copy(there, here),
            (Err(status), _) | (_, Err(status)) => status,
        }
    })
}

/// Copies between devices, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyPeer(
    to: Address,
    to_device: c_int,
    from: Address,
    from_device: c_int,
    size: usize,
) -> Status {
    between(to_device, from_device, |there, here| {
        // SAFETY: the caller's addresses are good for as many bytes; the contexts are alive.
        unsafe { driver::cuMemcpyPeer(to, there, from, here, size) }
    })
}

/// Copies between devices in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyPeerAsync(
    to: Address,
    to_device: c_int,
    from: Address,
    from_device: c_int,
    size: usize,
    stream: Stream,
) -> Status {
    between(to_device, from_device, |there, here| {
        // SAFETY: the caller's addresses are good for as many bytes; the contexts are alive.
        unsafe { driver::cuMemcpyPeerAsync(to, there, from, here, size, stream) }
    })
}

/// Copies rows, by the call that is given what the driver is to know.
fn rows(
    (to, to_pitch): (Address, usize),
    (from, from_pitch): (Address, usize),
    (width, height): (usize, usize),
    direction: Direction,
    call: impl FnOnce(&Copy2d) -> Status,
) -> Status {
    let Some((from_kind, to_kind)) = direction.sides() else {
        return record(error::INVALID_MEMCPY_DIRECTION);
    };
    let copy = Copy2d {
        source_x: 0,
        source_y: 0,
        source_kind: from_kind,
        source_host: from,
        source_device: from,
        source_array: ptr::null_mut(),
        source_pitch: from_pitch,
        target_x: 0,
        target_y: 0,
        target_kind: to_kind,
        target_host: to,
        target_device: to,
        target_array: ptr::null_mut(),
        target_pitch: to_pitch,
        width,
        height,
    };
    in_context(|| call(&copy))
}

/// Copies rows, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy2D(
    to: Address,
    to_pitch: usize,
    from: Address,
    from_pitch: usize,
    width: usize,
    height: usize,
    direction: Direction,
) -> Status {
    rows((to, to_pitch), (from, from_pitch), (width, height), direction, |copy| {
        // SAFETY: the caller's addresses are good for the rows.
        unsafe { driver::cuMemcpy2D_v2(copy) }
    })
}

/// Copies rows in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy2DAsync(
    to: Address,
    to_pitch: usize,
    from: Address,
    from_pitch: usize,
    width: usize,
    height: usize,
    direction: Direction,
    stream: Stream,
) -> Status {
    rows((to, to_pitch), (from, from_pitch), (width, height), direction, |copy| {
        // SAFETY: the caller's addresses are good for the rows.
        unsafe { driver::cuMemcpy2DAsync_v2(copy, stream) }
    })
}

/// A byte as CUDA passes one for fills: the lowest of an int.
fn byte(value: c_int) -> u8 {
    value.to_le_bytes()[0]
}

/// Fills with a byte, and waits for it where CUDA does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset(to: Address, value: c_int, size: usize) -> Status {
    // SAFETY: the caller's address is good for as many bytes.
    in_context(|| unsafe { driver::cuMemsetD8_v2(to, byte(value), size) })
}

/// Fills with a byte in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemsetAsync(
    to: Address,
    value: c_int,
    size: usize,
    stream: Stream,
) -> Status {
    // SAFETY: the caller's address is good for as many bytes.
    in_context(|| unsafe { driver::cuMemsetD8Async(to, byte(value), size, stream) })
}

/// Fills rows with a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset2D(
    to: Address,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
) -> Status {
    // SAFETY: the caller's address is good for the rows.
    in_context(|| unsafe { driver::cuMemsetD2D8_v2(to, pitch, byte(value), width, height) })
}

/// Fills rows with a byte in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset2DAsync(
    to: Address,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: Stream,
) -> Status {
    let value = byte(value);
    // SAFETY: the caller's address is good for the rows.
    in_context(|| unsafe { driver::cuMemsetD2D8Async(to, pitch, value, width, height, stream) })
}

forward! {
    cudaMemcpyBatchAsync_v13 / cudaMemcpyBatchAsync_v13_ptsz => cuMemcpyBatchAsync_v2(
        to: *mut Address, from: *mut Address, sizes: *mut usize, count: usize,
        attributes: *mut c_void, attribute_indices: *mut usize, attribute_count: usize,
        stream: Stream);
}

per_thread! {
    cudaMemset2D_ptds => cudaMemset2D(
        to: Address, pitch: usize, value: c_int, width: usize, height: usize);
    cudaMemset2DAsync_ptsz => cudaMemset2DAsync(
        to: Address, pitch: usize, value: c_int, width: usize, height: usize, stream: Stream);
    cudaMemcpyAsync_ptsz => cudaMemcpyAsync(
        to: Address, from: Address, size: usize, direction: Direction, stream: Stream);
    cudaMemcpy2DAsync_ptsz => cudaMemcpy2DAsync(
        to: Address, to_pitch: usize, from: Address, from_pitch: usize,
        width: usize, height: usize, direction: Direction, stream: Stream);
    cudaMemsetAsync_ptsz => cudaMemsetAsync(
        to: Address, value: c_int, size: usize, stream: Stream);
    cudaMemcpy_ptds => cudaMemcpy(
        to: Address, from: Address, size: usize, direction: Direction);
    cudaMemcpy2D_ptds => cudaMemcpy2D(
        to: Address, to_pitch: usize, from: Address, from_pitch: usize,
        width: usize, height: usize, direction: Direction);
    cudaMemset_ptds => cudaMemset(to: Address, value: c_int, size: usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_layout_of_cuda() {
        assert_eq!(size_of::<Copy2d>(), 128);
        assert_eq!(std::mem::offset_of!(Copy2d, target_kind), 72);
    }
}
