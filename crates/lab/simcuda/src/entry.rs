//! The one way in: the macro that defines exported functions, and what each goes through.
//!
//! Invariant: what is exported is listed, and what is listed is exported. The list is told here as
//! the library is loaded, so that functions that look something up in it need not know who has it.
//! A panic ends at the boundary as `CUDA_ERROR_UNKNOWN`.

use crate::status::{Outcome, UNKNOWN};
use crate::{capture, driver_room, fault, process, violation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// An exported function, with what is counted of it.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    address: *const (),
    calls: AtomicU64,
    bytes: AtomicU64,
}

// SAFETY: the address is that of code, which any thread may have; the rest is atomic.
unsafe impl Sync for Function {}

impl Function {
    pub(crate) const fn new(name: &'static str, address: *const ()) -> Self {
        Self { name, address, calls: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub(crate) const fn address(&self) -> *const () {
        self.address
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The functions of several modules.
pub(crate) type Lists = &'static [&'static [&'static Function]];

static LISTS: OnceLock<Lists> = OnceLock::new();

pub(crate) fn list(lists: Lists) {
    let _ = LISTS.set(lists);
}

pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    LISTS.get().copied().unwrap_or_default().iter().copied().flatten().copied()
}

pub(crate) struct Call {
    function: &'static Function,
    /// Whether stream 0 is the calling thread's own default stream (`_ptsz`, `_ptds`).
    pub(crate) is_per_thread: bool,
}

impl Call {
    /// A call that no exported function stands behind.
    pub(crate) const fn new(function: &'static Function) -> Self {
        Self { function, is_per_thread: false }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.function.name
    }

    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.function.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What every exported function does around its own lines.
pub(crate) fn enter(
    function: &'static Function,
    is_per_thread: bool,
    arguments: &dyn Fn() -> String,
    body: impl FnOnce(&Call) -> Outcome,
) -> i32 {
    function.calls.fetch_add(1, Ordering::Relaxed);
    let call = Call { function, is_per_thread };
    let whole = || {
        process::admit(function.name)?;
        fault::strike(function.name)?;
        capture::permit(function.name)?;
        driver_room::take(function.name)?;
        body(&call)
    };
    let status = match catch_unwind(AssertUnwindSafe(whole)) {
        Ok(Ok(())) => 0,
        Ok(Err(status)) => status.0,
        Err(_) => UNKNOWN.0,
    };
    if violation::is_pending() {
        violation::report(function.name, status, arguments, process::config().strict);
    }
    status
}

/// Defines exported functions and the module's list of them, `FUNCTIONS`.
///
/// `fn name | name_ptsz = other_name (argument: type, ...) |call| { ... }`: names after each `|` do
/// the same with stream 0 as the thread's own default stream; names after each `=` do the same.
macro_rules! api {
    ($(
        fn $name:ident $(| $own:ident)* $(= $alias:ident)* ($($arguments:tt)*) |$call:ident|
            $body:block
    )*) => {
        $(export_all! { [$name $($alias)*] [$($own)*] ($($arguments)*) |$call| $body })*

        pub(crate) static FUNCTIONS: &[&$crate::entry::Function] = &[$(
            &$name::FUNCTION,
            $(&$own::FUNCTION,)*
            $(&$alias::FUNCTION,)*
        )*];
    };
}

/// Defines one function under all its names.
macro_rules! export_all {
    ([$($name:ident)*] [$($own:ident)*] $arguments:tt |$call:ident| $body:block) => {
        $(export! { $name false $arguments |$call| $body })*
        $(export! { $own true $arguments |$call| $body })*
    };
}

/// Defines one exported function. Its record has the same name, among the modules.
macro_rules! export {
    (
        $name:ident $is_per_thread:literal ($($argument:ident: $type:ty),* $(,)?) |$call:ident|
            $body:block
    ) => {
        #[allow(non_snake_case, reason = "CUDA's name")]
        pub(crate) mod $name {
            pub(crate) static FUNCTION: $crate::entry::Function =
                $crate::entry::Function::new(stringify!($name), super::$name as *const ());
        }

        #[allow(non_snake_case, reason = "CUDA's name")]
        #[allow(unused_variables, reason = "arguments of functions that have nothing to do")]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $type),*) -> i32 {
            $crate::entry::enter(
                &$name::FUNCTION,
                $is_per_thread,
                &|| {
                    let all: &[(&str, &dyn std::fmt::Debug)] =
                        &[$((stringify!($argument), &$argument)),*];
                    $crate::violation::show_arguments(all)
                },
                |$call| $body,
            )
        }
    };
}
