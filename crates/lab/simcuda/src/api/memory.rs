//! Plain device memory, and how much of it there is.

use super::pointer;
use crate::abi::{Out, Raw};
use crate::context::current;
use crate::status::{INVALID_VALUE, NOT_FOUND, OUT_OF_MEMORY, Outcome};
use crate::{backing, context, opened, process};
use drystone_driver::Driver;
use drystone_sim::ExtentKind;

/// Rows of a pitched allocation start on multiples of this.
const PITCH_BYTES: usize = 512;

/// Allocates plain memory of the current device.
pub(crate) fn allocate(bytes: usize) -> Outcome<u64> {
    let device = current()?;
    let address = device.sim.malloc_of(context::of(Raw(0))?, bytes as u64)?;
    // What lay there may have ended with its context.
    opened::give_no_more(address);
    device.tables.lock().numbers.remove(&address);
    backing::open(device.backing.as_ref(), address, bytes as u64);
    Ok(address)
}

/// Frees plain memory, or stream-ordered memory as `cuMemFree` may, which waits for nothing then
/// (CUDA driver API, `cuMemFree`); null is nothing.
fn free(address: u64) -> Outcome {
    if address == 0 {
        return current().map(drop);
    }
    let own = current()?;
    let device = process::device_of_address(address).unwrap_or(own);
    let is_start = |extent: &drystone_sim::Extent| extent.address == address;
    let extent = device.sim.extent_at(address).filter(is_start);
    if extent.is_some_and(|extent| extent.kind == ExtentKind::Pooled) {
        return Ok(device.sim.free_async(address, drystone_driver::Stream::DEFAULT)?);
    }
    device.sim.free(address)?;
    opened::give_no_more(address);
    backing::close(device.backing.as_ref(), address, extent.map_or(0, |extent| extent.bytes));
    Ok(())
}

api! {
    fn cuMemGetInfo_v2 = cuMemGetInfo (free: Out<usize>, total: Out<usize>) |call| {
        let device = current()?;
        let info = device.sim.memory_info()?;
        // Of the host's memory it does not count the page cache (unslothai/unsloth#10705).
        let host = device.sim.host_free_and_lowest_bytes();
        let free_bytes = host.map_or(info.free_bytes, |(free_bytes, _)| free_bytes);
        free.set_if_wanted(free_bytes as usize);
        total.set_if_wanted(info.total_bytes as usize);
        Ok(())
    }

    fn cuMemAlloc_v2 = cuMemAlloc (address: Out<u64>, bytes: usize) |call| {
        call.count_bytes(bytes as u64);
        address.check()?.set(allocate(bytes)?)
    }

    fn cuMemAllocPitch_v2 = cuMemAllocPitch (
        address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32
    ) |call| {
        INVALID_VALUE.when(![4, 8, 16].contains(&element) || width == 0 || height == 0)?;
        let row = width.checked_next_multiple_of(PITCH_BYTES).ok_or(OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
        call.count_bytes(bytes as u64);
        pitch.check()?;
        address.check()?.set(allocate(bytes)?)?;
        pitch.set(row)
    }

    fn cuMemFree_v2 = cuMemFree (address: u64) |call| {
        if pointer::is_managed(address) {
            return pointer::free_managed(address);
        }
        free(address)
    }

    fn cuMemGetAddressRange_v2 = cuMemGetAddressRange (
        start: Out<u64>, bytes: Out<usize>, address: Raw
    ) |call| {
        current()?;
        let range = pointer::find(address.0).ok_or(NOT_FOUND)?;
        start.set_if_wanted(range.address);
        bytes.set_if_wanted(range.bytes as usize);
        Ok(())
    }
}
