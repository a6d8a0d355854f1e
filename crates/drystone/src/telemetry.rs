//! What others may watch: events of the crate `tracing`, and figures for the facade `metrics`.
//!
//! Invariant: without the features there is nothing of it in a program; with them a hit still tells
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

#[cfg(feature = "metrics")]
impl crate::Allocator {
    /// Sets the gauges `drystone_reserved_bytes`, `drystone_active_bytes`,
    /// `drystone_allocated_bytes` and `drystone_requested_bytes` of this device, and
    /// `drystone_tag_bytes` of each tag, in the recorder that the program has installed. To be
    /// called as often as they are to be fresh.
    pub fn emit_metrics(&self) {
        let device = self.engine.executor.driver.info().ordinal.to_string();
        let all = self.stats().all;
        let gauges = [
            ("drystone_reserved_bytes", all.reserved_bytes),
            ("drystone_active_bytes", all.active_bytes),
            ("drystone_allocated_bytes", all.allocated_bytes),
            ("drystone_requested_bytes", all.requested_bytes),
        ];
        for (name, gauge) in gauges {
            // Exact up to 8 PiB.
            metrics::gauge!(name, "device" => device.clone()).set(gauge.current as f64);
        }
        for tag in self.tag_stats() {
            let labels = [("device", device.clone()), ("tag", tag.name)];
            metrics::gauge!("drystone_tag_bytes", &labels).set(tag.bytes as f64);
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    /// What is serialised has the names of the fields.
    #[test]
    fn statistics_and_snapshots_can_be_serialised() {
        fn can<T: serde::Serialize>() {}
        can::<(crate::Stats, crate::RemapStats, Vec<crate::PoolStreamStats>)>();
        can::<(Vec<crate::SegmentView>, crate::Budget, Vec<crate::TagStats>)>();
    }
}
