//! What can be asked of graphs; objects that graphs keep; memory that graphs own.

use super::graph::find_exec;
use crate::abi::{HostFunction, In, Out, Raw, Text};
use crate::context::current;
use crate::device::Device;
use crate::handle::Kind;
use crate::process::{device_at, resolve};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, Outcome};
use arc_swap::Guard;
use std::fmt::Write;
use std::sync::Arc;

/// Answers with a list as CUDA does: its length where there is no place for it, else as many as
/// there is room for, and null for the rest.
fn list(all: &[Raw], places: Out<Raw>, count: Out<usize>) -> Outcome {
    if places.is_null() {
        return count.set(all.len());
    }
    let room = count.get()?;
    for index in 0..room {
        places.at(index).set(all.get(index).copied().unwrap_or(Raw(0)))?;
    }
    count.set(all.len().min(room))
}

/// The handles of a graph's nodes that a condition holds for.
fn nodes_of(graph: Raw, is_wanted: impl Fn(&[Raw]) -> bool) -> Outcome<Vec<Raw>> {
    let (device, value) = resolve(graph, Kind::Graph)?;
    let graphs = &device.tables.lock().graphs;
    let wanted = graphs
        .check(value)?
        .nodes
        .iter()
        .filter(|&&node| graphs.nodes.get(node).is_some_and(|record| is_wanted(&record.after)));
    Ok(wanted.map(|&node| device.handle(Kind::Node, node)).collect())
}

/// The edges of a graph: from which node to which.
fn edges_of(graph: Raw) -> Outcome<Vec<(Raw, Raw)>> {
    let (device, value) = resolve(graph, Kind::Graph)?;
    let graphs = &device.tables.lock().graphs;
    let mut edges = Vec::new();
    for &node in &graphs.check(value)?.nodes {
        let to = device.handle(Kind::Node, node);
        let after = graphs.nodes.get(node).map(|record| record.after.as_slice());
        edges.extend(after.unwrap_or_default().iter().map(|&from| (from, to)));
    }
    Ok(edges)
}

fn list_edges(graph: Raw, from: Out<Raw>, to: Out<Raw>, count: Out<usize>) -> Outcome {
    let edges = edges_of(graph)?;
    INVALID_VALUE.when(from.is_null() != to.is_null())?;
    if !from.is_null() {
        let room = count.get()?;
        let firsts: Vec<Raw> = edges.iter().map(|edge| edge.0).collect();
        list(&firsts, from, count)?;
        count.set(room)?;
    }
    let seconds: Vec<Raw> = edges.iter().map(|edge| edge.1).collect();
    list(&seconds, to, count)
}

/// The node behind a handle, with its device.
fn node_at(node: Raw) -> Outcome<(Guard<Arc<Device>>, u64)> {
    let (device, value) = resolve(node, Kind::Node)?;
    device.tables.lock().graphs.nodes.get(value).ok_or(INVALID_VALUE)?;
    Ok((device, value))
}

fn before(node: Raw) -> Outcome<Vec<Raw>> {
    let (device, value) = node_at(node)?;
    let tables = device.tables.lock();
    tables.graphs.nodes.get(value).map(|record| record.after.clone()).ok_or(INVALID_VALUE)
}

fn after(node: Raw) -> Outcome<Vec<Raw>> {
    let (device, value) = node_at(node)?;
    let graph = device.tables.lock().graphs.nodes.get(value).map(|record| record.graph);
    let graph = device.handle(Kind::Graph, graph.ok_or(INVALID_VALUE)?);
    Ok(edges_of(graph)?.into_iter().filter(|edge| edge.0 == node).map(|edge| edge.1).collect())
}

fn dot(graph: Raw, path: &str) -> Outcome {
    let mut text = String::from("digraph {\n");
    for node in nodes_of(graph, |_| true)? {
        let _ = writeln!(text, "  \"{node:?}\";");
    }
    for (from, to) in edges_of(graph)? {
        let _ = writeln!(text, "  \"{from:?}\" -> \"{to:?}\";");
    }
    std::fs::write(path, text + "}\n").map_err(|_| OPERATING_SYSTEM)
}

api! {
    fn cuGraphGetNodes(graph: Raw, nodes: Out<Raw>, count: Out<usize>) |call| {
        list(&nodes_of(graph, |_| true)?, nodes, count)
    }

    fn cuGraphGetRootNodes(graph: Raw, nodes: Out<Raw>, count: Out<usize>) |call| {
        list(&nodes_of(graph, <[Raw]>::is_empty)?, nodes, count)
    }

    fn cuGraphGetEdges(graph: Raw, from: Out<Raw>, to: Out<Raw>, count: Out<usize>) |call| {
        list_edges(graph, from, to, count)
    }

    fn cuGraphGetEdges_v2(
        graph: Raw, from: Out<Raw>, to: Out<Raw>, edges: Raw, count: Out<usize>
    ) |call| { list_edges(graph, from, to, count) }

    fn cuGraphNodeGetType(node: Raw, kind: Out<i32>) |call| {
        let (device, value) = node_at(node)?;
        let tables = device.tables.lock();
        kind.set(tables.graphs.nodes.get(value).ok_or(INVALID_VALUE)?.node.kind())
    }

    fn cuGraphNodeGetDependencies(node: Raw, nodes: Out<Raw>, count: Out<usize>) |call| {
        list(&before(node)?, nodes, count)
    }

    fn cuGraphNodeGetDependencies_v2(
        node: Raw, nodes: Out<Raw>, edges: Raw, count: Out<usize>
    ) |call| { list(&before(node)?, nodes, count) }

    fn cuGraphNodeGetDependentNodes(node: Raw, nodes: Out<Raw>, count: Out<usize>) |call| {
        list(&after(node)?, nodes, count)
    }

    fn cuGraphNodeGetDependentNodes_v2(
        node: Raw, nodes: Out<Raw>, edges: Raw, count: Out<usize>
    ) |call| { list(&after(node)?, nodes, count) }

    fn cuGraphDestroyNode(node: Raw) |call| {
        let (device, value) = node_at(node)?;
        let graphs = &mut device.tables.lock().graphs;
        let gone = graphs.nodes.remove(value).ok_or(INVALID_VALUE)?;
        if let Some(graph) = graphs.graphs.get_mut(gone.graph) {
            graph.nodes.retain(|&one| one != value);
            let left = graph.nodes.clone();
            for one in left {
                if let Some(record) = graphs.nodes.get_mut(one) {
                    record.after.retain(|&other| other != node);
                }
            }
        }
        Ok(())
    }

    fn cuGraphDebugDotPrint(graph: Raw, path: Text, flags: u32) |call| { dot(graph, &path.get()?) }

    fn cuGraphNodeGetEnabled(exec: Raw, node: Raw, is_enabled: Out<u32>) |call| {
        find_exec(exec)?;
        node_at(node)?;
        is_enabled.set(1)
    }

    fn cuGraphNodeSetEnabled(exec: Raw, node: Raw, is_enabled: u32) |call| { Err(NOT_SUPPORTED) }

    fn cuUserObjectCreate(
        object: Out<Raw>, pointer: Raw, destroy: HostFunction, references: u32, flags: u32
    ) |call| {
        // Objects are never destroyed: a graph may keep them as long as it likes.
        destroy.ok_or(INVALID_VALUE)?;
        let device = current()?;
        object.set(device.handle(Kind::UserObject, 16))
    }

    fn cuUserObjectRetain = cuUserObjectRelease (object: Raw, count: u32) |call| {
        resolve(object, Kind::UserObject).map(drop)
    }

    fn cuGraphRetainUserObject(graph: Raw, object: Raw, count: u32, flags: u32) |call| {
        resolve(graph, Kind::Graph)?;
        resolve(object, Kind::UserObject).map(drop)
    }

    fn cuGraphReleaseUserObject(graph: Raw, object: Raw, count: u32) |call| {
        resolve(graph, Kind::Graph)?;
        resolve(object, Kind::UserObject).map(drop)
    }

    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: Out<u64>) |call| {
        // Used and reserved, now and at most: all the memory that graphs own is theirs throughout.
        let bytes = device_at(device)?.sim.graph_bytes();
        if (0..=3).contains(&attribute) { value.set(bytes) } else { Err(INVALID_VALUE) }
    }

    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: In<u64>) |call| {
        device_at(device)?;
        match attribute {
            1 | 3 if value.get()? == 0 => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuDeviceGraphMemTrim(device: i32) |call| { device_at(device).map(drop) }
}
