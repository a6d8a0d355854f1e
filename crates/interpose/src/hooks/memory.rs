//! Memory: taken and given back in stream order and at once, and how much there is.

use drystone::address_calls;
use drystone_process::barrier::barrier;
use drystone_process::report::note;
use drystone_process::{self as process, registry};

use crate::context;
use crate::driver::{self, Handle, SUCCESS};
use crate::hook::hooks;
use crate::ipc;
use crate::memory::{block_around, free_in_order, free_when_idle, serve};
use crate::refused::Wanted;
use crate::streams::per_thread;

/// Somebody asks which allocation an address lies in, and takes it for one handle. Whether several
/// are behind that block.
#[cold]
fn note_asked(address: u64) -> bool {
    let ask = || {
        process::check().ok()?;
        let asked = registry::in_use().find_map(|device| device.allocator.make_whole(address))?;
        note(&format!(
            "drystone: cuMemGetAddressRange tells of one of the handles behind a block: {}\n",
            asked.why()?
        ));
        Some(())
    };
    barrier(None, ask).is_some()
}

hooks! {
    fn cuMemAllocAsync(
        to: *mut u64, bytes: usize, stream: Handle
    ) takes Wanted::bytes(bytes), |driver, drivers| {
        // SAFETY: by the caller's word.
        unsafe { serve(driver, to, bytes, None, stream, drivers) }
    }

    fn cuMemAllocAsync_ptsz(
        to: *mut u64, bytes: usize, stream: Handle
    ) takes Wanted::bytes(bytes), |driver, drivers| {
        // SAFETY: by the caller's word.
        unsafe { serve(driver, to, bytes, None, per_thread(stream), drivers) }
    }

    fn cuMemAllocFromPoolAsync(
        to: *mut u64, bytes: usize, pool: Handle, stream: Handle
    ) takes Wanted::bytes(bytes), |driver, drivers| {
        // SAFETY: by the caller's word.
        unsafe { serve(driver, to, bytes, Some(pool), stream, drivers) }
    }

    fn cuMemAllocFromPoolAsync_ptsz(
        to: *mut u64, bytes: usize, pool: Handle, stream: Handle
    ) takes Wanted::bytes(bytes), |driver, drivers| {
        // SAFETY: by the caller's word.
        unsafe { serve(driver, to, bytes, Some(pool), per_thread(stream), drivers) }
    }

    fn cuMemFreeAsync(address: u64, stream: Handle) |driver, drivers| {
        if free_in_order(driver, address, stream) { SUCCESS } else { drivers() }
    }

    fn cuMemFreeAsync_ptsz(address: u64, stream: Handle) |driver, drivers| {
        if free_in_order(driver, address, per_thread(stream)) { SUCCESS } else { drivers() }
    }

    fn cuMemFree_v2(address: u64) |_, drivers| {
        if free_when_idle(address) { SUCCESS } else { drivers() }
    }

    // What we hold unused is as good as free: the driver's own pool would have given it back. What
    // neighbours hold unused they give when it is asked for.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |driver, drivers| {
        let status = drivers();
        let unused = || {
            process::check().ok()?;
            let device = registry::find(context::current_ordinal(driver)?)?;
            let (allocated, reserved) = device.allocator.allocated_and_reserved_bytes();
            let others = device.allocator.neighbours_unused_bytes();
            usize::try_from(reserved.saturating_sub(allocated).saturating_add(others)).ok()
        };
        if status == SUCCESS && !free.is_null() {
            let unused = barrier(None, unused).unwrap_or(0);
            // SAFETY: the driver has written it.
            let drivers = unsafe { free.read_unaligned() };
            // What neighbours say is their word.
            // SAFETY: the driver has written it, if it is asked for.
            let most = unsafe { total.as_ref() }.map_or(usize::MAX, |total| *total);
            // SAFETY: the same place.
            unsafe { free.write_unaligned(drivers.saturating_add(unused).min(most)) };
        }
        status
    }

    // The driver tells of the handle that the address leads to. In stream order it has no handles,
    // and memory is what was asked for.
    fn cuMemGetAddressRange_v2(
        start: *mut u64, bytes: *mut usize, address: u64
    ) in both |_, drivers| {
        let is_in_parts = !driver::is_serving() && !driver::hands_on() && note_asked(address);
        let status = address_calls::run(drivers);
        if status == SUCCESS
            && driver::is_serving()
            && let Some((_, of, size)) = barrier(None, || block_around(address))
        {
            if !start.is_null() {
                // SAFETY: by the caller's word.
                unsafe { start.write_unaligned(of) };
            }
            if !bytes.is_null() {
                // SAFETY: by the caller's word.
                unsafe { bytes.write_unaligned(size as usize) };
            }
        }
        if status == SUCCESS && !start.is_null() {
            // SAFETY: written above, or by the driver.
            ipc::tell(address, unsafe { start.read_unaligned() }, is_in_parts);
        }
        status
    }
}
