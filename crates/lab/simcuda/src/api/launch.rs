//! Kernel launches, which take the time that the settings give a kernel and do nothing, and what
//! launches are planned with.

use crate::abi::{In, LaunchConfig, Out, Raw};
use crate::entry::Call;
use crate::handle::Kind;
use crate::process::resolve;
use crate::queue::queue;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::tables::Node;
use std::sync::atomic::Ordering;

/// Threads that a multiprocessor and a block can have, and blocks that a multiprocessor can.
const THREADS: i32 = 2048;
const BLOCK_THREADS: u32 = 1024;
const BLOCKS: i32 = 32;

/// Launches a function with a grid and a block of these sizes.
fn launch(call: &Call, function: Raw, sizes: [u32; 6], stream: Raw) -> Outcome {
    let (device, kernel) = resolve(function, Kind::Function)?;
    device.tables.lock().modules.kernel(kernel)?;
    let threads = sizes[3..].iter().try_fold(1u32, |all, &size| all.checked_mul(size));
    INVALID_VALUE
        .when(sizes.contains(&0) || threads.is_none_or(|threads| threads > BLOCK_THREADS))?;
    let queue = queue(call, stream)?;
    queue.push(queue.device.config.kernel_ns, || Node::Kernel)?;
    queue.device.kernels.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn launch_config(call: &Call, config: In<LaunchConfig>, function: Raw) -> Outcome {
    let LaunchConfig { sizes: [a, b, c, d, e, f, _], stream, .. } = config.get()?;
    launch(call, function, [a, b, c, d, e, f], stream)
}

/// How many blocks of this size fit on a multiprocessor.
fn blocks_for(function: Raw, threads: i32) -> Outcome<i32> {
    resolve(function, Kind::Function)?;
    INVALID_VALUE.when(!(1..=BLOCK_THREADS as i32).contains(&threads))?;
    Ok((THREADS / threads).min(BLOCKS))
}

fn potential(grid: Out<i32>, block: Out<i32>, function: Raw, limit: i32) -> Outcome {
    let most = BLOCK_THREADS as i32;
    let threads = if (1..most).contains(&limit) { limit } else { most };
    let blocks = blocks_for(function, threads)?;
    let (device, _) = resolve(function, Kind::Function)?;
    grid.set(blocks * device.config.multiprocessors)?;
    block.set(threads)
}

api! {
    fn cuLaunchKernel | cuLaunchKernel_ptsz (
        function: Raw, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
        block_z: u32, shared_bytes: u32, stream: Raw, arguments: Raw, extra: Raw
    ) |call| {
        launch(call, function, [grid_x, grid_y, grid_z, block_x, block_y, block_z], stream)
    }

    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz (
        function: Raw, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
        block_z: u32, shared_bytes: u32, stream: Raw, arguments: Raw
    ) |call| {
        launch(call, function, [grid_x, grid_y, grid_z, block_x, block_y, block_z], stream)
    }

    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz (
        config: In<LaunchConfig>, function: Raw, arguments: Raw, extra: Raw
    ) |call| { launch_config(call, config, function) }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: Raw, threads: i32, shared_bytes: usize
    ) |call| { blocks.set(blocks_for(function, threads)?) }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>, function: Raw, threads: i32, shared_bytes: usize, flags: u32
    ) |call| { blocks.set(blocks_for(function, threads)?) }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: Raw, shared: Raw, shared_bytes: usize,
        limit: i32
    ) |call| { potential(grid, block, function, limit) }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, function: Raw, shared: Raw, shared_bytes: usize,
        limit: i32, flags: u32
    ) |call| { potential(grid, block, function, limit) }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>, function: Raw, blocks: i32, threads: i32
    ) |call| {
        blocks_for(function, threads)?;
        bytes.set(49_152)
    }

    fn cuOccupancyMaxPotentialClusterSize(
        size: Out<i32>, function: Raw, config: In<LaunchConfig>
    ) |call| {
        resolve(function, Kind::Function)?;
        size.set(8)
    }

    fn cuOccupancyMaxActiveClusters(
        clusters: Out<i32>, function: Raw, config: In<LaunchConfig>
    ) |call| {
        resolve(function, Kind::Function)?;
        clusters.set(16)
    }

    fn cuTensorMapEncodeTiled(
        map: Out<[u64; 16]>, kind: i32, rank: u32, address: Raw, sizes: Raw, strides: Raw,
        box_sizes: Raw, element_strides: Raw, interleave: i32, swizzle: i32, promotion: i32,
        fill: i32
    ) |call| { map.set([0; 16]) }

    fn cuTensorMapReplaceAddress(map: Raw, address: Raw) |call| {
        if map.0 == 0 { Err(INVALID_VALUE) } else { Ok(()) }
    }

    fn cuTensorMapEncodeIm2col(
        map: Out<[u64; 16]>, kind: i32, rank: u32, address: Raw, sizes: Raw, strides: Raw,
        lower: Raw, upper: Raw, channels: u32, pixels: u32, element_strides: Raw,
        interleave: i32, swizzle: i32, promotion: i32, fill: i32
    ) |call| { Err(NOT_SUPPORTED) }
}
