//! Pools: the driver's own, whose figures, access and trims include ours.

use std::ffi::c_int;
use std::time::Duration;

use drystone::Effort;
use drystone_process as process;
use drystone_process::barrier::barrier;

use crate::driver::{Handle, PEER_ACCESS_UNSUPPORTED, Place, SUCCESS};
use crate::hook::hooks;
use crate::pools::{self, Access, Location, Properties};
use crate::refused::Wanted;
use crate::{context, device};

/// Followed by its high mark, and the same of what is used.
const RESERVED_CURRENT: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED_HIGH: c_int = 8;

/// How long a trim that keeps some waits for the device: longer than any step.
const TRIM_WAIT: Duration = Duration::from_secs(10);

hooks! {
    // What is reserved and used is the sum of both allocators'.
    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: Place) |driver, drivers| {
        let status = drivers();
        let ours = || {
            process::check().ok()?;
            let all = pools::device_behind(driver, pool)?.allocator.stats().all;
            let (reserved, used) = (all.reserved_bytes, all.allocated_bytes);
            let figures = [reserved.current, reserved.peak, used.current, used.peak];
            figures.get(usize::try_from(attribute - RESERVED_CURRENT).ok()?).copied()
        };
        let is_figure = status == SUCCESS && attribute >= RESERVED_CURRENT;
        if let Some(ours) = is_figure.then(|| barrier(None, ours)).flatten() {
            let value = value.cast::<u64>();
            // SAFETY: the driver has written these attributes as such numbers.
            let drivers = unsafe { value.read_unaligned() };
            // SAFETY: the same place.
            unsafe { value.write_unaligned(drivers + ours) };
        }
        status
    }

    // The driver keeps them; setting a high mark resets ours.
    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: Place) |driver, drivers| {
        let status = drivers();
        if status == SUCCESS && matches!(attribute, RESERVED_HIGH | USED_HIGH) {
            barrier((), || {
                let is_ours = |()| pools::device_behind(driver, pool);
                let device = process::check().ok().and_then(is_ours);
                device.inspect(|device| device.allocator.reset_peaks());
            });
        }
        status
    }

    // Who may use the pool's memory may use ours.
    fn cuMemPoolSetAccess(pool: Handle, access: Place, count: usize) |driver, drivers| {
        let status = drivers();
        if status != SUCCESS || access.is_null() || process::check().is_err() {
            return status;
        }
        // SAFETY: so many, by the caller's word; the driver has read them.
        let access = unsafe { std::slice::from_raw_parts(access.cast::<Access>(), count) };
        let opened = barrier(false, || {
            let Some(ordinal) = pools::device_of(driver, pool, context::devices(driver)) else {
                return true;
            };
            let peers = access.iter().filter_map(|access| access.grants_to());
            let mut peers = peers.filter(|&peer| peer != ordinal).peekable();
            // A device that cannot be opened is the driver's alone.
            let device = peers.peek().and_then(|_| device::open(ordinal));
            device.is_none_or(|device| {
                let mut opens = peers.map(|peer| {
                    device.allocator.enable_peer_access(peer.cast_unsigned())
                });
                opens.all(|opened| opened.is_ok())
            })
        });
        if opened { status } else { PEER_ACCESS_UNSUPPORTED }
    }

    // What we hold unused goes back as well, if more is held than is to be kept.
    fn cuMemPoolTrimTo(pool: Handle, keep_bytes: usize) |driver, drivers| {
        let status = drivers();
        let trim = || {
            process::check().ok()?;
            let allocator = &pools::device_behind(driver, pool)?.allocator;
            let (_, reserved) = allocator.allocated_and_reserved_bytes();
            // Waits until the device is idle, which the driver need not: it knows what is complete.
            match reserved.saturating_sub(keep_bytes as u64) {
                0 => None,
                _ if keep_bytes == 0 => allocator.trim().ok(),
                over => Some(allocator.give_back(over, Effort::Idle, TRIM_WAIT)),
            }
        };
        if status == SUCCESS {
            barrier(None, trim);
        }
        status
    }

    // A pool of plain device memory is stood in for.
    fn cuMemPoolCreate(
        to: *mut Handle, properties: Place
    ) takes Wanted::UNTOLD, |_, drivers| {
        let status = drivers();
        if status == SUCCESS && process::check().is_ok() {
            // SAFETY: the driver has written it.
            let pool = unsafe { to.read_unaligned() };
            // SAFETY: the driver has read them.
            let properties = unsafe { properties.cast::<Properties>().read_unaligned() };
            barrier((), || pools::created(pool, &properties));
        }
        status
    }

    // Its blocks stay valid.
    fn cuMemPoolDestroy(pool: Handle) |_, drivers| {
        let status = drivers();
        if status == SUCCESS && process::check().is_ok() {
            barrier((), || pools::forget(pool));
        }
        status
    }

    fn cuDeviceSetMemPool(of: c_int, pool: Handle) |driver, drivers| {
        let status = drivers();
        if status == SUCCESS && process::check().is_ok() {
            barrier((), || pools::chosen(driver, of, pool));
        }
        status
    }

    fn cuMemSetMemPool(location: Place, kind: c_int, pool: Handle) |driver, drivers| {
        /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
        const PINNED: c_int = 1;
        let status = drivers();
        if status == SUCCESS && kind == PINNED && process::check().is_ok() {
            // SAFETY: the driver has read it.
            let location = unsafe { location.cast::<Location>().read_unaligned() };
            if let Some(ordinal) = location.device() {
                barrier((), || pools::chosen(driver, ordinal, pool));
            }
        }
        status
    }
}
