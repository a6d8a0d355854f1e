//! Graphs as a whole, and executable copies of them.
//!
//! A launch takes the time of the longest path of the captured work, and does what can be seen of
//! each node.

use crate::abi::{Out, Raw, TextBuffer};
use crate::context::current;
use crate::effect;
use crate::handle::Kind;
use crate::process::resolve;
use crate::queue::queue;
use crate::status::{GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, Outcome};
use crate::tables::{Exec, Node};
use std::sync::Arc;

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
        INVALID_VALUE.when(flags != 0)?;
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
        let handle = |node| device.handle(Kind::Node, node);
        let copy = device.tables.lock().graphs.clone_graph(value, handle)?;
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
        let queue = queue(call, stream)?;
        let exec = find_exec(exec)?;
        let nodes = Arc::clone(&exec.nodes);
        if queue.push(exec.path_ns, || Node::Child { nodes })? {
            exec.memory.iter().for_each(|one| one.note_run());
            exec.nodes.iter().for_each(effect::run);
        }
        Ok(())
    }
}
