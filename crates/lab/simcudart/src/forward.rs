//! How a runtime function that only passes its arguments on is written: one line in a list.
//!
//! A list names the runtime's function, its variant for programs whose null stream is the thread's
//! own (`/ name_ptsz`), and the driver's function. Each makes a context current first and remembers
//! an error for `cudaGetLastError`.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use crate::driver::{HostFunction, IpcHandle, Location, Stream, StreamCallback};

/// The stream that null means in a program built with a default stream for each thread.
const PER_THREAD: *mut c_void = std::ptr::without_provenance_mut(2);

/// An argument as a program means it that has a default stream for each thread.
pub trait Argument: Sized {
    fn per_thread(self) -> Self {
        self
    }
}

impl Argument for Stream {
    fn per_thread(self) -> Self {
        if self.0.is_null() { Stream(PER_THREAD) } else { self }
    }
}

impl<T> Argument for *mut T {}
impl<T> Argument for *const T {}
impl Argument for c_int {}
impl Argument for c_uint {}
impl Argument for c_ulonglong {}
impl Argument for usize {}
impl Argument for IpcHandle {}
impl Argument for Location {}
impl Argument for HostFunction {}
impl Argument for StreamCallback {}

/// Exports runtime functions that the driver's do the work of.
macro_rules! forward {
    ($($name:ident $(/ $per_thread:ident)? => $driver:ident $arguments:tt;)*) => {$(
        $crate::forward::forward_one! { $name => $driver $arguments }
        $($crate::forward::per_thread! { $per_thread => $name $arguments; })?
    )*};
}

macro_rules! forward_one {
    ($name:ident => $driver:ident($($value:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($value: $type),*) -> $crate::driver::Status {
            $crate::context::in_context(|| {
                // SAFETY: the caller keeps the contract of the CUDA function, which is the same.
                unsafe { $crate::driver::$driver($($value),*) }
            })
        }
    };
}

/// Exports the variants of functions of this crate for a default stream of each thread.
macro_rules! per_thread {
    ($($per_thread:ident => $name:ident($($value:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $per_thread($($value: $type),*) -> $crate::driver::Status {
            $(let $value = $crate::forward::Argument::per_thread($value);)*
            // SAFETY: the contract is the same; only a null stream was given its meaning.
            unsafe { $name($($value),*) }
        }
    )*};
}

pub(crate) use {forward, forward_one, per_thread};
