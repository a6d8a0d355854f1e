//! Copies and memsets: the driver's, but that none looks for memory while that moves.
//!
//! They are handed on as they come: numbers and addresses, which lie in the same registers, and on
//! the stack in the same order, whatever types and how many of them a function takes.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use drystone::address_calls;

use crate::driver::{self, NOT_INITIALIZED, NOT_SUPPORTED, Status};
use crate::hook::Hook;

/// The driver's function that one of ours stands in for, which was found already, or is now.
#[inline(never)]
fn find(found: &AtomicPtr<()>, ours: *const ()) -> Result<*const (), Status> {
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return Ok(known);
    }
    let library = driver::library().ok_or(NOT_INITIALIZED)?;
    let name = HOOKS.iter().find(|hook| hook.address == ours).map_or("", |hook| hook.name);
    let drivers = driver::address(&library, name).ok_or(NOT_SUPPORTED)?;
    found.store(drivers.cast_mut(), Ordering::Relaxed);
    Ok(drivers)
}

/// Hands a call on with so many arguments.
macro_rules! hands_on {
    ($(#[$lint:meta])* $hand_on:ident($($argument:ident)*)) => {
        /// # Safety
        /// As CUDA's function.
        $(#[$lint])*
        #[inline(never)]
        unsafe fn $hand_on($($argument: usize,)* found: &AtomicPtr<()>, ours: *const ()) -> Status {
            type Function = unsafe extern "C" fn($(hands_on!($argument)),*) -> Status;
            match find(found, ours) {
                Ok(found) => {
                    // SAFETY: the driver's function takes so many numbers and addresses, or fewer.
                    let function = unsafe { std::mem::transmute::<*const (), Function>(found) };
                    // SAFETY: the caller's own arguments, as it promised the driver.
                    address_calls::run(|| unsafe { function($($argument),*) })
                }
                Err(status) => status,
            }
        }
    };
    ($argument:ident) => { usize };
}

hands_on! { hand_four_on(a b c d) }
hands_on! {
    #[expect(clippy::too_many_arguments, reason = "as many as CUDA's function has")]
    hand_six_on(a b c d e f)
}
hands_on! {
    #[expect(clippy::too_many_arguments, reason = "as many as CUDA's function has")]
    hand_nine_on(a b c d e f g h i)
}

macro_rules! function {
    ($name:ident by $hand_on:ident($($argument:ident)*)) => {
        /// # Safety
        /// As CUDA's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> Status {
            static FOUND: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
            // SAFETY: the caller's own arguments.
            unsafe { $hand_on($($argument,)* &FOUND, $name as *const ()) }
        }
    };
}

macro_rules! copies_and_memsets {
    (four: $($four:ident)*; six: $($six:ident)*; nine: $($nine:ident)*;) => {
        $(function! { $four by hand_four_on(a b c d) })*
        $(function! { $six by hand_six_on(a b c d e f) })*
        $(function! { $nine by hand_nine_on(a b c d e f g h i) })*

        pub(crate) static HOOKS: &[Hook] = &[
            $(Hook { name: stringify!($four), address: $four as *const () },)*
            $(Hook { name: stringify!($six), address: $six as *const () },)*
            $(Hook { name: stringify!($nine), address: $nine as *const () },)*
        ];
    };
}

// By how many arguments they take at most.
copies_and_memsets! {
    four:
        cuMemcpy cuMemcpy_ptds cuMemcpyAsync cuMemcpyAsync_ptsz
        cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz
        cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz
        cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz
        cuMemcpy2D_v2 cuMemcpy2D_v2_ptds cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz
        cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds
        cuMemcpy3D_v2 cuMemcpy3D_v2_ptds cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz
        cuMemcpy3DPeer cuMemcpy3DPeer_ptds cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz
        cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz
        cuMemsetD8_v2 cuMemsetD8_v2_ptds cuMemsetD8Async cuMemsetD8Async_ptsz
        cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD16Async cuMemsetD16Async_ptsz
        cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD32Async cuMemsetD32Async_ptsz;
    six:
        cuMemcpyPeer cuMemcpyPeer_ptds cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz
        cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz
        cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD2D8Async cuMemsetD2D8Async_ptsz
        cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D16Async cuMemsetD2D16Async_ptsz
        cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D32Async cuMemsetD2D32Async_ptsz;
    nine:
        cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz
        cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz;
}
