//! Records as NVML lays them out.

use std::ffi::{c_char, c_uint, c_ulonglong};

/// Bytes of a device's memory.
#[repr(C)]
pub struct Memory {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// The same with a version before and the driver's own bytes apart.
#[repr(C)]
pub struct Memory2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

impl Memory2 {
    /// What callers put into `version`: the record's size and number.
    pub const VERSION: c_uint = 0x0200_0028;
}

/// How busy a device was, in percent.
#[repr(C)]
pub struct Utilization {
    pub processors: c_uint,
    pub memory: c_uint,
}

#[repr(C)]
pub struct PciInfo {
    pub legacy_id: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub device_id: c_uint,
    pub subsystem_id: c_uint,
    pub id: [c_char; 32],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Process1 {
    pub pid: c_uint,
    pub used: c_ulonglong,
}

/// The same with the parts of a divided device; all ones where it is not divided.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Process2 {
    pub pid: c_uint,
    pub used: c_ulonglong,
    pub instance: c_uint,
    pub compute_instance: c_uint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<Memory>(), 24);
        assert_eq!(size_of::<Memory2>(), 40);
        assert_eq!(Memory2::VERSION & 0xffff, 40);
        assert_eq!(size_of::<PciInfo>(), 68);
        assert_eq!(size_of::<Process1>(), 16);
        assert_eq!(size_of::<Process2>(), 24);
    }
}
