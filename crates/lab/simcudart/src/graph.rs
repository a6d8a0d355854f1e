//! Graphs, as captures make them.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};
use std::ptr;

use crate::context::in_context;
use crate::driver::{Handle, HostFunction, Status, Stream};
use crate::error;
use crate::forward::forward;

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

/// Says that a node depends on none: what joins captured work is not kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphNodeGetDependencies_v2(
    _node: Handle,
    _nodes: *mut Handle,
    _edges: *mut c_void,
    count: *mut usize,
) -> Status {
    in_context(|| {
        if count.is_null() {
            return error::INVALID_VALUE;
        }
        // SAFETY: the caller passes room for a number.
        unsafe { count.write(0) };
        error::SUCCESS
    })
}

/// As CUDA 12 has it: without what joins the nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphNodeGetDependencies_v1(
    node: Handle,
    nodes: *mut Handle,
    count: *mut usize,
) -> Status {
    // SAFETY: the contract is the same; null is allowed for what is not wanted.
    unsafe { cudaGraphNodeGetDependencies_v2(node, nodes, ptr::null_mut(), count) }
}

/// Draws nothing: a graph is kept as the number of its nodes.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphDebugDotPrint(
    _graph: Handle,
    _path: *const c_char,
    _flags: c_uint,
) -> Status {
    in_context(|| error::NOT_SUPPORTED)
}
