//! [`Counters`]: how often each call was made, and over how many bytes.
//!
//! Atomics outside the device's lock: a replay reads them while other threads make calls. Refused
//! calls count too, since they cost the caller the same.

use crate::cost::CostTable;
use drystone_driver::Call;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Counters {
    rows: [Row; Call::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self { rows: Call::ALL.map(|_| Row::default()) }
    }
}

#[derive(Debug, Default)]
struct Row {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, call: Call, bytes: u64) {
        let row = &self.rows[call as usize];
        row.calls.fetch_add(1, Ordering::Relaxed);
        row.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn calls_of(&self, call: Call) -> u64 {
        self.rows[call as usize].calls.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_of(&self, call: Call) -> u64 {
        self.rows[call as usize].bytes.load(Ordering::Relaxed)
    }

    /// All calls but questions.
    pub(crate) fn calls(&self) -> u64 {
        let counted = Call::ALL.into_iter().filter(|call| !call.is_query());
        counted.map(|call| self.calls_of(call)).sum()
    }

    pub(crate) fn time_us(&self, costs: &CostTable) -> f64 {
        let price = |call| costs.get(call).time_us(self.calls_of(call), self.bytes_of(call));
        Call::ALL.into_iter().map(price).sum()
    }
}
