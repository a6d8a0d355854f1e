//! The functions in whose place ours stand, by CUDA's names. Programs that are linked with the
//! driver find them first; those that look functions up get them by `lookup`.
//!
//! Invariants: each answers as the driver does wherever it does not serve; none calls anything but
//! `driver`'s functions; no panic leaves one (P5). While the process holds no driver each refuses.

mod context;
mod memory;
mod pointer;
mod pool;
mod stream;

/// A function of ours.
pub(crate) struct Hook {
    pub(crate) name: &'static str,
    pub(crate) address: *const (),
}

// SAFETY: a function's address, which any thread may read.
unsafe impl Sync for Hook {}

/// Every function of ours but those that look others up.
pub(crate) fn all() -> impl Iterator<Item = &'static Hook> {
    let tables = [context::HOOKS, memory::HOOKS, pointer::HOOKS, pool::HOOKS, stream::HOOKS];
    tables.into_iter().flatten()
}

/// Defines functions by CUDA's names. Each finds the driver as the first and the call of the
/// driver's own function as the second name after its arguments.
macro_rules! hooks {
    ($(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        |$driver:pat_param, $drivers:ident| $body:block
    )*) => {
        $(
            /// # Safety
            /// As CUDA's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::driver::Status {
                let Some(driver) = $crate::driver::loaded() else {
                    return $crate::driver::NOT_INITIALIZED;
                };
                // SAFETY: the caller's own arguments, as it promised the driver.
                let $drivers = || unsafe { (driver.$name)($($argument),*) };
                let $driver = driver;
                $body
            }
        )*

        pub(super) static HOOKS: &[$crate::hooks::Hook] = &[$(
            $crate::hooks::Hook { name: stringify!($name), address: $name as *const () },
        )*];
    };
}
use hooks;
