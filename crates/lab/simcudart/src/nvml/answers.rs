//! What NVML answers of a device, and what it says it cannot.
//!
//! Memory in use is what the simulated device holds, of every owner in this process; the process
//! itself is the only one seen. A simulated device is cool and idle. One that is hidden from CUDA
//! answers, too.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

use super::records::{Memory, Memory2, PciInfo, Process1, Process2, Utilization};
use super::session::{
    ARGUMENT_VERSION_MISMATCH, Device, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, Return,
    SUCCESS, UNKNOWN, answer, answer_text, count,
};
use crate::driver;
use crate::error;

/// The driver that would serve CUDA 13.
const DRIVER_VERSION: &str = "580.65.06";
const NVML_VERSION: &str = "13.580.65.06";
/// What a field holds that does not apply.
const NOT_DIVIDED: c_uint = c_uint::MAX;

fn attribute(number: c_int, place: c_int) -> c_int {
    // SAFETY: takes no pointers.
    unsafe { driver::simcuda_place_attribute(place, number) }
}

/// Domain, bus and device of a device's address on the bus, each device on a bus of its own.
pub fn address(place: c_int) -> [c_int; 3] {
    const DOMAIN: c_int = 50;
    const BUS: c_int = 33;
    const DEVICE: c_int = 34;
    [DOMAIN, BUS, DEVICE].map(|part| attribute(part, place))
}

/// `GPU-` and the unique number, in groups.
pub fn uuid(place: c_int) -> String {
    let mut bytes = [0; 16];
    // SAFETY: the pointer is to a local.
    unsafe { driver::simcuda_place_uuid(place, &raw mut bytes) };
    let mut text = String::from("GPU");
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn memory(place: c_int) -> Result<Memory, Return> {
    // SAFETY: takes no pointers.
    let total = unsafe { driver::simcuda_place_bytes(place) };
    // SAFETY: takes no pointers.
    let used = unsafe { driver::simcuda_place_used_bytes(place) };
    Ok(Memory { total, free: total.saturating_sub(used), used })
}

fn name(place: c_int) -> Result<String, Return> {
    let mut name = [0_u8; 96];
    // SAFETY: there is room for as many bytes as stated.
    unsafe { driver::simcuda_place_name(place, name.as_mut_ptr().cast(), 96) };
    let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn pci_info(place: c_int) -> PciInfo {
    let [domain, bus, device] = address(place);
    let mut info = PciInfo {
        legacy_id: [0; 16],
        domain: domain.unsigned_abs(),
        bus: bus.unsigned_abs(),
        device: device.unsigned_abs(),
        device_id: 0x2330_10de,
        subsystem_id: 0,
        id: [0; 32],
    };
    let put = |to: &mut [c_char], text: String| {
        for (to, byte) in to.iter_mut().zip(text.bytes()) {
            *to = c_char::from_ne_bytes([byte]);
        }
    };
    put(&mut info.legacy_id, format!("{domain:04X}:{bus:02X}:{device:02X}.0"));
    put(&mut info.id, format!("{domain:08X}:{bus:02X}:{device:02X}.0"));
    info
}

fn driver_version() -> Result<c_int, Return> {
    let mut version = 0;
    // SAFETY: the pointer is to a local.
    match unsafe { driver::cuDriverGetVersion(&raw mut version) } {
        error::SUCCESS => Ok(version),
        _ => Err(UNKNOWN),
    }
}

/// Exports questions about one device that have an answer of one type.
macro_rules! questions {
    ($($name:ident -> $type:ty = $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: Device, to: *mut $type) -> Return {
            let answer_of: fn(c_int) -> Result<$type, Return> = $answer;
            // SAFETY: the caller passes room for the answer.
            unsafe { answer(to, || answer_of(device.place()?)) }
        }
    )*};
}

questions! {
    nvmlDeviceGetIndex -> c_uint = |place| Ok(place.unsigned_abs());
    nvmlDeviceGetMinorNumber -> c_uint = |place| Ok(place.unsigned_abs());
    nvmlDeviceGetMemoryInfo -> Memory = memory;
    nvmlDeviceGetUtilizationRates -> Utilization =
        |_| Ok(Utilization { processors: 0, memory: 0 });
    nvmlDeviceGetPciInfo_v3 -> PciInfo = |place| Ok(pci_info(place));
    nvmlDeviceGetPciInfo_v2 -> PciInfo = |place| Ok(pci_info(place));
    nvmlDeviceGetPciInfo -> PciInfo = |place| Ok(pci_info(place));
    nvmlDeviceGetComputeMode -> c_int = |place| Ok(attribute(20, place));
    nvmlDeviceGetPersistenceMode -> c_int = |_| Ok(1);
    nvmlDeviceGetMultiGpuBoard -> c_uint = |_| Ok(0);
    nvmlDeviceGetPowerUsage -> c_uint = |_| Ok(70_000);
    nvmlDeviceGetNumGpuCores -> c_uint = |place| Ok(attribute(16, place).unsigned_abs() * 128);
    nvmlDeviceIsMigDeviceHandle -> c_uint = |_| Ok(0);
}

/// Exports questions about one device that are answered with a text.
macro_rules! texts {
    ($($name:ident = $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: Device, to: *mut c_char, room: c_uint) -> Return {
            let answer_of: fn(c_int) -> Result<String, Return> = $answer;
            // SAFETY: the caller passes as much room as it states.
            unsafe { answer_text(to, room, || answer_of(device.place()?)) }
        }
    )*};
}

texts! {
    nvmlDeviceGetName = name;
    nvmlDeviceGetUUID = |place| Ok(uuid(place));
}

/// Exports what a simulated device has nothing to say to, whatever was asked.
macro_rules! unanswered {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(device: Device) -> Return {
            device.place().map_or_else(|result| result, |_| NOT_SUPPORTED)
        }
    )*};
}

unanswered! {
    nvmlDeviceGetNvLinkState
    nvmlDeviceGetNvLinkVersion
    nvmlDeviceGetNvLinkCapability
    nvmlDeviceGetNvLinkRemotePciInfo_v2
    nvmlDeviceGetNvLinkRemoteDeviceType
    nvmlDeviceGetGpuFabricInfo
    nvmlDeviceGetGpuFabricInfoV
    nvmlDeviceGetMigMode
    nvmlDeviceGetAttributes_v2
    nvmlDeviceGetFanSpeed
    nvmlDeviceGetEccMode
    nvmlDeviceGetFieldValues
}

/// Tells the memory in use, with a version in the record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut Memory2) -> Return {
    // SAFETY: the caller passes a record or null.
    let Some(record) = (unsafe { to.as_mut() }) else {
        return INVALID_ARGUMENT;
    };
    if record.version != Memory2::VERSION {
        return ARGUMENT_VERSION_MISMATCH;
    }
    match device.place().and_then(memory) {
        Ok(Memory { total, free, used }) => {
            *record = Memory2 { version: Memory2::VERSION, total, reserved: 0, free, used };
            SUCCESS
        }
        Err(result) => result,
    }
}

/// Tells a temperature; the sensor is the device's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_int,
    to: *mut c_uint,
) -> Return {
    // SAFETY: the caller passes room for a number.
    unsafe { answer(to, || device.place().map(|_| 30)) }
}

/// Tells a clock in megahertz.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: Device,
    kind: c_int,
    to: *mut c_uint,
) -> Return {
    const MEMORY: c_int = 2;
    let khz = |place| attribute(if kind == MEMORY { 36 } else { 13 }, place).unsigned_abs();
    // SAFETY: the caller passes room for a number.
    unsafe { answer(to, || Ok(khz(device.place()?) / 1000)) }
}

/// Tells the compute capability.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Device,
    major: *mut c_int,
    minor: *mut c_int,
) -> Return {
    // SAFETY: the caller passes room for a number.
    let first = unsafe { answer(major, || Ok(attribute(75, device.place()?))) };
    if first != SUCCESS {
        return first;
    }
    // SAFETY: the same.
    unsafe { answer(minor, || Ok(attribute(76, device.place()?))) }
}

/// Tells whether two devices reach each other: 0 when they do, 2 when not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetP2PStatus(
    device: Device,
    peer: Device,
    _index: c_int,
    to: *mut c_int,
) -> Return {
    let status = || {
        let (device, peer) = (device.place()?, peer.place()?);
        Ok(if device == peer { 2 } else { 0 })
    };
    // SAFETY: the caller passes room for a status.
    unsafe { answer(to, status) }
}

/// Writes the list of processes, which is this one while it holds memory.
unsafe fn processes<T>(
    device: Device,
    room: *mut c_uint,
    to: *mut T,
    entry: impl FnOnce(c_uint, c_ulonglong) -> T,
) -> Return {
    // SAFETY: the caller passes a number or null.
    let Some(room) = (unsafe { room.as_mut() }) else {
        return INVALID_ARGUMENT;
    };
    let used = match device.place().and_then(memory) {
        Ok(memory) => memory.used,
        Err(result) => return result,
    };
    let had = std::mem::replace(room, c_uint::from(used > 0));
    if *room > had {
        return INSUFFICIENT_SIZE;
    }
    if used > 0 {
        // SAFETY: the caller passes room for at least one entry, as it states.
        unsafe { to.write(entry(std::process::id(), used)) };
    }
    SUCCESS
}

/// Lists the processes that use a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: Device,
    room: *mut c_uint,
    to: *mut Process1,
) -> Return {
    // SAFETY: the caller passes as much room as it states.
    unsafe { processes(device, room, to, |pid, used| Process1 { pid, used }) }
}

/// The same with the parts of a divided device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Device,
    room: *mut c_uint,
    to: *mut Process2,
) -> Return {
    let entry =
        |pid, used| Process2 { pid, used, instance: NOT_DIVIDED, compute_instance: NOT_DIVIDED };
    // SAFETY: the caller passes as much room as it states.
    unsafe { processes(device, room, to, entry) }
}

/// The same; versions 2 and 3 are alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: Device,
    room: *mut c_uint,
    to: *mut Process2,
) -> Return {
    // SAFETY: the contract is the same.
    unsafe { nvmlDeviceGetComputeRunningProcesses_v3(device, room, to) }
}

/// Tells the newest CUDA that the driver serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) -> Return {
    // SAFETY: the caller passes room for a number.
    unsafe { answer(to, driver_version) }
}

/// The same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(to: *mut c_int) -> Return {
    // SAFETY: the contract is the same.
    unsafe { nvmlSystemGetCudaDriverVersion_v2(to) }
}

/// Tells the driver's version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) -> Return {
    // SAFETY: the caller passes as much room as it states.
    unsafe { answer_text(to, room, || count().map(|_| DRIVER_VERSION.to_owned())) }
}

/// Tells NVML's version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(to: *mut c_char, room: c_uint) -> Return {
    // SAFETY: the caller passes as much room as it states.
    unsafe { answer_text(to, room, || Ok(NVML_VERSION.to_owned())) }
}
