//! Graphs made by hand: nodes and dependencies, and their parameters as far as they matter here.

use super::graph::find_exec;
use crate::abi::{HostFunction, In, Out, Raw};
use crate::effect;
use crate::handle::Kind;
use crate::process::resolve;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::tables::{Node, UserData};
use std::ffi::c_void;

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SetParameters {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostParameters {
    function: HostFunction,
    data: *mut c_void,
}

fn add(place: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, node: Node) -> Outcome {
    let (device, value) = resolve(graph, Kind::Graph)?;
    place.check()?;
    let after = if count == 0 { Vec::new() } else { after.all(count)? };
    for &one in &after {
        device.value(one, Kind::Node)?;
    }
    let added = device.tables.lock().graphs.add_node(value, node, after)?;
    place.set(device.handle(Kind::Node, added))
}

/// Adds or removes dependencies of nodes on others.
fn depend(graph: Raw, from: In<Raw>, to: In<Raw>, count: usize, is_added: bool) -> Outcome {
    let (device, graph) = resolve(graph, Kind::Graph)?;
    let graphs = &mut device.tables.lock().graphs;
    graphs.check(graph)?;
    for index in 0..count {
        let (from, to) = (from.at(index).get()?, to.at(index).get()?);
        device.value(from, Kind::Node)?;
        let node = graphs.nodes.get_mut(device.value(to, Kind::Node)?).ok_or(INVALID_VALUE)?;
        node.after.retain(|&one| one != from);
        if is_added {
            node.after.push(from);
        }
    }
    Ok(())
}

api! {
    fn cuGraphAddEmptyNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize) |call| {
        add(node, graph, after, count, Node::Empty)
    }

    fn cuGraphAddKernelNode_v2 = cuGraphAddKernelNode (
        node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<u64>
    ) |call| {
        parameters.get()?;
        add(node, graph, after, count, Node::Kernel)
    }

    fn cuGraphAddMemcpyNode(
        node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, copy: In<u64>, context: Raw
    ) |call| {
        copy.get()?;
        add(node, graph, after, count, Node::Copy { to: 0, from: 0, bytes: 0 })
    }

    fn cuGraphAddMemsetNode(
        node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, set: In<SetParameters>,
        context: Raw
    ) |call| {
        let SetParameters { to, value, element, width, height, .. } = set.get()?;
        if ![1, 2, 4].contains(&element) || height != 1 {
            return Err(if height == 1 { INVALID_VALUE } else { NOT_SUPPORTED });
        }
        let (count_of, width) = (width as u64, element as usize);
        effect::check(to, count_of * width as u64)?;
        add(node, graph, after, count, Node::Set { to, value, width, count: count_of })
    }

    fn cuGraphAddHostNode(
        node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, host: In<HostParameters>
    ) |call| {
        let HostParameters { function, data } = host.get()?;
        let function = function.ok_or(INVALID_VALUE)?;
        add(node, graph, after, count, Node::Host { function, data: UserData(data) })
    }

    fn cuGraphAddChildGraphNode(
        node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, child: Raw
    ) |call| {
        let (device, value) = resolve(child, Kind::Graph)?;
        let child = device.tables.lock().graphs.child(value)?;
        add(node, graph, after, count, child)
    }

    fn cuGraphAddEventRecordNode = cuGraphAddEventWaitNode (
        node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, event: Raw
    ) |call| {
        resolve(event, Kind::Event)?;
        add(node, graph, after, count, Node::Empty)
    }

    fn cuGraphAddNode_v2(
        node: Out<Raw>, graph: Raw, after: In<Raw>, edges: Raw, count: usize, parameters: In<i32>
    ) |call| {
        // Kernels and empty nodes need nothing of their parameters.
        match parameters.get()? {
            0 => add(node, graph, after, count, Node::Kernel),
            5 => add(node, graph, after, count, Node::Empty),
            _ => Err(NOT_SUPPORTED),
        }
    }

    fn cuGraphAddDependencies(graph: Raw, from: In<Raw>, to: In<Raw>, count: usize) |call| {
        depend(graph, from, to, count, true)
    }

    fn cuGraphAddDependencies_v2(
        graph: Raw, from: In<Raw>, to: In<Raw>, edges: Raw, count: usize
    ) |call| { depend(graph, from, to, count, true) }

    fn cuGraphRemoveDependencies(graph: Raw, from: In<Raw>, to: In<Raw>, count: usize) |call| {
        depend(graph, from, to, count, false)
    }

    fn cuGraphRemoveDependencies_v2(
        graph: Raw, from: In<Raw>, to: In<Raw>, edges: Raw, count: usize
    ) |call| { depend(graph, from, to, count, false) }

    fn cuGraphKernelNodeSetParams_v2 = cuGraphKernelNodeSetParams (
        node: Raw, parameters: In<u64>
    ) |call| { resolve(node, Kind::Node).map(drop) }

    fn cuGraphExecKernelNodeSetParams_v2 = cuGraphExecKernelNodeSetParams (
        exec: Raw, node: Raw, parameters: In<u64>
    ) |call| {
        find_exec(exec)?;
        resolve(node, Kind::Node).map(drop)
    }

    fn cuGraphKernelNodeGetParams_v2 = cuGraphKernelNodeGetParams (
        node: Raw, parameters: Out<[u64; 9]>
    ) |call| {
        resolve(node, Kind::Node)?;
        parameters.set([0; 9])
    }

    fn cuGraphKernelNodeGetAttribute(node: Raw, attribute: i32, value: Out<[u64; 8]>) |call| {
        resolve(node, Kind::Node)?;
        value.set([0; 8])
    }

    fn cuGraphKernelNodeSetAttribute(node: Raw, attribute: i32, value: Raw) |call| {
        resolve(node, Kind::Node).map(drop)
    }

    fn cuGraphConditionalHandleCreate(
        handle: Out<u64>, graph: Raw, context: Raw, value: u32, flags: u32
    ) |call| { Err(NOT_SUPPORTED) }
}
