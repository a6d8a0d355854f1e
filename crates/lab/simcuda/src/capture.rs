//! Stream capture: which work has been recorded so far, and after what.
//!
//! Whether a stream is being captured, and what that forbids, the simulated device knows; here is
//! the graph that comes of it. Invariant: an ongoing capture here is one there.

use crate::context;
use crate::device::Device;
use crate::fault::base_name;
use crate::handle::Kind;
use crate::status::Outcome;
use crate::tables::{Node, Ongoing, Tables};
use drystone_driver::Stream;
use drystone_sim::Rule;
use std::sync::atomic::Ordering;

pub(crate) fn any(device: &Device) -> bool {
    device.captures.load(Ordering::Relaxed) > 0
}

/// Lets the calling thread call a function, or refuses it and breaks the captures that forbid it.
/// Calls of the driver trait are left to the device, which looks for itself.
pub(crate) fn permit(function: &str) -> Outcome {
    match context::current() {
        Ok(device) if any(&device) => match Rule::named(base_name(function)) {
            Some(Rule { call: Some(_), .. }) => Ok(()),
            _ => Ok(device.sim.permit(base_name(function))?),
        },
        _ => Ok(()),
    }
}

/// Refuses a function of the stream that breaks the stream's own capture.
pub(crate) fn permit_on(function: &str, device: &Device, stream: Stream) -> Outcome {
    if !any(device) {
        return Ok(());
    }
    match Rule::named(base_name(function)) {
        Some(Rule { call: None, breaks_its_own: true, function, .. }) => {
            Ok(device.sim.permit_on(function, stream)?)
        }
        _ => Ok(()),
    }
}

/// The stream's capture, in the tables.
pub(crate) fn ongoing<'a>(
    device: &Device,
    tables: &'a mut Tables,
    stream: Stream,
) -> Outcome<Option<&'a mut Ongoing>> {
    let id = device.sim.capture_of(stream)?;
    Ok(id.and_then(|id| tables.graphs.ongoing.get_mut(&id)))
}

/// Adds a node if the stream is being captured, and says whether the work ran instead.
pub(crate) fn add(device: &Device, stream: Stream, node: impl FnOnce() -> Node) -> Outcome<bool> {
    let tables = &mut *device.tables.lock();
    let Some(capture) = ongoing(device, tables, stream)? else { return Ok(true) };
    let graph = capture.graph;
    let before = capture.frontiers.remove(&stream.0).unwrap_or_default();
    let added = tables.graphs.add_node(graph, node(), before)?;
    let added = device.handle(Kind::Node, added);
    if let Some(capture) = ongoing(device, tables, stream)? {
        capture.frontiers.insert(stream.0, vec![added]);
    }
    Ok(false)
}

/// An event was recorded on the stream.
pub(crate) fn record(device: &Device, stream: Stream, event: u64) -> Outcome {
    let tables = &mut *device.tables.lock();
    let frontier = ongoing(device, tables, stream)?
        .map(|capture| capture.frontiers.get(&stream.0).cloned().unwrap_or_default());
    match frontier {
        Some(frontier) => tables.graphs.recorded.insert(event, frontier),
        None => tables.graphs.recorded.remove(&event),
    };
    Ok(())
}

/// The stream has come to wait for an event.
pub(crate) fn join(device: &Device, stream: Stream, event: u64) {
    if !any(device) {
        return;
    }
    let tables = &mut *device.tables.lock();
    let recorded = tables.graphs.recorded.get(&event).cloned().unwrap_or_default();
    if let Ok(Some(capture)) = ongoing(device, tables, stream) {
        let frontier = capture.frontiers.entry(stream.0).or_default();
        frontier.extend(recorded);
        frontier.sort_unstable();
        frontier.dedup();
    }
}
