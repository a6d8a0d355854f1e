//! NVML: what monitoring programs, and PyTorch when memory is short, ask of devices.
//!
//! `session` begins and ends it and says how calls end, `answers` tells of a device, `find` which
//! one is meant. Numbers are those of the simulated driver; asking never makes a context.

/// Exports functions by bodies that come to an [`Outcome`](session::Outcome).
macro_rules! nvml {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($value:ident: $type:ty),* $(,)?) $body:block
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($value: $type),*) -> $crate::nvml::session::Return {
            $crate::nvml::session::finish(|| $body)
        }
    )*};
}

mod answers;
mod find;
mod records;
mod session;
