//! What others may watch: events of the crate `tracing`.
//!
//! Invariant: without the feature there is nothing of it in a program; with it a hit still tells
//! nobody.

use drystone_core::Step;
use drystone_driver::DriverError;

use crate::error::AllocateError;

/// A step of a plan was done, or failed.
pub(crate) fn step(step: &Step, failed: Option<&DriverError>) {
    #[cfg(feature = "tracing")]
    match failed {
        None => tracing::trace!(target: "drystone", ?step, "driver call"),
        Some(error) => tracing::debug!(target: "drystone", ?step, %error, "driver call failed"),
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (step, failed);
}

/// A miss waits, gives memory back, or asks the program.
pub(crate) fn recovers(how: &'static str, bytes: u64) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "drystone", how, bytes, "making room");
    #[cfg(not(feature = "tracing"))]
    let _ = (how, bytes);
}

/// A request was refused.
pub(crate) fn refused(error: &AllocateError, bytes: u64) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "drystone", bytes, %error, "refused");
    #[cfg(not(feature = "tracing"))]
    let _ = (error, bytes);
}
