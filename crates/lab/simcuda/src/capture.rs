//! Stream capture: which work has been recorded so far, and after what.
//!
//! Whether a stream is being captured, and what that forbids, the simulated device knows; here is
//! the graph that comes of it. Invariant: an ongoing capture here is one there.

use crate::abi::{In, Out, Raw};
use crate::copy;
use crate::device::{Device, Tables, resolve};
use crate::handle::Kind;
use crate::status::{ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, Outcome};
use crate::stream::{Queue, UserData, queue};
use drystone_driver::{CaptureMode, CaptureStatus, Driver, Stream};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Work, as a graph remembers it.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Kernel,
    Copy { to: u64, from: u64, bytes: u64 },
    Set { to: u64, value: u32, width: usize, count: u64 },
    Host { function: unsafe extern "C" fn(*mut c_void), data: UserData },
    Child { nodes: Arc<[Node]> },
    Empty,
    Allocate,
    Free,
}

impl Node {
    /// `CUgraphNodeType`
    pub(crate) const fn kind(&self) -> i32 {
        match self {
            Node::Kernel => 0,
            Node::Copy { .. } => 1,
            Node::Set { .. } => 2,
            Node::Host { .. } => 3,
            Node::Child { .. } => 4,
            Node::Empty => 5,
            Node::Allocate => 10,
            Node::Free => 11,
        }
    }

    /// Does what can be seen of the work.
    pub(crate) fn run(&self) {
        match *self {
            Node::Copy { to, from, bytes } => copy::carry_out(to, from, bytes),
            Node::Set { to, value, width, count } => copy::fill(to, value, width, count),
            // SAFETY: the program asked for this function to be called with this pointer.
            Node::Host { function, data } => unsafe { function(data.0) },
            Node::Child { ref nodes } => nodes.iter().for_each(Node::run),
            Node::Kernel | Node::Empty | Node::Allocate | Node::Free => {}
        }
    }
}

/// A capture that has begun and not ended.
#[derive(Debug)]
pub(crate) struct Ongoing {
    graph: u64,
    /// Whether the program gave the graph.
    is_given: bool,
    /// For each stream by its value, the nodes that its next one comes after.
    frontiers: HashMap<u64, Vec<Raw>>,
}

/// Whether any capture goes on at the device.
pub(crate) fn any(device: &Device) -> bool {
    device.captures.load(Ordering::Relaxed) > 0
}

/// Whether the stream is being captured.
pub(crate) fn is_active(device: &Device, stream: Stream) -> bool {
    any(device) && matches!(device.sim.capture_of(stream), Ok(Some(_)))
}

/// The stream's capture, in the tables.
fn ongoing<'a>(
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
    let added = tables.graphs.add_node(device, graph, node(), before)?;
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
            graphs.captured(device, capture.graph, id, path_ns);
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
    status.set(status_number(found))?;
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

const fn status_number(status: CaptureStatus) -> i32 {
    match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active => 1,
        CaptureStatus::Invalidated => 2,
    }
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

const fn nowhere<T>() -> Out<T> {
    Out::null()
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
        let queue = queue(call, stream)?;
        status.set(status_number(queue.device.sim.capture_status(queue.stream)?))
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) |call| {
        let wanted = mode_of(mode.get()?)?;
        let device = crate::device::current()?;
        let mut before = CaptureMode::Global;
        for other in crate::process::devices() {
            let own = other.ordinal == device.ordinal;
            let result = other.sim.exchange_capture_mode(wanted);
            if own {
                before = result?;
            }
        }
        mode.set(match before {
            CaptureMode::Global => 0,
            CaptureMode::ThreadLocal => 1,
            CaptureMode::Relaxed => 2,
        })
    }

    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz (
        stream: Raw, status: Out<i32>, id: Out<u64>
    ) |call| {
        let wanted =
            Wanted { id, graph: nowhere(), nodes: nowhere(), edges: nowhere(), count: nowhere() };
        info(&queue(call, stream)?, status, &wanted)
    }

    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz (
        stream: Raw, status: Out<i32>, id: Out<u64>, graph: Out<Raw>, nodes: Out<*const Raw>,
        count: Out<usize>
    ) |call| {
        let wanted = Wanted { id, graph, nodes, edges: nowhere(), count };
        info(&queue(call, stream)?, status, &wanted)
    }

    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz (
        stream: Raw, status: Out<i32>, id: Out<u64>, graph: Out<Raw>, nodes: Out<*const Raw>,
        edges: Out<u64>, count: Out<usize>
    ) |call| {
        let wanted = Wanted { id, graph, nodes, edges, count };
        info(&queue(call, stream)?, status, &wanted)
    }

    fn cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz (
        stream: Raw, nodes: In<Raw>, count: usize, flags: u32
    ) |call| { update(&queue(call, stream)?, nodes, count, flags) }

    fn cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz (
        stream: Raw, nodes: In<Raw>, edges: Raw, count: usize, flags: u32
    ) |call| { update(&queue(call, stream)?, nodes, count, flags) }
}
