//! [`Hook`]: a function in whose place ours stands, and how one is written.

/// A function of ours.
#[derive(Debug)]
pub struct Hook {
    /// The driver's, in whose place it stands.
    pub name: &'static str,
    /// Where it is.
    pub address: *const (),
}

// SAFETY: a function's address, which any thread may read.
unsafe impl Sync for Hook {}

/// Defines functions by CUDA's names. Each finds the driver as the first and the call of the
/// driver's own function as the second name after its arguments. Where ours do not serve, the call
/// is handed on, and nothing else done.
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
                let Some(driver) = $crate::driver::serving() else {
                    return match $crate::driver::handing_on() {
                        // SAFETY: the caller's own arguments, as it promised the driver.
                        Some(driver) => unsafe { (driver.$name)($($argument),*) },
                        None => $crate::driver::NOT_INITIALIZED,
                    };
                };
                // SAFETY: the caller's own arguments, as it promised the driver.
                let $drivers = || unsafe { (driver.$name)($($argument),*) };
                let $driver = driver;
                $body
            }
        )*

        pub(crate) static HOOKS: &[$crate::hook::Hook] = &[$(
            $crate::hook::Hook { name: stringify!($name), address: $name as *const () },
        )*];
    };
}
pub(crate) use hooks;
