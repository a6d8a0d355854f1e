//! What a CUDA program asks of a device about the memory of graphs. A capture is named by its
//! number ([`capture_of`](SimDevice::capture_of)).

use crate::device::{SimDevice, locked};

locked! {
    /// The graph of a capture has run: what it left allocated may be freed outside of it.
    fn note_graph_run(capture: u64) = memory.pools.note_run;
    /// The life of a capture's graph ends: its memory goes back to the device, live or not.
    fn end_graph(capture: u64) = end_graph;
    /// Physical memory that belongs to graphs, in bytes.
    fn graph_bytes() -> u64 = memory.pools.graph_bytes;
}

impl SimDevice {
    /// The lives of all graphs end whose captures have.
    pub fn end_graphs(&self) {
        let mut state = self.inner.state.lock();
        let mut graphs = state.memory.pools.graphs();
        graphs.retain(|&capture| !state.captures.is_ongoing(capture));
        graphs.into_iter().for_each(|capture| state.end_graph(capture));
    }
}
