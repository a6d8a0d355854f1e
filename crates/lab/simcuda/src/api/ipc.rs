//! Memory and events of another process, by handles that can be sent to it.

use crate::abi::{Opaque64, Out, Raw};
use crate::context::current;
use crate::handle::Kind;
use crate::process::resolve;
use crate::status::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::tables::EventRecord;
use crate::{context, opened, process};
use drystone_driver::Driver;
use drystone_sim::ExtentKind;

/// First word of the handle of an event.
const EVENT: u64 = u64::from_le_bytes(*b"simcuevt");

fn export(address: u64) -> Outcome<Opaque64> {
    let device = process::device_of_address(address).ok_or(INVALID_VALUE)?;
    let extent = device.sim.extent_at(address).ok_or(INVALID_VALUE)?;
    INVALID_VALUE.when(extent.kind != ExtentKind::Plain)?;
    opened::handle(&device, extent)
}

api! {
    fn cuIpcGetMemHandle(handle: Out<Opaque64>, address: u64) |call| {
        handle.check()?.set(export(address)?)
    }

    fn cuIpcOpenMemHandle_v2 = cuIpcOpenMemHandle (
        address: Out<u64>, handle: Opaque64, flags: u32
    ) |call| {
        INVALID_VALUE.when(flags != 1)?;
        address.check()?.set(opened::open(handle)?)
    }

    fn cuIpcCloseMemHandle(address: u64) |call| { opened::close(address) }

    fn cuIpcGetEventHandle(handle: Out<Opaque64>, event: Raw) |call| {
        let (device, value) = resolve(event, Kind::Event)?;
        let record = device.tables.lock().events.get(&value).copied().ok_or(INVALID_HANDLE)?;
        // CU_EVENT_INTERPROCESS
        INVALID_HANDLE.when(record.flags & 4 == 0)?;
        handle.set(Opaque64([EVENT, u64::from(std::process::id()), event.0, 0, 0, 0, 0, 0]))
    }

    fn cuIpcOpenEventHandle(event: Out<Raw>, handle: Opaque64) |call| {
        let [EVENT, process, ..] = handle.0 else { return Err(INVALID_HANDLE) };
        event.check()?;
        // An event cannot be opened where it was made.
        INVALID_CONTEXT.when(process == u64::from(std::process::id()))?;
        let device = current()?;
        let value = device.sim.create_event()?.0;
        let record = EventRecord { flags: 6, context: context::current_raw() };
        device.tables.lock().events.insert(value, record);
        event.set(device.handle(Kind::Event, value))
    }

    fn cuDeviceRegisterAsyncNotification(
        device: i32, callback: Raw, data: Raw, handle: Out<Raw>
    ) |call| { Err(NOT_SUPPORTED) }

    fn cuDeviceUnregisterAsyncNotification(device: i32, handle: Raw) |call| { Err(NOT_SUPPORTED) }
}
