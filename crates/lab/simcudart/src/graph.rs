//! Graphs, as captures make them.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

use crate::context::make_current;
use crate::driver::{Handle, HostFunction, Out, Stream};
use crate::error;
use crate::export::{exports, forward};

forward! {
    cudaGraphCreate => cuGraphCreate(graph: *mut Handle, flags: c_uint);
    cudaGraphDestroy => cuGraphDestroy(graph: Handle);
    cudaGraphInstantiate =>
        cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: c_ulonglong);
    cudaGraphInstantiateWithFlags =>
        cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: c_ulonglong);
    cudaGraphExecDestroy => cuGraphExecDestroy(exec: Handle);
    cudaGraphLaunch / cudaGraphLaunch_ptsz => cuGraphLaunch(exec: Handle, stream: Stream);
    cudaGraphInstantiateWithParams =>
        cuGraphInstantiateWithParams(exec: *mut Handle, graph: Handle, parameters: *mut c_void);
    cudaGraphClone => cuGraphClone(clone: *mut Handle, graph: Handle);
    cudaGraphUpload / cudaGraphUpload_ptsz => cuGraphUpload(exec: Handle, stream: Stream);
    cudaGraphExecGetFlags => cuGraphExecGetFlags(exec: Handle, flags: *mut c_ulonglong);
    cudaGraphExecUpdate =>
        cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: *mut c_void);
    cudaUserObjectCreate => cuUserObjectCreate(
        object: *mut Handle, pointer: *mut c_void, destroy: HostFunction, references: c_uint,
        flags: c_uint);
    cudaUserObjectRetain => cuUserObjectRetain(object: Handle, count: c_uint);
    cudaUserObjectRelease => cuUserObjectRelease(object: Handle, count: c_uint);
    cudaGraphRetainUserObject => cuGraphRetainUserObject(
        graph: Handle, object: Handle, count: c_uint, flags: c_uint);
    cudaGraphReleaseUserObject =>
        cuGraphReleaseUserObject(graph: Handle, object: Handle, count: c_uint);
    cudaGraphGetNodes => cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
}

exports! {
    /// Says that a node depends on none: what joins captured work is not kept.
    fn cudaGraphNodeGetDependencies_v2(
        _node: Handle, _nodes: *mut Handle, _edges: *mut c_void, count: Out<usize>
    ) {
        make_current()?;
        count.tell(0)
    }

    /// As CUDA 12 has it: without what joins the nodes.
    fn cudaGraphNodeGetDependencies_v1(_node: Handle, _nodes: *mut Handle, count: Out<usize>) {
        make_current()?;
        count.tell(0)
    }

    /// Draws nothing: a graph is kept as the number of its nodes.
    fn cudaGraphDebugDotPrint(_graph: Handle, _path: *const c_char, _flags: c_uint) {
        make_current()?;
        Err(error::NOT_SUPPORTED)
    }
}
