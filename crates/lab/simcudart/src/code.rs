//! A program's code for the device: of which architectures it is, and nothing else of it.
//!
//! Programs pick what they launch by the architecture that a kernel's code was compiled for, which
//! is not the device's: on compute capability 8.9 the code for 8.6 runs. The layout is that of the
//! `fatbinary` sections that `nvcc` writes. What is not such a section has no architectures.

use std::ffi::{c_int, c_void};
use std::slice;

/// Of the structure that a program registers, and of what it points to.
const WRAPPER_MAGIC: u32 = 0x4662_43B1;
const CODE_MAGIC: u32 = 0xBA55_ED50;
/// Code as text for a virtual architecture; other kinds are for a device.
const PTX: u16 = 1;
/// More than any program has, against sizes that are not what they seem.
const ENTRIES_MAX: usize = 4096;

#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    code: *const u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    magic: u32,
    version: u16,
    header_bytes: u16,
    entries_bytes: u64,
}

/// The beginning of the code for one architecture.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    kind: u16,
    version: u16,
    header_bytes: u32,
    bytes: u64,
    compressed_bytes: u32,
    options: u32,
    minor: u16,
    major: u16,
    /// Ten times the major number of the compute capability, and the minor one.
    architecture: u32,
}

/// The architectures of a program's code.
#[derive(Default)]
pub struct Code {
    for_devices: Vec<c_int>,
    as_text: Vec<c_int>,
}

impl Code {
    /// Reads what a program registers.
    ///
    /// # Safety
    ///
    /// The pointer is null, or to what the program's start-up code passes.
    pub unsafe fn read(registered: *const c_void) -> Self {
        let mut found = Self::default();
        let wrapper = registered.cast::<Wrapper>();
        // SAFETY: programs pass the address of a wrapper.
        let Some(wrapper) = (unsafe { wrapper.as_ref() }) else { return found };
        if wrapper.magic != WRAPPER_MAGIC || wrapper.code.is_null() {
            return found;
        }
        // SAFETY: a wrapper points to code, which begins with its header.
        let header = unsafe { wrapper.code.cast::<Header>().read_unaligned() };
        let Ok(bytes) = usize::try_from(header.entries_bytes) else { return found };
        if header.magic == CODE_MAGIC {
            // SAFETY: the code is as long as its header says.
            let entries = unsafe { wrapper.code.add(usize::from(header.header_bytes)) };
            // SAFETY: as many bytes follow the header as it says.
            let entries = unsafe { slice::from_raw_parts(entries, bytes) };
            found.take(entries);
        }
        found
    }

    fn take(&mut self, mut entries: &[u8]) {
        for _ in 0..ENTRIES_MAX {
            if entries.len() < size_of::<Entry>() {
                return;
            }
            // SAFETY: there are enough bytes, and any are an entry.
            let entry = unsafe { entries.as_ptr().cast::<Entry>().read_unaligned() };
            let architecture = c_int::try_from(entry.architecture).unwrap_or_default();
            let list = if entry.kind == PTX { &mut self.as_text } else { &mut self.for_devices };
            list.push(architecture);
            let whole = u64::from(entry.header_bytes).saturating_add(entry.bytes);
            let Some(rest) = usize::try_from(whole).ok().and_then(|at| entries.get(at..)) else {
                return;
            };
            entries = rest;
        }
    }

    /// The architecture whose code a device runs: the latest for its major number, else the latest
    /// text, which the driver compiles.
    pub fn runs_on(&self, device: c_int) -> Option<c_int> {
        let fits = |&&one: &&c_int| one <= device;
        let own = self.for_devices.iter().filter(|&&one| one / 10 == device / 10);
        own.filter(fits).max().or_else(|| self.as_text.iter().filter(fits).max()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code for devices and as text, of these architectures.
    fn code(of: &[(u16, u32)]) -> Code {
        let mut entries = Vec::new();
        for &(kind, architecture) in of {
            entries.extend(kind.to_le_bytes());
            entries.extend([0; 2]);
            entries.extend(40_u32.to_le_bytes());
            entries.extend(24_u64.to_le_bytes());
            entries.extend([0; 12]);
            entries.extend(architecture.to_le_bytes());
            entries.extend([0; 8 + 24]);
        }
        let mut bytes = CODE_MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend(u64::try_from(entries.len()).unwrap_or_default().to_le_bytes());
        bytes.extend(entries);
        let wrapper = Wrapper { magic: WRAPPER_MAGIC, version: 1, code: bytes.as_ptr() };
        // SAFETY: the wrapper and what it points to are alive.
        unsafe { Code::read((&raw const wrapper).cast()) }
    }

    #[test]
    fn a_device_runs_the_latest_code_of_its_major_number_or_the_text() {
        let wheel = code(&[(2, 75), (2, 80), (2, 86), (2, 90), (1, 90)]);
        for (device, expected) in
            [(75, Some(75)), (80, Some(80)), (86, Some(86)), (89, Some(86)), (90, Some(90))]
        {
            assert_eq!(wheel.runs_on(device), expected, "{device}");
        }
        assert_eq!(wheel.runs_on(120), Some(90));
        assert_eq!(wheel.runs_on(70), None);
    }

    #[test]
    fn what_is_no_code_has_no_architectures() {
        // SAFETY: null is no code, and a wrapper of another kind is not followed.
        let none = unsafe { Code::read(std::ptr::null()) };
        assert_eq!(none.runs_on(90), None);
        let other = Wrapper { magic: 1, version: 1, code: std::ptr::null() };
        // SAFETY: the same.
        let none = unsafe { Code::read((&raw const other).cast()) };
        assert_eq!(none.runs_on(90), None);
    }
}
