//! [`Graphs`]: nodes with what each comes after, executable copies, and captures going on.
//!
//! Invariant: an executable graph keeps nothing of the graph it was made of but its memory.

use super::node::Node;
use crate::abi::Raw;
use crate::status::{INVALID_VALUE, Outcome};
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

impl GraphMemory {
    /// The graph has run: what it left allocated may be freed outside of it.
    pub(crate) fn note_run(&self) {
        self.device.note_graph_run(self.capture);
    }
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
    pub(crate) nodes: Arc<[Node]>,
    pub(crate) path_ns: u64,
    pub(crate) memory: Vec<Arc<GraphMemory>>,
    pub(crate) flags: u64,
}

/// A capture that has begun and not ended.
#[derive(Debug)]
pub(crate) struct Ongoing {
    pub(crate) graph: u64,
    /// Whether the program gave the graph.
    pub(crate) is_given: bool,
    /// For each stream by its value, the nodes that its next one comes after.
    pub(crate) frontiers: HashMap<u64, Vec<Raw>>,
}

#[derive(Debug)]
pub(crate) struct Graphs {
    pub(crate) graphs: HandleTable<Graph>,
    pub(crate) nodes: HandleTable<NodeRecord>,
    pub(crate) execs: HandleTable<Exec>,
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
    pub(crate) fn captured(&mut self, device: SimDevice, graph: u64, capture: u64, path_ns: u64) {
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.path_ns += path_ns;
            graph.memory.push(Arc::new(GraphMemory { device, capture }));
        }
    }

    pub(crate) fn add_node(&mut self, graph: u64, node: Node, after: Vec<Raw>) -> Outcome<u64> {
        self.check(graph)?;
        let value = self.nodes.insert(NodeRecord { graph, node, after });
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.nodes.push(value);
        }
        Ok(value)
    }

    pub(crate) fn exec(&self, graph: u64, flags: u64) -> Outcome<Exec> {
        let graph = self.check(graph)?;
        let nodes = graph.nodes.iter().filter_map(|&node| self.nodes.get(node));
        let nodes = nodes.map(|record| record.node.clone()).collect();
        Ok(Exec { nodes, path_ns: graph.path_ns, memory: graph.memory.clone(), flags })
    }

    pub(crate) fn child(&self, graph: u64) -> Outcome<Node> {
        Ok(Node::Child { nodes: self.exec(graph, 0)?.nodes })
    }

    /// Copies a graph; `handle` makes handles of the values of nodes.
    pub(crate) fn clone_graph(&mut self, graph: u64, handle: impl Fn(u64) -> Raw) -> Outcome<u64> {
        let Graph { nodes, path_ns, memory } = self.check(graph)?.clone();
        let copy = self.graphs.insert(Graph { nodes: Vec::new(), path_ns, memory });
        let mut twins: HashMap<Raw, Raw> = HashMap::new();
        for value in nodes {
            let record = self.nodes.get(value).ok_or(INVALID_VALUE)?;
            let after = record.after.iter().filter_map(|one| twins.get(one).copied()).collect();
            let twin = self.add_node(copy, record.node.clone(), after)?;
            twins.insert(handle(value), handle(twin));
        }
        Ok(copy)
    }
}
