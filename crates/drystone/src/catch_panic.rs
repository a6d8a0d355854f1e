//! Code of the program that runs in the middle of a plan.
//!
//! Invariant: it cannot end the plan, which would be lost with the memory that it is about.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs it. `None` after a panic, which the program's own hook was told of.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    // A payload that panics when dropped would get out.
    catch_unwind(AssertUnwindSafe(run)).map_err(std::mem::forget).ok()
}
