//! CUDA graphs: [`GraphPool`], [`Capture`], [`Graph`].
//!
//! Keeps: memory that a graph uses and that came from here serves nobody else while the graph
//! lives. What was asked for during the capture is of the graph's pool; what is older, is used on
//! the captured stream and was dropped during the capture, the graph holds.

use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use crate::device::{DeviceMemory, StreamMemory};
use crate::error::MemoryError;
use crate::lane::{Kept, Lane, Pool, Session};

/// Memory for graphs, apart from all other. It lives as long as the last of its handles, graphs
/// and slices. Cloning gives another handle to the same.
///
/// One pool for each graph is always safe. Several graphs may share one where they replay on one
/// stream, each from its start to its end: what one leaves free, the next captured one takes, so
/// read what a graph has computed before the next replays. With backend `async` such memory is the
/// driver's, and ends with its graph.
#[derive(Clone, Debug)]
pub struct GraphPool {
    pool: Arc<Pool>,
}

impl DeviceMemory {
    /// A pool for the memory of graphs. Makes no driver call.
    pub fn graph_pool(&self) -> GraphPool {
        GraphPool { pool: Arc::new(Pool::new(&self.device)) }
    }
}

impl StreamMemory {
    /// Begins to capture the stream's work into a graph. Until that ends, this stream's memory
    /// comes from the pool.
    ///
    /// Slices from before that the graph uses must outlive it, unless they are dropped during the
    /// capture. Those of other streams are then to be noted before, by
    /// [`record_stream`](Self::record_stream).
    ///
    /// # Errors
    /// The pool is of another device's memory, the stream is captured already, the context tracks
    /// uses by events, or the driver refuses.
    pub fn capture(
        &self,
        pool: &GraphPool,
        mode: CUstreamCaptureMode,
    ) -> Result<Capture, MemoryError> {
        self.check_own(&pool.pool.device)?;
        let lane = &self.lane;
        if lane.stream.context().is_managing_stream_synchronization() {
            return Err(MemoryError::TracksEvents);
        }
        // Nobody trims or grows half way; who does so afterwards sees the capture.
        let began = lane.device.allocator.while_memory_stays(|| {
            let mut session = lane.session.lock();
            if session.is_some() {
                return Err(MemoryError::Captured);
            }
            lane.stream.begin_capture(mode)?;
            *session = Some(Session { pool: Arc::clone(&pool.pool), kept: Vec::new() });
            Ok(())
        });
        began?.map(|()| Capture { lane: Some(Arc::clone(lane)) })
    }
}

/// A capture under way. Dropping it abandons what was captured.
#[derive(Debug)]
#[must_use = "dropping it abandons the capture"]
pub struct Capture {
    /// `None` once it has ended.
    lane: Option<Arc<Lane>>,
}

impl Capture {
    /// Ends the capture. `None`, as in cudarc, for a graph without any work.
    ///
    /// # Errors
    /// The capture was broken by a call that it forbids, or the driver cannot make the graph. It
    /// has ended all the same.
    pub fn end(mut self, flags: CUgraphInstantiate_flags) -> Result<Option<Graph>, MemoryError> {
        let Some(lane) = self.lane.take() else { return Ok(None) };
        let (graph, session) = end(&lane, flags);
        let graph = graph?;
        Ok(graph.zip(session).map(|(graph, session)| Graph {
            graph,
            _kept: session.kept,
            _pool: session.pool,
        }))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            // What was captured is not wanted, and neither is why it could not be.
            drop(end(&lane, flags));
        }
    }
}

type Ended = (Result<Option<CudaGraph>, MemoryError>, Option<Session>);

/// The session is over only once the stream is captured no more.
fn end(lane: &Lane, flags: CUgraphInstantiate_flags) -> Ended {
    let mut session = lane.session.lock();
    // An error that cudarc kept is not this call's, and would leave the capture open.
    let earlier = lane.stream.context().check_err();
    let graph = lane.stream.end_capture(flags).map_err(MemoryError::from);
    lane.stream.context().record_err(earlier);
    (graph, session.take())
}

/// A captured graph, with the memory that is its own. It is cudarc's graph to whoever launches it.
pub struct Graph {
    /// Before what it uses.
    graph: CudaGraph,
    _kept: Vec<Kept>,
    _pool: Arc<Pool>,
}

impl Deref for Graph {
    type Target = CudaGraph;

    fn deref(&self) -> &CudaGraph {
        &self.graph
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}
