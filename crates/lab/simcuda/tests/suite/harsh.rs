//! What a kind driver would let pass: stale handles, memory that is not open, calls in captures;
//! and the devices that are chosen by name.

use crate::program::{
    GLOBAL, GRANULE, access, allocate, create, cu, event, map, passes, properties, reserve, run,
    start, status_of, stream, use_device,
};
use cudarc::driver::sys;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;

/// The program must be ended by a line that names the function and says what was gone.
fn ends(function: &str, gone: &str, body: impl FnOnce()) {
    let Some(output) = run("stale_handles_end:true", body) else { return };
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{complained}");
    assert!(complained.contains(&format!("  by {function}(")), "{complained}");
    assert!(complained.contains(gone), "{complained}");
}

fn dead_stream() -> sys::CUstream {
    start();
    let stream = stream();
    cu!(cuStreamDestroy_v2(stream));
    stream
}

#[test]
fn asking_about_a_dead_stream_ends_the_process() {
    ends("cuStreamIsCapturing", "is gone, or was nobody's", || {
        status_of(dead_stream());
    });
}

#[test]
fn launching_a_host_function_on_a_dead_stream_ends_the_process() {
    ends("cuMemsetD8Async", "is gone, or was nobody's", || {
        let stream = dead_stream();
        let address = allocate(512);
        cu!(cuMemsetD8Async(address, 0, 1, stream));
    });
}

#[test]
fn recording_a_dead_event_ends_the_process() {
    ends("cuEventRecord", "that is gone", || {
        start();
        let event = event(2);
        cu!(cuEventDestroy_v2(event));
        cu!(cuEventRecord(event, null_mut()));
    });
}

#[test]
fn making_a_dead_context_current_ends_the_process() {
    ends("cuCtxSetCurrent", "is destroyed, or was nobody's", || {
        start();
        let mut context = null_mut();
        cu!(cuCtxCreate_v4(&mut context, null_mut(), 0, 0));
        cu!(cuCtxDestroy_v2(context));
        cu!(cuCtxSetCurrent(context));
    });
}

fn mapped_on(ordinal: i32) -> u64 {
    let (address, mut handle) = (reserve(GRANULE), 0);
    cu!(cuMemCreate(&mut handle, GRANULE, &properties(ordinal), 0));
    map(address, GRANULE, handle, ordinal);
    address
}

#[test]
fn work_on_a_device_needs_memory_that_is_open_to_it() {
    passes("devices:2,closed_memory_is_refused:true", || {
        let (mapped, plain) = (mapped_on(0), allocate(GRANULE));
        let first = use_device(0);
        let second = use_device(1);
        let own = allocate(GRANULE);
        for (to, from) in [(own, mapped), (mapped, own)] {
            cu!(cuMemcpyAsync(to, from, GRANULE, null_mut()) => CUDA_ERROR_INVALID_VALUE);
        }
        // The driver carries plain memory over by itself, and any memory between peers.
        cu!(cuMemcpyAsync(own, plain, GRANULE, null_mut()));
        cu!(cuMemcpyPeerAsync(own, second, mapped, first, GRANULE, null_mut()));
        cu!(cuMemsetD8Async(plain, 0, 1, null_mut()) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemsetD8Async(mapped, 0, 1, null_mut()) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuCtxEnablePeerAccess(first, 0));
        cu!(cuMemsetD8Async(plain, 0, 1, null_mut()));
        // Peer access does not open mapped memory; its own access does.
        cu!(cuMemcpyAsync(own, mapped, GRANULE, null_mut()) => CUDA_ERROR_INVALID_VALUE);
        cu!(cuMemSetAccess(mapped, GRANULE, &access(1), 1));
        cu!(cuMemcpyAsync(own, mapped, GRANULE, null_mut()));
        cu!(cuMemsetD8Async(mapped, 0, 1, null_mut()));
    });
}

#[test]
fn under_windows_memory_for_network_cards_is_mapped_and_not_opened() {
    passes("profile:wsl2", || {
        let mut promised = 0;
        let attribute =
            sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        cu!(cuDeviceGetAttribute(&mut promised, attribute, 0));
        assert_eq!(promised, 1);
        let (address, mut handle, mut for_cards) = (reserve(2 * GRANULE), 0, properties(0));
        for_cards.allocFlags.gpuDirectRDMACapable = 1;
        cu!(cuMemCreate(&mut handle, GRANULE, &for_cards, 0));
        cu!(cuMemMap(address, GRANULE, 0, handle, 0));
        cu!(cuMemSetAccess(address, GRANULE, &access(0), 1) => CUDA_ERROR_UNKNOWN);
        let beside = address + GRANULE as u64;
        map(beside, GRANULE, create(GRANULE), 0);
        let mut large = 0;
        cu!(cuMemAddressReserve(&mut large, 32 << 30, 0, 0, 0) => CUDA_ERROR_OUT_OF_MEMORY);
    });
}

#[test]
fn captures_forbid_what_the_table_says() {
    let conf = "pool_attributes_are_illegal:true,unproven_is_illegal:true";
    passes(conf, || {
        let (mut pool, stream, mut graph) = (null_mut(), stream(), null_mut());
        cu!(cuDeviceGetDefaultMemPool(&mut pool, 0));
        let mut bytes = 0u64;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        macro_rules! breaks {
            ($function:ident($($argument:expr),*)) => {
                cu!(cuStreamBeginCapture_v2(stream, GLOBAL));
                cu!($function($($argument),*) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                cu!(cuStreamEndCapture(stream, &mut graph)
                    => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            };
        }
        breaks!(cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()));
        breaks!(cuMemPoolSetAttribute(pool, threshold, (&raw mut bytes).cast()));
        breaks!(cuMemGetInfo_v2(&mut 0, &mut 0));
        breaks!(cuStreamQuery(stream));
        breaks!(cuStreamGetId(stream, &mut 0));
        breaks!(cuMemHostAlloc(&mut null_mut(), 4096, 0));
        breaks!(cuCtxSynchronize());
        cu!(cuStreamBeginCapture_v2(stream, GLOBAL));
        map(reserve(GRANULE), GRANULE, create(GRANULE), 0);
        cu!(cuStreamEndCapture(stream, &mut graph));
    });
}
