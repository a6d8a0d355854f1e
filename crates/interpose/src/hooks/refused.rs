//! What takes memory of the device without being memory to Drystone: plain and physical memory,
//! code, graphs, launches, events. All of it is the driver's; where that has no memory left, it
//! gets what Drystone holds unused.
//!
//! A kernel's code may be loaded by its first launch (lazy loading), and a launch may take room for
//! its threads' own memory: so launches are here, too. One that succeeds costs a comparison.

use std::ffi::{c_char, c_int, c_uint};

use crate::driver::{Handle, Place};
use crate::hook::hooks;
use crate::refused::Wanted;

/// Functions that are the driver's except that.
macro_rules! drivers {
    ($(fn $name:ident $arguments:tt takes $wanted:expr;)*) => {
        hooks! { $(fn $name $arguments takes $wanted, in both |_, drivers| { drivers() })* }
    };
}

drivers! {
    // Memory that can be shared with other processes and registered with network cards.
    fn cuMemAlloc_v2(to: *mut u64, bytes: usize) takes Wanted::bytes(bytes);
    fn cuMemAllocPitch_v2(
        to: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint
    ) takes Wanted::bytes(width.saturating_mul(height));
    fn cuMemAllocManaged(to: *mut u64, bytes: usize, flags: c_uint) takes Wanted::bytes(bytes);
    fn cuMemCreate(
        to: *mut u64, bytes: usize, properties: Place, flags: u64
    ) takes {
        // SAFETY: the driver has read them before it refused.
        unsafe { Wanted::physical(bytes, properties) }
    };

    // The host's memory as the device sees it, and page tables.
    fn cuMemAllocHost_v2(to: *mut Place, bytes: usize) takes Wanted::OF_HOST;
    fn cuMemHostAlloc(to: *mut Place, bytes: usize, flags: c_uint) takes Wanted::OF_HOST;
    fn cuMemHostRegister_v2(at: Place, bytes: usize, flags: c_uint) takes Wanted::OF_HOST;
    fn cuMemMap(
        at: u64, bytes: usize, offset: usize, memory: u64, flags: u64
    ) takes Wanted::UNTOLD;
    fn cuMemSetAccess(at: u64, bytes: usize, access: Place, count: usize) takes Wanted::UNTOLD;
    fn cuCtxEnablePeerAccess(to: Handle, flags: c_uint) takes Wanted::UNTOLD;

    fn cuDevicePrimaryCtxRetain(to: *mut Handle, of: c_int) takes Wanted::untold_of(of);
    fn cuCtxSetLimit(what: c_int, value: usize) takes Wanted::UNTOLD;
    fn cuEventCreate(to: *mut Handle, flags: c_uint) takes Wanted::UNTOLD;

    // Code.
    fn cuModuleLoad(to: *mut Handle, path: *const c_char) takes Wanted::UNTOLD;
    fn cuModuleLoadData(to: *mut Handle, image: Place) takes Wanted::UNTOLD;
    fn cuModuleLoadDataEx(
        to: *mut Handle, image: Place, count: c_uint, options: Place, values: Place
    ) takes Wanted::UNTOLD;
    fn cuModuleLoadFatBinary(to: *mut Handle, image: Place) takes Wanted::UNTOLD;
    fn cuModuleGetFunction(
        to: *mut Handle, module: Handle, name: *const c_char
    ) takes Wanted::UNTOLD;
    fn cuLibraryLoadData(
        to: *mut Handle, image: Place, options: Place, values: Place, count: c_uint,
        library_options: Place, library_values: Place, library_count: c_uint
    ) takes Wanted::UNTOLD;
    fn cuLibraryLoadFromFile(
        to: *mut Handle, path: *const c_char, options: Place, values: Place, count: c_uint,
        library_options: Place, library_values: Place, library_count: c_uint
    ) takes Wanted::UNTOLD;
    fn cuLibraryGetModule(to: *mut Handle, library: Handle) takes Wanted::UNTOLD;
    fn cuKernelGetFunction(to: *mut Handle, kernel: Handle) takes Wanted::UNTOLD;
    fn cuFuncLoad(function: Handle) takes Wanted::UNTOLD;

    // Launches.
    fn cuLaunchKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: Handle, arguments: Place,
        extra: Place
    ) takes Wanted::UNTOLD;
    fn cuLaunchKernel_ptsz(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: Handle, arguments: Place,
        extra: Place
    ) takes Wanted::UNTOLD;
    fn cuLaunchKernelEx(
        how: Place, function: Handle, arguments: Place, extra: Place
    ) takes Wanted::UNTOLD;
    fn cuLaunchKernelEx_ptsz(
        how: Place, function: Handle, arguments: Place, extra: Place
    ) takes Wanted::UNTOLD;
    fn cuLaunchCooperativeKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: Handle, arguments: Place
    ) takes Wanted::UNTOLD;
    fn cuLaunchCooperativeKernel_ptsz(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: Handle, arguments: Place
    ) takes Wanted::UNTOLD;

    // Graphs, which may have memory of their own.
    fn cuGraphInstantiate(
        to: *mut Handle, graph: Handle, node: *mut Handle, log: *mut c_char, room: usize
    ) takes Wanted::UNTOLD;
    fn cuGraphInstantiate_v2(
        to: *mut Handle, graph: Handle, node: *mut Handle, log: *mut c_char, room: usize
    ) takes Wanted::UNTOLD;
    fn cuGraphInstantiateWithFlags(
        to: *mut Handle, graph: Handle, flags: u64
    ) takes Wanted::UNTOLD;
    fn cuGraphInstantiateWithParams(
        to: *mut Handle, graph: Handle, how: Place
    ) takes Wanted::UNTOLD;
    fn cuGraphInstantiateWithParams_ptsz(
        to: *mut Handle, graph: Handle, how: Place
    ) takes Wanted::UNTOLD;
    fn cuGraphUpload(graph: Handle, stream: Handle) takes Wanted::UNTOLD;
    fn cuGraphUpload_ptsz(graph: Handle, stream: Handle) takes Wanted::UNTOLD;
    fn cuGraphLaunch(graph: Handle, stream: Handle) takes Wanted::UNTOLD;
    fn cuGraphLaunch_ptsz(graph: Handle, stream: Handle) takes Wanted::UNTOLD;
}
