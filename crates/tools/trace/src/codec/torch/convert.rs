//! A snapshot into traces, one for each device.
//!
//! Blocks live before recording began come first, in address order at time 0, followed by an
//! iteration mark. The recorder does not say which other streams use a block, only that its free
//! completed later than it was requested: such a block gets a record of use on one more stream
//! right before its free, and the trace a completion. Invariants: entries stay in the order they
//! were recorded in; times that go back (clocks of several threads) are raised to the latest
//! before them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::codec::error::{Place, Problem};
use crate::codec::limits::Limits;
use crate::model::Trace;
use crate::snapshot::Snapshot;

mod annotations;
mod converter;
mod start;

use converter::Converter;

pub(in crate::codec) fn traces(
    snapshot: Snapshot,
    name: &str,
    limits: &Limits,
) -> Result<Vec<Trace>, (Place, Problem)> {
    let mut devices: BTreeSet<u32> = snapshot.segments.iter().map(|s| s.device).collect();
    let recorded = snapshot.device_traces.iter().zip(0..).filter(|(trace, _)| !trace.is_empty());
    devices.extend(recorded.map(|(_, device)| device));
    if devices.is_empty() {
        return Err((Place::File, Problem::NothingRecorded));
    }
    let snapshot = Arc::new(snapshot);
    let several = devices.len() > 1;
    let convert = |device: u32| {
        let name = if several { format!("{name}-{device}") } else { name.to_owned() };
        trace(&snapshot, device, name, limits)
    };
    devices.into_iter().map(convert).collect()
}

/// Turns one device's part of a snapshot into a trace.
fn trace(
    snapshot: &Arc<Snapshot>,
    device: u32,
    name: String,
    limits: &Limits,
) -> Result<Trace, (Place, Problem)> {
    let whole = |problem| (Place::File, problem);
    let mut converter = Converter::new(snapshot, device, limits);
    let live_at_start = start::allocate(&mut converter).map_err(whole)?;
    let told = annotations::told(&snapshot.annotations, device);
    // Annotations reach further back than the entries, of which only the latest are kept.
    let base_us = converter.base_us;
    let mut told = told.skip_while(|told| told.0 < base_us).peekable();
    for (index, entry) in converter.entries.iter().enumerate() {
        while let Some((time_us, told)) = told.next_if(|told| told.0 < entry.time_us) {
            converter.told(time_us, told).map_err(whole)?;
        }
        let step = converter.entry(index, entry);
        step.map_err(|problem| (converter.place(index), problem))?;
    }
    if !converter.entries.is_empty() {
        for (time_us, told) in told {
            converter.told(time_us, told).map_err(whole)?;
        }
    }
    Ok(converter.finish(name, live_at_start))
}

#[cfg(test)]
mod tests;
