//! What a CUDA program asks of a device about the memory of graphs.

use crate::device::SimDevice;

/// Memory that belongs to graphs. A capture is named by its number
/// ([`capture_of`](SimDevice::capture_of)).
impl SimDevice {
    /// The graph of a capture has run: what it left allocated may be freed outside of it.
    pub fn note_graph_run(&self, capture: u64) {
        self.inner.state.lock().memory.pools.note_run(capture);
    }

    /// The life of a capture's graph ends: its memory goes back to the device, live or not.
    pub fn end_graph(&self, capture: u64) {
        self.inner.state.lock().end_graph(capture);
    }

    /// The same for every graph whose capture has ended.
    pub fn end_graphs(&self) {
        let mut state = self.inner.state.lock();
        let mut graphs = state.memory.pools.graphs();
        graphs.retain(|&capture| !state.captures.is_ongoing(capture));
        graphs.into_iter().for_each(|capture| state.end_graph(capture));
    }

    /// Physical memory that belongs to graphs, in bytes.
    pub fn graph_bytes(&self) -> u64 {
        self.inner.state.lock().memory.pools.graph_bytes()
    }
}
