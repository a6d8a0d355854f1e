//! Stream capture and graphs.

use crate::program::{
    ACTIVE, GLOBAL, GRANULE, INVALIDATED, RELAXED, allocate, cu, event, launch, passes, sim,
    status_of, stream, used_bytes, zeroed,
};
use cudarc::driver::sys::{self, CUgraphNodeType as NodeKind, CUstreamCaptureStatus as Status};
use std::ptr::null_mut;

fn end(stream: sys::CUstream) -> sys::CUgraph {
    let mut graph = null_mut();
    cu!(cuStreamEndCapture(stream, &mut graph));
    graph
}

fn instantiate(graph: sys::CUgraph) -> sys::CUgraphExec {
    let mut exec = null_mut();
    cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

fn nodes(graph: sys::CUgraph) -> usize {
    let mut count = 0;
    cu!(cuGraphGetNodes(graph, null_mut(), &mut count));
    count
}

fn roots(graph: sys::CUgraph) -> usize {
    let mut count = 0;
    cu!(cuGraphGetRootNodes(graph, null_mut(), &mut count));
    count
}

fn kind_of(node: sys::CUgraphNode) -> NodeKind {
    let mut kind = NodeKind::CU_GRAPH_NODE_TYPE_EMPTY;
    cu!(cuGraphNodeGetType(node, &mut kind));
    kind
}

#[test]
fn a_captured_graph_takes_its_time_when_it_is_launched() {
    passes("backing:true", || {
        let (first, second, event) = (stream(), stream(), event(2));
        let bytes = allocate(64);
        cu!(cuStreamBeginCapture_v2(first, GLOBAL));
        launch(first, 100);
        cu!(cuEventRecord(event, first));
        cu!(cuStreamWaitEvent(second, event, 0));
        launch(second, 1000);
        cu!(cuMemsetD8Async(bytes, 7, 64, second));
        cu!(cuEventRecord(event, second));
        cu!(cuStreamWaitEvent(first, event, 0));
        let graph = end(first);
        assert_eq!(sim().now_ns(0), 0);
        assert_eq!((nodes(graph), roots(graph)), (3, 1));
        let mut all = [null_mut(); 3];
        cu!(cuGraphGetNodes(graph, all.as_mut_ptr(), &mut 3));
        assert_eq!(kind_of(all[2]), NodeKind::CU_GRAPH_NODE_TYPE_MEMSET);
        let exec = instantiate(graph);
        cu!(cuGraphDestroy(graph));
        cu!(cuGraphDestroy(graph) => CUDA_ERROR_INVALID_VALUE);
        let mut seen = [0u8; 64];
        cu!(cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), bytes, 64));
        assert_eq!(seen, [0; 64], "captured work does not run");
        cu!(cuGraphLaunch(exec, first));
        cu!(cuStreamSynchronize(first));
        assert_eq!(sim().now_ns(0), 1100);
        cu!(cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), bytes, 64));
        assert_eq!(seen, [7; 64]);
        cu!(cuGraphExecDestroy(exec));
        cu!(cuGraphLaunch(exec, first) => CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn what_a_capture_forbids_breaks_it() {
    passes("", || {
        let stream = stream();
        cu!(cuStreamBeginCapture_v2(null_mut(), GLOBAL) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        cu!(cuStreamBeginCapture_v2(stream, GLOBAL));
        cu!(cuStreamBeginCapture_v2(stream, GLOBAL) => CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(status_of(stream), ACTIVE);
        let mut mode = RELAXED;
        cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, GLOBAL);
        allocate(512);
        cu!(cuThreadExchangeStreamCaptureMode(&mut mode));
        cu!(cuMemAlloc_v2(&mut 0, 512) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(status_of(stream), INVALIDATED);
        let mut graph = 1 as sys::CUgraph;
        cu!(cuStreamEndCapture(stream, &mut graph) => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert!(graph.is_null());
        cu!(cuStreamEndCapture(stream, &mut graph) => CUDA_ERROR_ILLEGAL_STATE);
    });
}

#[test]
fn a_capture_can_be_asked_and_led_on() {
    passes("", || {
        let stream = stream();
        let (mut id, mut graph, mut nodes, mut count) = (0, null_mut(), std::ptr::null(), 9);
        let mut ask = || {
            let (mut status, none) = (INVALIDATED, null_mut());
            cu!(cuStreamGetCaptureInfo_v3(
                stream,
                &mut status,
                &mut id,
                &mut graph,
                &mut nodes,
                none,
                &mut count
            ));
            status
        };
        assert_eq!(ask(), Status::CU_STREAM_CAPTURE_STATUS_NONE);
        cu!(cuStreamBeginCapture_v2(stream, RELAXED));
        launch(stream, 5);
        assert_eq!((ask(), count), (ACTIVE, 1));
        assert_ne!(id, 0);
        // SAFETY: the driver says that one node is there.
        let node = unsafe { nodes.read() };
        assert_eq!(kind_of(node), NodeKind::CU_GRAPH_NODE_TYPE_KERNEL);
        assert_eq!(end(stream), graph);
    });
}

#[test]
fn graphs_are_updated_if_alike() {
    passes("", || {
        let stream = stream();
        let of = |kernels: u64| {
            cu!(cuStreamBeginCapture_v2(stream, RELAXED));
            (0..kernels).for_each(|_| launch(stream, 10 * kernels));
            end(stream)
        };
        let exec = instantiate(of(1));
        let mut result = zeroed();
        cu!(cuGraphExecUpdate_v2(exec, of(2), &mut result) =>
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        cu!(cuGraphExecUpdate_v2(exec, of(1), &mut result));
        cu!(cuGraphLaunch(exec, stream));
        cu!(cuStreamSynchronize(stream));
        assert_eq!(sim().now_ns(0), 10);
    });
}

#[test]
fn memory_allocated_in_a_capture_lives_as_long_as_the_graph() {
    passes("", || {
        let (stream, mut address) = (stream(), 0);
        cu!(cuStreamBeginCapture_v2(stream, GLOBAL));
        cu!(cuMemAllocAsync(&mut address, GRANULE, stream));
        cu!(cuMemFreeAsync(address, stream));
        let graph = end(stream);
        assert_eq!(nodes(graph), 2);
        let exec = instantiate(graph);
        cu!(cuGraphDestroy(graph));
        cu!(cuGraphLaunch(exec, stream));
        cu!(cuStreamSynchronize(stream));
        assert!(used_bytes() > 0);
        cu!(cuGraphExecDestroy(exec));
        assert_eq!(used_bytes(), 0);
    });
}

#[test]
fn a_graph_can_be_built_by_hand() {
    passes("", || {
        let (mut graph, mut first, mut second) = (null_mut(), null_mut(), null_mut());
        cu!(cuGraphCreate(&mut graph, 0));
        cu!(cuGraphAddEmptyNode(&mut first, graph, std::ptr::null(), 0));
        cu!(cuGraphAddEmptyNode(&mut second, graph, &first, 1));
        let mut clone = null_mut();
        cu!(cuGraphClone(&mut clone, graph));
        cu!(cuGraphDestroyNode(first));
        assert_eq!((nodes(graph), nodes(clone), roots(clone)), (1, 2, 1));
        cu!(cuGraphNodeGetType(first, &mut NodeKind::CU_GRAPH_NODE_TYPE_EMPTY) =>
            CUDA_ERROR_INVALID_VALUE);
    });
}
