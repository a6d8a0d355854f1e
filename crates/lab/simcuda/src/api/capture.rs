//! Captures: their beginning and end, and what can be asked of them. Modes and states are numbered
//! as in CUDA.

use crate::abi::{In, Out, Raw};
use crate::capture::ongoing;
use crate::context::current;
use crate::handle::Kind;
use crate::process;
use crate::process::resolve;
use crate::queue::{Queue, asked_queue, queue};
use crate::status::{ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, Outcome};
use crate::tables::Ongoing;
use drystone_driver::{CaptureMode, Driver};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

const fn mode_of(number: i32) -> Outcome<CaptureMode> {
    match number {
        0 => Ok(CaptureMode::Global),
        1 => Ok(CaptureMode::ThreadLocal),
        2 => Ok(CaptureMode::Relaxed),
        _ => Err(INVALID_VALUE),
    }
}

fn begin(queue: &Queue, graph: Option<u64>, mode: i32) -> Outcome {
    let Queue { device, stream } = queue;
    let mode = mode_of(mode)?;
    device.sim.begin_capture(*stream, mode).map_err(|code| match code {
        drystone_driver::ErrorCode::InvalidValue => ILLEGAL_STATE,
        code => code.into(),
    })?;
    let id = device.sim.capture_of(*stream)?.ok_or(INVALID_HANDLE)?;
    let graphs = &mut device.tables.lock().graphs;
    let is_given = graph.is_some();
    let graph = graph.unwrap_or_else(|| graphs.create());
    graphs.ongoing.insert(id, Ongoing { graph, is_given, frontiers: HashMap::new() });
    device.captures.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Ends a capture and returns its graph; a broken one is gone, too.
fn end(queue: &Queue) -> Outcome<Raw> {
    let Queue { device, stream } = queue;
    let id = device.sim.capture_of(*stream)?.ok_or(ILLEGAL_STATE)?;
    let ended = device.sim.take_capture(*stream);
    if device.sim.capture_of(*stream)?.is_some() {
        return ended.map(|_| Raw(0)).map_err(Into::into);
    }
    device.captures.fetch_sub(1, Ordering::Relaxed);
    let graphs = &mut device.tables.lock().graphs;
    let capture = graphs.ongoing.remove(&id).ok_or(INVALID_HANDLE)?;
    match ended {
        Ok(path_ns) => {
            graphs.captured(device.sim.clone(), capture.graph, id, path_ns);
            Ok(device.handle(Kind::Graph, capture.graph))
        }
        Err(code) => {
            device.sim.end_graph(id);
            if !capture.is_given {
                graphs.destroy(capture.graph)?;
            }
            Err(code.into())
        }
    }
}

/// Answers to `cuStreamGetCaptureInfo` that only some versions give.
struct Wanted {
    id: Out<u64>,
    graph: Out<Raw>,
    nodes: Out<*const Raw>,
    edges: Out<u64>,
    count: Out<usize>,
}

/// What is asked of a capture; `CUgraphEdgeData` of zeroes is what it always says.
fn info(queue: &Queue, status: Out<i32>, wanted: &Wanted) -> Outcome {
    let Queue { device, stream } = queue;
    let found = device.sim.capture_status(*stream)?;
    status.set(found as i32)?;
    let tables = &mut *device.tables.lock();
    let Some(capture) = ongoing(device, tables, *stream)? else { return Ok(()) };
    let graph = device.handle(Kind::Graph, capture.graph);
    let frontier = capture.frontiers.entry(stream.0).or_default();
    wanted.id.set_if_wanted(device.sim.capture_of(*stream)?.unwrap_or(0));
    wanted.graph.set_if_wanted(graph);
    wanted.nodes.set_if_wanted(frontier.as_ptr());
    wanted.count.set_if_wanted(frontier.len());
    wanted.edges.set_if_wanted(0);
    Ok(())
}

fn update(queue: &Queue, nodes: In<Raw>, count: usize, flags: u32) -> Outcome {
    let Queue { device, stream } = queue;
    let nodes = if count == 0 { Vec::new() } else { nodes.all(count)? };
    for &node in &nodes {
        device.value(node, Kind::Node)?;
    }
    let tables = &mut *device.tables.lock();
    let capture = ongoing(device, tables, *stream)?.ok_or(ILLEGAL_STATE)?;
    let frontier = capture.frontiers.entry(stream.0).or_default();
    match flags {
        0 => frontier.extend(nodes),
        1 => *frontier = nodes,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

api! {
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz (stream: Raw, mode: i32) |call| {
        begin(&queue(call, stream)?, None, mode)
    }

    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz (stream: Raw) |call| {
        begin(&queue(call, stream)?, None, 0)
    }

    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz (
        stream: Raw, graph: Raw, nodes: In<Raw>, edges: Raw, count: usize, mode: i32
    ) |call| {
        let queue = queue(call, stream)?;
        let (device, value) = resolve(graph, Kind::Graph)?;
        device.tables.lock().graphs.check(value)?;
        begin(&queue, Some(value), mode)?;
        if count == 0 { Ok(()) } else { update(&queue, nodes, count, 1) }
    }

    fn cuStreamEndCapture | cuStreamEndCapture_ptsz (stream: Raw, graph: Out<Raw>) |call| {
        graph.set(Raw(0))?;
        graph.set(end(&queue(call, stream)?)?)
    }

    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz (stream: Raw, status: Out<i32>) |call| {
        let queue = asked_queue(call, stream)?;
        status.set(queue.device.sim.capture_status(queue.stream)? as i32)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) |call| {
        let wanted = mode_of(mode.get()?)?;
        let device = current()?;
        let mut before = CaptureMode::Global;
        for other in process::devices() {
            let own = other.ordinal == device.ordinal;
            let result = other.sim.exchange_capture_mode(wanted);
            if own {
                before = result?;
            }
        }
        mode.set(before as i32)
    }

    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz (
        stream: Raw, status: Out<i32>, id: Out<u64>
    ) |call| {
        let (graph, nodes, edges, count) = (Out::null(), Out::null(), Out::null(), Out::null());
        let wanted = Wanted { id, graph, nodes, edges, count };
        info(&asked_queue(call, stream)?, status, &wanted)
    }

    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz (
        stream: Raw, status: Out<i32>, id: Out<u64>, graph: Out<Raw>, nodes: Out<*const Raw>,
        count: Out<usize>
    ) |call| {
        let wanted = Wanted { id, graph, nodes, edges: Out::null(), count };
        info(&asked_queue(call, stream)?, status, &wanted)
    }

    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz (
        stream: Raw, status: Out<i32>, id: Out<u64>, graph: Out<Raw>, nodes: Out<*const Raw>,
        edges: Out<u64>, count: Out<usize>
    ) |call| {
        let wanted = Wanted { id, graph, nodes, edges, count };
        info(&asked_queue(call, stream)?, status, &wanted)
    }

    fn cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz (
        stream: Raw, nodes: In<Raw>, count: usize, flags: u32
    ) |call| { update(&queue(call, stream)?, nodes, count, flags) }

    fn cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz (
        stream: Raw, nodes: In<Raw>, edges: Raw, count: usize, flags: u32
    ) |call| { update(&queue(call, stream)?, nodes, count, flags) }
}
