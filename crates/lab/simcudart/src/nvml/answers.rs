//! What NVML answers of a device, and what it says it cannot.
//!
//! Memory in use is what the simulated device holds, of every owner in this process; the process
//! itself is the only one seen. A simulated device is cool and idle. One that is hidden from CUDA
//! answers, too.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

use super::records::{Memory, Memory2, PciInfo, Process1, Process2, Utilization};
use super::session::{
    ARGUMENT_VERSION_MISMATCH, Device, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, Outcome,
    UNKNOWN, answer_text, count,
};
use crate::driver::{self, Out};
use crate::error;

/// The driver that would serve CUDA 13.
const DRIVER_VERSION: &str = "580.65.06";
const NVML_VERSION: &str = "13.580.65.06";
/// What a field holds that does not apply.
const NOT_DIVIDED: c_uint = c_uint::MAX;

fn attribute(number: c_int, place: c_int) -> c_int {
    driver::simcuda_place_attribute(place, number)
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
    driver::simcuda_place_uuid(place, &mut bytes);
    let mut text = String::from("GPU");
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn memory(place: c_int) -> Memory {
    let total = driver::simcuda_place_bytes(place);
    let used = driver::simcuda_place_used_bytes(place);
    Memory { total, free: total.saturating_sub(used), used }
}

fn name(place: c_int) -> String {
    let mut name = [0_u8; 96];
    // SAFETY: there is room for as many bytes as stated.
    unsafe { driver::simcuda_place_name(place, name.as_mut_ptr().cast(), 96) };
    let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
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

/// Exports questions about one device that have an answer of one type.
macro_rules! questions {
    ($($name:ident -> $type:ty = $answer:expr;)*) => {
        nvml! {$(
            fn $name(device: Device, to: Out<$type>) {
                let answer_of: fn(c_int) -> $type = $answer;
                to.answer(answer_of(device.place()?))
            }
        )*}
    };
}

questions! {
    nvmlDeviceGetIndex -> c_uint = c_int::unsigned_abs;
    nvmlDeviceGetMinorNumber -> c_uint = c_int::unsigned_abs;
    nvmlDeviceGetMemoryInfo -> Memory = memory;
    nvmlDeviceGetUtilizationRates -> Utilization = |_| Utilization { processors: 0, memory: 0 };
    nvmlDeviceGetPciInfo_v3 -> PciInfo = pci_info;
    nvmlDeviceGetPciInfo_v2 -> PciInfo = pci_info;
    nvmlDeviceGetPciInfo -> PciInfo = pci_info;
    nvmlDeviceGetComputeMode -> c_int = |place| attribute(20, place);
    nvmlDeviceGetPersistenceMode -> c_int = |_| 1;
    nvmlDeviceGetMultiGpuBoard -> c_uint = |_| 0;
    nvmlDeviceGetPowerUsage -> c_uint = |_| 70_000;
    nvmlDeviceGetNumGpuCores -> c_uint = |place| attribute(16, place).unsigned_abs() * 128;
    nvmlDeviceIsMigDeviceHandle -> c_uint = |_| 0;
}

/// Exports what a simulated device has nothing to say to, whatever was asked.
macro_rules! unanswered {
    ($($name:ident)*) => {
        nvml! {$(
            fn $name(device: Device) {
                device.place()?;
                Err(NOT_SUPPORTED)
            }
        )*}
    };
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

/// Tells the processes that use a device, which is this one while it holds memory.
unsafe fn processes<T>(
    device: Device,
    room: *mut c_uint,
    to: Out<T>,
    entry: impl FnOnce(c_uint, c_ulonglong) -> T,
) -> Outcome {
    // SAFETY: the caller passes a number or null.
    let room = unsafe { room.as_mut() }.ok_or(INVALID_ARGUMENT)?;
    let used = memory(device.place()?).used;
    let had = std::mem::replace(room, c_uint::from(used > 0));
    if *room > had {
        return Err(INSUFFICIENT_SIZE);
    }
    if used > 0 { to.answer(entry(std::process::id(), used)) } else { Ok(()) }
}

/// Tells the newest CUDA that the driver serves.
fn cuda_version(to: Out<c_int>) -> Outcome {
    match driver::cuDriverGetVersion(to) {
        error::SUCCESS => Ok(()),
        error::INVALID_VALUE => Err(INVALID_ARGUMENT),
        _ => Err(UNKNOWN),
    }
}

/// A process with the parts of a divided device.
fn undivided(pid: c_uint, used: c_ulonglong) -> Process2 {
    Process2 { pid, used, instance: NOT_DIVIDED, compute_instance: NOT_DIVIDED }
}

nvml! {
    fn nvmlDeviceGetName(device: Device, to: *mut c_char, room: c_uint) {
        // SAFETY: the caller passes as much room as it states.
        unsafe { answer_text(to, room, &name(device.place()?)) }
    }

    /// Tells a device's unique name.
    fn nvmlDeviceGetUUID(device: Device, to: *mut c_char, room: c_uint) {
        // SAFETY: the caller passes as much room as it states.
        unsafe { answer_text(to, room, &uuid(device.place()?)) }
    }

    /// Tells the memory in use, with a version in the record.
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut Memory2) {
        // SAFETY: the caller passes a record or null.
        let record = unsafe { to.as_mut() }.ok_or(INVALID_ARGUMENT)?;
        if record.version != Memory2::VERSION {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        let Memory { total, free, used } = memory(device.place()?);
        *record = Memory2 { version: Memory2::VERSION, total, reserved: 0, free, used };
        Ok(())
    }

    /// Tells a temperature; the sensor is the device's own.
    fn nvmlDeviceGetTemperature(device: Device, _sensor: c_int, to: Out<c_uint>) {
        device.place()?;
        to.answer(30)
    }

    /// Tells a clock in megahertz.
    fn nvmlDeviceGetClockInfo(device: Device, kind: c_int, to: Out<c_uint>) {
        const MEMORY: c_int = 2;
        let khz = attribute(if kind == MEMORY { 36 } else { 13 }, device.place()?).unsigned_abs();
        to.answer(khz / 1000)
    }

    fn nvmlDeviceGetCudaComputeCapability(device: Device, major: Out<c_int>, minor: Out<c_int>) {
        let place = device.place()?;
        major.answer(attribute(75, place))?;
        minor.answer(attribute(76, place))
    }

    /// Tells whether two devices reach each other: 0 when they do, 2 when not.
    fn nvmlDeviceGetP2PStatus(device: Device, peer: Device, _index: c_int, to: Out<c_int>) {
        let is_same = device.place()? == peer.place()?;
        to.answer(if is_same { 2 } else { 0 })
    }

    fn nvmlDeviceGetComputeRunningProcesses(device: Device, room: *mut c_uint, to: Out<Process1>) {
        // SAFETY: the caller passes as much room as it states.
        unsafe { processes(device, room, to, |pid, used| Process1 { pid, used }) }
    }

    /// The same with the parts of a divided device.
    fn nvmlDeviceGetComputeRunningProcesses_v2(
        device: Device, room: *mut c_uint, to: Out<Process2>
    ) {
        // SAFETY: the caller passes as much room as it states.
        unsafe { processes(device, room, to, undivided) }
    }

    /// The same; versions 2 and 3 are alike.
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: Device, room: *mut c_uint, to: Out<Process2>
    ) {
        // SAFETY: the caller passes as much room as it states.
        unsafe { processes(device, room, to, undivided) }
    }

    fn nvmlSystemGetCudaDriverVersion_v2(to: Out<c_int>) { cuda_version(to) }

    fn nvmlSystemGetCudaDriverVersion(to: Out<c_int>) { cuda_version(to) }

    fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) {
        count()?;
        // SAFETY: the caller passes as much room as it states.
        unsafe { answer_text(to, room, DRIVER_VERSION) }
    }

    fn nvmlSystemGetNVMLVersion(to: *mut c_char, room: c_uint) {
        // SAFETY: the caller passes as much room as it states.
        unsafe { answer_text(to, room, NVML_VERSION) }
    }
}
