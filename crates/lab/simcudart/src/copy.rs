//! Copies and fills.
//!
//! Addresses are unified, so the direction that a program states is only checked to be one; rows
//! that it calls the host's are taken for the host's.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::context::{check_device, make_current, primary};
use crate::driver::{self, Address, Copy2d, Handle, Stream};
use crate::error::{self, Outcome, done};
use crate::export::{adapt, exports, forward};

/// `cudaMemcpyKind`: which side is the host and which the device.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Direction(c_int);

impl Direction {
    /// Whatever the addresses say.
    pub const UNIFIED: Self = Self(4);

    /// The sides' memory types as the driver numbers them, source first.
    fn sides(self) -> Outcome<(c_uint, c_uint)> {
        const HOST: c_uint = 1;
        const UNIFIED: c_uint = 4;
        match self.0 {
            0 => Ok((HOST, HOST)),
            1 => Ok((HOST, UNIFIED)),
            2 => Ok((UNIFIED, HOST)),
            3 | 4 => Ok((UNIFIED, UNIFIED)),
            _ => Err(error::INVALID_MEMCPY_DIRECTION),
        }
    }
}

impl crate::export::Argument for Direction {}

/// The primary contexts of two devices.
fn contexts(to: c_int, from: c_int) -> Outcome<(Handle, Handle)> {
    make_current()?;
    check_device(to)?;
    check_device(from)?;
    Ok((primary(to)?, primary(from)?))
}

/// What the driver is to know of a copy of rows.
fn rows(
    (to, target_pitch): (Address, usize),
    (from, source_pitch): (Address, usize),
    (width, height): (usize, usize),
    direction: Direction,
) -> Outcome<Copy2d> {
    let (source_kind, target_kind) = direction.sides()?;
    make_current()?;
    Ok(Copy2d {
        source_x: 0,
        source_y: 0,
        source_kind,
        source_host: from,
        source_device: from,
        source_array: ptr::null_mut(),
        source_pitch,
        target_x: 0,
        target_y: 0,
        target_kind,
        target_host: to,
        target_device: to,
        target_array: ptr::null_mut(),
        target_pitch,
        width,
        height,
    })
}

/// A byte as CUDA passes one for fills: the lowest of an int.
fn byte(value: c_int) -> u8 {
    value.to_le_bytes()[0]
}

exports! {
    /// Copies, and waits for it.
    fn cudaMemcpy / cudaMemcpy_ptds (
        to: Address, from: Address, size: usize, direction: Direction
    ) {
        make_current()?;
        direction.sides()?;
        // SAFETY: the caller's addresses are good for as many bytes.
        done(unsafe { driver::cuMemcpy(to, from, size) })
    }

    /// Copies in stream order.
    fn cudaMemcpyAsync / cudaMemcpyAsync_ptsz (
        to: Address, from: Address, size: usize, direction: Direction, stream: Stream
    ) {
        make_current()?;
        direction.sides()?;
        // SAFETY: the caller's addresses are good for as many bytes.
        done(unsafe { driver::cuMemcpyAsync(to, from, size, stream) })
    }

    /// Copies between devices, and waits for it.
    fn cudaMemcpyPeer(
        to: Address, to_device: c_int, from: Address, from_device: c_int, size: usize
    ) {
        let (there, here) = contexts(to_device, from_device)?;
        // SAFETY: the caller's addresses are good for as many bytes; the contexts are alive.
        done(unsafe { driver::cuMemcpyPeer(to, there, from, here, size) })
    }

    /// Copies between devices in stream order.
    fn cudaMemcpyPeerAsync(
        to: Address, to_device: c_int, from: Address, from_device: c_int, size: usize,
        stream: Stream
    ) {
        let (there, here) = contexts(to_device, from_device)?;
        // SAFETY: the caller's addresses are good for as many bytes; the contexts are alive.
        done(unsafe { driver::cuMemcpyPeerAsync(to, there, from, here, size, stream) })
    }

    /// Copies rows, and waits for it.
    fn cudaMemcpy2D / cudaMemcpy2D_ptds (
        to: Address, to_pitch: usize, from: Address, from_pitch: usize,
        width: usize, height: usize, direction: Direction
    ) {
        let copy = rows((to, to_pitch), (from, from_pitch), (width, height), direction)?;
        // SAFETY: the caller's addresses are good for the rows.
        done(unsafe { driver::cuMemcpy2D_v2(&raw const copy) })
    }

    /// Copies rows in stream order.
    fn cudaMemcpy2DAsync / cudaMemcpy2DAsync_ptsz (
        to: Address, to_pitch: usize, from: Address, from_pitch: usize,
        width: usize, height: usize, direction: Direction, stream: Stream
    ) {
        let copy = rows((to, to_pitch), (from, from_pitch), (width, height), direction)?;
        // SAFETY: the caller's addresses are good for the rows.
        done(unsafe { driver::cuMemcpy2DAsync_v2(&raw const copy, stream) })
    }
}

adapt! { with make_current:
    cudaMemset / cudaMemset_ptds (to: Address, value: c_int, size: usize) =>
        driver::cuMemsetD8_v2(to, byte(value), size);
    cudaMemsetAsync / cudaMemsetAsync_ptsz (
        to: Address, value: c_int, size: usize, stream: Stream
    ) => driver::cuMemsetD8Async(to, byte(value), size, stream);
    cudaMemset2D / cudaMemset2D_ptds (
        to: Address, pitch: usize, value: c_int, width: usize, height: usize
    ) => driver::cuMemsetD2D8_v2(to, pitch, byte(value), width, height);
    cudaMemset2DAsync / cudaMemset2DAsync_ptsz (
        to: Address, pitch: usize, value: c_int, width: usize, height: usize, stream: Stream
    ) => driver::cuMemsetD2D8Async(to, pitch, byte(value), width, height, stream);
}

forward! {
    cudaMemcpyBatchAsync_v13 / cudaMemcpyBatchAsync_v13_ptsz => cuMemcpyBatchAsync_v2(
        to: *mut Address, from: *mut Address, sizes: *mut usize, count: usize,
        attributes: *mut c_void, attribute_indices: *mut usize, attribute_count: usize,
        stream: Stream);
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
