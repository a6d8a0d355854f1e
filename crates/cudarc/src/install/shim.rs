//! A library without code that cudarc takes for the driver, made when the program runs.
//!
//! cudarc opens `libcuda.so` by that name and looks its functions up there. The dynamic linker
//! gives whoever asks for a name the library that is loaded and says to be called so (`DT_SONAME`).
//! This one says so, names our functions by their addresses in this process (absolute symbols,
//! since glibc 2.28), and needs `libcuda.so.1`, where a lookup goes on for all others. Nothing of
//! cudarc, of the driver or of the linker is overwritten.
//!
//! The layout is that of the System V ABI, chapters 4 and 5 (ELF-64), in the machine's byte order.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

const FILE_HEADER_BYTES: u64 = 64;
const SEGMENT_HEADER_BYTES: u64 = 56;
const SYMBOL_BYTES: u64 = 24;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
/// Without it the linker would make every stack executable.
const PT_GNU_STACK: u32 = 0x6474_e551;
const READ_WRITE: u32 = 6;

const DT_NEEDED: u64 = 1;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;

/// A function of any library: `STB_GLOBAL`, `STT_FUNC`.
const GLOBAL_FUNCTION: u8 = 0x12;
/// Its value is no offset in the file.
const SHN_ABS: u16 = 0xfff1;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Loads the library for the rest of the process.
pub(super) fn load(name: &str, needed: &str, functions: &[(&str, usize)]) -> io::Result<()> {
    // SAFETY: the name is a C string; the flags are none.
    let fd = unsafe { libc::memfd_create(c"drystone-cudarc".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(&image(name, needed, functions))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the library has no code; the one it needs is the driver, which the program is about
    // to load itself.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    // Never unloaded: cudarc holds it, too.
    library.map(std::mem::forget).map_err(io::Error::other)
}

/// Strings, one after the other, each ended by a zero. The first is empty.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let start = self.0.len() as u32;
        self.0.extend(CString::new(text).unwrap_or_default().into_bytes_with_nul());
        start
    }
}

/// Numbers as the machine writes them.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn half(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
}

/// The file: headers, symbols, their hash table, dynamic section, strings; all in one segment.
fn image(name: &str, needed: &str, functions: &[(&str, usize)]) -> Vec<u8> {
    let mut strings = Strings(vec![0]);
    let (name, needed) = (strings.add(name), strings.add(needed));
    let mut symbols = Bytes(vec![0; SYMBOL_BYTES as usize]);
    for (function, address) in functions {
        symbols.word(strings.add(function));
        symbols.0.extend([GLOBAL_FUNCTION, 0]);
        symbols.half(SHN_ABS).long(*address as u64).long(0);
    }
    let count = functions.len() as u32 + 1;
    // One bucket, which leads through all symbols.
    let mut hash = Bytes::default();
    hash.word(1).word(count).word(if count > 1 { 1 } else { 0 }).word(0);
    for at in 1..count {
        hash.word(if at + 1 < count { at + 1 } else { 0 });
    }
    hash.0.resize(hash.0.len().next_multiple_of(8), 0);

    let symbols_at = FILE_HEADER_BYTES + 3 * SEGMENT_HEADER_BYTES;
    let hash_at = symbols_at + symbols.0.len() as u64;
    let dynamic_at = hash_at + hash.0.len() as u64;
    let dynamic_bytes = 8 * 16;
    let strings_at = dynamic_at + dynamic_bytes;
    let end = strings_at + strings.0.len() as u64;

    let mut file = Bytes::default();
    // 64 bits, this machine's byte order, version 1; a shared library, version 1, no entry.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    file.0.extend([0x7f, b'E', b'L', b'F', 2, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.half(3).half(MACHINE).word(1).long(0).long(FILE_HEADER_BYTES).long(0).word(0);
    file.half(FILE_HEADER_BYTES as u16).half(SEGMENT_HEADER_BYTES as u16).half(3);
    file.half(64).half(0).half(0);
    for (kind, at, bytes, alignment) in [
        (PT_LOAD, 0, end, 0x10000),
        (PT_DYNAMIC, dynamic_at, dynamic_bytes, 8),
        (PT_GNU_STACK, 0, 0, 16),
    ] {
        file.word(kind).word(READ_WRITE).long(at).long(at).long(at);
        file.long(bytes).long(bytes).long(alignment);
    }
    file.0.extend(symbols.0);
    file.0.extend(hash.0);
    for (tag, value) in [
        (DT_NEEDED, needed.into()),
        (DT_SONAME, name.into()),
        (DT_HASH, hash_at),
        (DT_STRTAB, strings_at),
        (DT_SYMTAB, symbols_at),
        (DT_STRSZ, strings.0.len() as u64),
        (DT_SYMENT, SYMBOL_BYTES),
        (0, 0),
    ] {
        file.long(tag).long(value);
    }
    file.0.extend(strings.0);
    file.0
}

#[cfg(test)]
mod tests {
    use libloading::os::unix::{Library, Symbol};

    extern "C" fn seven() -> i32 {
        7
    }

    #[test]
    fn a_lookup_by_name_finds_ours_first_and_all_others_behind() {
        let seven = seven as *const () as usize;
        let functions = [("drystone_absent", seven), ("getpid", seven)];
        super::load("libdrystone-shim-test.so", "libc.so.6", &functions).unwrap();
        // SAFETY: it is loaded, and has no code.
        let found = unsafe { Library::new("libdrystone-shim-test.so") }.unwrap();
        let call = |name: &str| {
            // SAFETY: these take nothing, and give a number.
            let function: Symbol<extern "C" fn() -> i32> =
                unsafe { found.get(name.as_bytes()) }.unwrap();
            function()
        };
        assert_eq!((call("drystone_absent"), call("getpid")), (7, 7));
        assert_ne!(call("getppid"), 7);
        // SAFETY: only looked for.
        assert!(unsafe { found.get::<extern "C" fn()>(b"drystone_nowhere") }.is_err());
    }
}
