//! Graphs: nodes with what each comes after, and executable copies of them.
//!
//! Invariant: an executable graph keeps nothing of the graph it was made of. A launch takes the
//! time of the longest path of the captured work, and does what can be seen of each node.

use crate::abi::{Out, Raw, TextBuffer};
use crate::capture::{Node, Ongoing};
use crate::device::{Device, current, resolve};
use crate::handle::Kind;
use crate::status::{GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, Outcome};
use crate::stream::queue;
use drystone_sim::{HandleTable, SimDevice};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// Values of the nodes, in the order they were added.
    pub(crate) nodes: Vec<u64>,
    path_ns: u64,
    memory: Vec<Arc<GraphMemory>>,
}

/// Memory allocated in a capture, as long as its graph or an executable copy lives.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    device: SimDevice,
    capture: u64,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.device.end_graph(self.capture);
    }
}

#[derive(Debug)]
pub(crate) struct NodeRecord {
    pub(crate) graph: u64,
    pub(crate) node: Node,
    pub(crate) after: Vec<Raw>,
}

#[derive(Clone, Debug)]
pub(crate) struct Exec {
    nodes: Arc<[Node]>,
    path_ns: u64,
    memory: Vec<Arc<GraphMemory>>,
    pub(crate) flags: u64,
}

/// All graphs of a device.
#[derive(Debug)]
pub(crate) struct Graphs {
    pub(crate) graphs: HandleTable<Graph>,
    pub(crate) nodes: HandleTable<NodeRecord>,
    execs: HandleTable<Exec>,
    /// Captures by their number.
    pub(crate) ongoing: HashMap<u64, Ongoing>,
    /// For each event recorded in a capture, by value, the nodes before it.
    pub(crate) recorded: HashMap<u64, Vec<Raw>>,
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            graphs: HandleTable::new(16),
            nodes: HandleTable::new(16),
            execs: HandleTable::new(16),
            ongoing: HashMap::new(),
            recorded: HashMap::new(),
        }
    }
}

impl Graphs {
    pub(crate) fn create(&mut self) -> u64 {
        self.graphs.insert(Graph::default())
    }

    pub(crate) fn check(&self, graph: u64) -> Outcome<&Graph> {
        self.graphs.get(graph).ok_or(INVALID_VALUE)
    }

    pub(crate) fn destroy(&mut self, graph: u64) -> Outcome {
        let gone = self.graphs.remove(graph).ok_or(INVALID_VALUE)?;
        for node in gone.nodes {
            self.nodes.remove(node);
        }
        Ok(())
    }

    /// A capture into the graph has ended; its work takes so long.
    pub(crate) fn captured(&mut self, device: &Device, graph: u64, capture: u64, path_ns: u64) {
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.path_ns += path_ns;
            let device = device.sim.clone();
            graph.memory.push(Arc::new(GraphMemory { device, capture }));
        }
    }

    pub(crate) fn add_node(
        &mut self,
        device: &Device,
        graph: u64,
        node: Node,
        after: Vec<Raw>,
    ) -> Outcome<Raw> {
        self.check(graph)?;
        let value = self.nodes.insert(NodeRecord { graph, node, after });
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.nodes.push(value);
        }
        Ok(device.handle(Kind::Node, value))
    }

    /// What a graph does.
    fn exec(&self, graph: u64, flags: u64) -> Outcome<Exec> {
        let graph = self.check(graph)?;
        let nodes = graph.nodes.iter().filter_map(|&node| self.nodes.get(node));
        let nodes = nodes.map(|record| record.node.clone()).collect();
        Ok(Exec { nodes, path_ns: graph.path_ns, memory: graph.memory.clone(), flags })
    }

    /// What a graph does, as a node of another.
    pub(crate) fn child(&self, graph: u64) -> Outcome<Node> {
        Ok(Node::Child { nodes: self.exec(graph, 0)?.nodes })
    }

    pub(crate) fn clone_graph(&mut self, device: &Device, graph: u64) -> Outcome<u64> {
        let Graph { nodes, path_ns, memory } = self.check(graph)?.clone();
        let copy = self.graphs.insert(Graph { nodes: Vec::new(), path_ns, memory });
        let mut twins: HashMap<Raw, Raw> = HashMap::new();
        for value in nodes {
            let record = self.nodes.get(value).ok_or(INVALID_VALUE)?;
            let after = record.after.iter().filter_map(|one| twins.get(one).copied()).collect();
            let twin = self.add_node(device, copy, record.node.clone(), after)?;
            twins.insert(device.handle(Kind::Node, value), twin);
        }
        Ok(copy)
    }
}

fn instantiate(exec: Out<Raw>, graph: Raw, flags: u64) -> Outcome {
    let (device, value) = resolve(graph, Kind::Graph)?;
    exec.check()?;
    let graphs = &mut device.tables.lock().graphs;
    let fresh = graphs.exec(value, flags)?;
    exec.set(device.handle(Kind::GraphExec, graphs.execs.insert(fresh)))
}

/// The executable graph behind a handle.
pub(crate) fn find_exec(exec: Raw) -> Outcome<Exec> {
    let (device, value) = resolve(exec, Kind::GraphExec)?;
    let found = device.tables.lock().graphs.execs.get(value).cloned();
    found.ok_or(INVALID_VALUE)
}

/// Makes an executable graph do what another graph does, if both have the same kinds of nodes.
fn update(exec: Raw, graph: Raw) -> Outcome<bool> {
    let (device, value) = resolve(exec, Kind::GraphExec)?;
    let graph = device.value(graph, Kind::Graph)?;
    let graphs = &mut device.tables.lock().graphs;
    let old = graphs.execs.get(value).ok_or(INVALID_VALUE)?;
    let fresh = graphs.exec(graph, old.flags)?;
    let is_alike = old.nodes.iter().map(Node::kind).eq(fresh.nodes.iter().map(Node::kind));
    if let (true, Some(place)) = (is_alike, graphs.execs.get_mut(value)) {
        *place = fresh;
    }
    Ok(is_alike)
}

api! {
    fn cuGraphCreate(graph: Out<Raw>, flags: u32) |call| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let device = current()?;
        graph.check()?;
        let value = device.tables.lock().graphs.create();
        graph.set(device.handle(Kind::Graph, value))
    }

    fn cuGraphDestroy(graph: Raw) |call| {
        let (device, value) = resolve(graph, Kind::Graph)?;
        device.tables.lock().graphs.destroy(value)
    }

    fn cuGraphClone(clone: Out<Raw>, graph: Raw) |call| {
        let (device, value) = resolve(graph, Kind::Graph)?;
        clone.check()?;
        let copy = device.tables.lock().graphs.clone_graph(&device, value)?;
        clone.set(device.handle(Kind::Graph, copy))
    }

    fn cuGraphInstantiateWithFlags(exec: Out<Raw>, graph: Raw, flags: u64) |call| {
        instantiate(exec, graph, flags)
    }

    fn cuGraphInstantiate_v2 = cuGraphInstantiate (
        exec: Out<Raw>, graph: Raw, error_node: Out<Raw>, log: TextBuffer, room: usize
    ) |call| { instantiate(exec, graph, 0) }

    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz (
        exec: Out<Raw>, graph: Raw, parameters: Out<[u64; 4]>
    ) |call| {
        let [flags, stream, ..] = parameters.get()?;
        instantiate(exec, graph, flags)?;
        parameters.set([flags, stream, 0, 0])
    }

    fn cuGraphExecGetFlags(exec: Raw, flags: Out<u64>) |call| { flags.set(find_exec(exec)?.flags) }

    fn cuGraphExecDestroy(exec: Raw) |call| {
        let (device, value) = resolve(exec, Kind::GraphExec)?;
        let gone = device.tables.lock().graphs.execs.remove(value);
        gone.map(drop).ok_or(INVALID_VALUE)
    }

    fn cuGraphExecUpdate_v2(exec: Raw, graph: Raw, result: Out<[u64; 3]>) |call| {
        let is_alike = update(exec, graph)?;
        result.set([u64::from(!is_alike), 0, 0])?;
        if is_alike { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphExecUpdate(exec: Raw, graph: Raw, node: Out<Raw>, result: Out<i32>) |call| {
        let is_alike = update(exec, graph)?;
        result.set((!is_alike).into())?;
        if is_alike { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphUpload | cuGraphUpload_ptsz (exec: Raw, stream: Raw) |call| {
        find_exec(exec)?;
        queue(call, stream).map(drop)
    }

    fn cuGraphLaunch | cuGraphLaunch_ptsz (exec: Raw, stream: Raw) |call| {
        let exec = find_exec(exec)?;
        let queue = queue(call, stream)?;
        let nodes = Arc::clone(&exec.nodes);
        if queue.push(exec.path_ns, || Node::Child { nodes })? {
            exec.memory.iter().for_each(|one| one.device.note_graph_run(one.capture));
            exec.nodes.iter().for_each(Node::run);
        }
        Ok(())
    }
}
