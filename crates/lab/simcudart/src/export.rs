//! How the runtime's functions are written.
//!
//! `exports!` takes them with bodies that come to an [`Outcome`]; an error is remembered for
//! `cudaGetLastError`. `forward!` takes those that only pass their arguments on to the driver, one
//! line each: with a context made current first, or after `without context:` with the driver ready.
//! `adapt!` takes those that are another function with other arguments; after
//! `with make_current:` a context is made current first, which that one does not do itself.
//! Who writes such rows imports `make_current` or `initialize`, which stand above this module.
//! `/ name_ptsz` names the variant for programs whose null stream is the thread's own.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use crate::driver::{HostFunction, IpcHandle, Location, Out, Stream, StreamCallback};
use crate::error::{self, Outcome, Status, record};

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

impl<T> Argument for Out<T> {}
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

/// What every function ends with.
pub fn finish(body: impl FnOnce() -> Outcome) -> Status {
    record(body().err().unwrap_or(error::SUCCESS))
}

macro_rules! exports {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $(/ $per_thread:ident)? ($($arguments:tt)*) $body:block
    )*) => {$(
        $crate::export::export_both! {
            [$(#[$doc])*] $name [$($per_thread)?] ($($arguments)*) $body
        }
    )*};
}

macro_rules! export_both {
    ([$($doc:tt)*] $name:ident [$($per_thread:ident)?] $arguments:tt $body:block) => {
        $crate::export::export_one! { $($doc)* $name $arguments $body }
        $($crate::export::per_thread! { $per_thread => $name $arguments })?
    };
}

macro_rules! export_one {
    ($(#[$doc:meta])* $name:ident($($value:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($value: $type),*) -> $crate::error::Status {
            $crate::export::finish(|| $body)
        }
    };
}

macro_rules! per_thread {
    ($per_thread:ident => $name:ident($($value:ident: $type:ty),* $(,)?)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $per_thread($($value: $type),*) -> $crate::error::Status {
            $(let $value = $crate::export::Argument::per_thread($value);)*
            // SAFETY: the contract is the same; only a null stream was given its meaning.
            unsafe { $name($($value),*) }
        }
    };
}

macro_rules! forward {
    (without context: $($name:ident => $driver:ident $arguments:tt;)*) => {
        $($crate::export::forward_one! { initialize $name => $driver $arguments })*
    };
    ($($name:ident $(/ $per_thread:ident)? => $driver:ident $arguments:tt;)*) => {$(
        $crate::export::forward_one! { make_current $name => $driver $arguments }
        $($crate::export::per_thread! { $per_thread => $name $arguments })?
    )*};
}

macro_rules! forward_one {
    ($ready:ident $name:ident => $driver:ident($($value:ident: $type:ty),*)) => {
        $crate::export::export_one! { $name($($value: $type),*) {
            unsafe extern "C" {
                fn $driver($($value: $type),*) -> $crate::error::Status;
            }
            $ready()?;
            // SAFETY: the caller keeps the contract of the CUDA function, which is the same.
            $crate::error::done(unsafe { $driver($($value),*) })
        } }
    };
}

macro_rules! adapt {
    (with $context:ident: $($rows:tt)*) => {
        $crate::export::adapt! { @ { $context()? } $($rows)* }
    };
    (@ $first:tt $(
        $(#[$doc:meta])*
        $name:ident $(/ $per_thread:ident)? ($($arguments:tt)*)
            => $target:ident $(:: $function:ident)? ($($passed:tt)*);
    )*) => {$(
        $crate::export::export_both! {
            [$(#[$doc])*] $name [$($per_thread)?] ($($arguments)*) {
                $first
                // SAFETY: the caller keeps the contract, which is the same but for what is given.
                $crate::error::done(unsafe { $target $(:: $function)? ($($passed)*) })
            }
        }
    )*};
    ($($rows:tt)*) => { $crate::export::adapt! { @ {} $($rows)* } };
}

pub(crate) use {adapt, export_both, export_one, exports, forward, forward_one, per_thread};
