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
/// is handed on, and nothing else done: unless it is defined `in both` modes.
///
/// A call that `takes` memory of the driver's is tried again after unused memory was given back.
macro_rules! hooks {
    ($(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(takes $wanted:expr,)? $(in $both:ident)?
        |$driver:pat_param, $drivers:ident| $body:block
    )*) => {
        $(
            /// # Safety
            /// As CUDA's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::driver::Status {
                let Some(driver) = $crate::driver::called() else {
                    return $crate::driver::NOT_INITIALIZED;
                };
                let $drivers = || {
                    // SAFETY: the caller's own arguments, as it promised the driver.
                    $crate::hook::tries!({ unsafe { (driver.$name)($($argument),*) } } $($wanted)?)
                };
                $crate::hook::unless_serving!($($both)? => return $drivers());
                let $driver = driver;
                $body
            }
        )*

        pub(crate) static HOOKS: &[$crate::hook::Hook] = &[$(
            $crate::hook::Hook { name: stringify!($name), address: $name as *const () },
        )*];
    };
}

/// A call of the driver's, once; or as often as memory is given back for it.
macro_rules! tries {
    ($call:block $wanted:expr) => {{
        let mut tries = $crate::refused::Tries::default();
        loop {
            let status = $call;
            if status != $crate::driver::OUT_OF_MEMORY || !tries.gives_back($wanted) {
                break status;
            }
        }
    }};
    ($call:block) => {
        $call
    };
}

/// What is done where ours do not serve, except hooks of both modes.
macro_rules! unless_serving {
    (both => $otherwise:expr) => {};
    (=> $otherwise:expr) => {
        if !$crate::driver::is_serving() {
            $otherwise
        }
    };
}

pub(crate) use {hooks, tries, unless_serving};
