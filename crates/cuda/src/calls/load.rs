//! Finding the driver: its library, its version, its functions.
//!
//! The CUDA runtime, PyTorch and NCCL use `libcuda.so.1`, so that goes first: where `libcuda.so` is
//! another file, it is another driver, to which their memory and streams mean nothing. A stub is
//! passed over, and a second driver in one process refused. The library is never unloaded.

use std::sync::OnceLock;

use libloading::Library;

use super::Cuda;
use super::table::{Table, address};
use crate::failure::Failure;
use crate::open_error::OpenError;
use crate::process;

#[cfg(not(windows))]
const LIBRARIES: &[&str] = &["libcuda.so.1", "libcuda.so"];
#[cfg(windows)]
const LIBRARIES: &[&str] = &["nvcuda.dll"];

/// The first with `cuStreamGetId`: without identities, streams cannot be told from later ones with
/// the same handle.
const NEEDED_VERSION: u32 = 12_000;

const REQUIRED: &[&str] = &[
    "cuInit",
    "cuGetErrorName",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRetain",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuCtxEnablePeerAccess",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuStreamGetId",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
];

const VIRTUAL_MEMORY: &[&str] = &[
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
];

const MEMORY_POOLS: &[&str] = &[
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemPoolSetAccess",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
];

impl Cuda {
    /// The driver, found and initialised at the first call. One that failed is tried again.
    pub(crate) fn load() -> Result<&'static Cuda, OpenError> {
        static LOADED: OnceLock<Cuda> = OnceLock::new();
        process::check().map_err(|_| ended())?;
        if let Some(cuda) = LOADED.get() {
            return Ok(cuda);
        }
        process::watch_fork();
        let cuda = find(LIBRARIES)?;
        Ok(LOADED.get_or_init(|| cuda))
    }

    fn initialize(&self) -> Result<(), OpenError> {
        // SAFETY: flags must be 0.
        let done = self.check(unsafe { (self.table.cuInit)(0) });
        process::watch_exit();
        done.map_err(|failure| failure.at_open("cuInit"))
    }
}

impl Failure {
    /// As an error of opening a device.
    pub(crate) fn at_open(self, call: &'static str) -> OpenError {
        match self.number {
            Failure::STUB_LIBRARY => OpenError::StubLibrary,
            Failure::NO_DEVICE => OpenError::NoDevice,
            number => OpenError::Driver { call, name: self.name, number },
        }
    }
}

/// Why `process::check` said no.
fn ended() -> OpenError {
    match process::check() {
        Err(drystone_driver::ErrorCode::NotInitialized) => OpenError::Forked,
        _ => OpenError::Exiting,
    }
}

/// The first driver by these names that starts. A stub is passed over.
fn find(names: &[&str]) -> Result<Cuda, OpenError> {
    let (mut reason, mut stub) = (String::new(), None);
    for name in names {
        // SAFETY: loading NVIDIA's driver runs its initialisers, which any CUDA program does.
        match unsafe { Library::new(*name) } {
            Ok(library) => match start(library, names) {
                Err(error @ OpenError::StubLibrary) => stub = Some(error),
                result => return result,
            },
            Err(error) => reason = error.to_string(),
        }
    }
    Err(stub.unwrap_or_else(|| OpenError::NoLibrary { tried: names.join(", "), reason }))
}

/// A complete driver that is new enough, initialised, and the only one of the process.
fn start(library: Library, names: &[&str]) -> Result<Cuda, OpenError> {
    let has = |name: &&&str| has(&library, name);
    if !has(&&"cuDriverGetVersion") {
        return Err(OpenError::MissingSymbol { name: "cuDriverGetVersion" });
    }
    let table = Table::of(&library);
    let found = version(&table)?;
    if found < NEEDED_VERSION {
        return Err(OpenError::DriverTooOld { found, needed: NEEDED_VERSION });
    }
    if let Some(name) = REQUIRED.iter().find(|name| !has(name)) {
        return Err(OpenError::MissingSymbol { name });
    }
    let has_virtual_memory = VIRTUAL_MEMORY.iter().all(|name| has(&name));
    let has_memory_pools = MEMORY_POOLS.iter().all(|name| has(&name));
    if let Some(name) = names.iter().find(|name| is_other(name, &library)) {
        return Err(OpenError::TwoDrivers { other: (*name).to_owned() });
    }
    let cuda =
        Cuda { table, _library: library, version: found, has_virtual_memory, has_memory_pools };
    match cuda.initialize() {
        Ok(()) => Ok(cuda),
        Err(OpenError::StubLibrary) => Err(OpenError::StubLibrary),
        Err(error) => {
            // The error's name is in the library.
            std::mem::forget(cuda);
            Err(error)
        }
    }
}

fn has(library: &Library, name: &str) -> bool {
    address(library, name).is_some()
}

/// Whether a library by this name is loaded already, and is another driver than this one: memory
/// and streams of the one are unknown to the other.
#[cfg(unix)]
fn is_other(name: &str, library: &Library) -> bool {
    use libloading::os::unix;
    // SAFETY: nothing is loaded, so nothing runs.
    let loaded = unsafe { unix::Library::open(Some(name), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let Ok(loaded) = loaded.map(Library::from) else { return false };
    let start = |library: &Library| address(library, "cuInit\0");
    start(&loaded).is_some_and(|other| Some(other) != start(library))
}

#[cfg(not(unix))]
fn is_other(_: &str, _: &Library) -> bool {
    false
}

/// The newest CUDA that the driver offers, as it writes it: 12040 is 12.4.
fn version(table: &Table) -> Result<u32, OpenError> {
    let mut version = 0;
    // SAFETY: writes one number, and needs no initialised driver.
    match unsafe { (table.cuDriverGetVersion)(&raw mut version) } {
        0 => Ok(version.cast_unsigned()),
        number => Err(Failure { number, name: "" }.at_open("cuDriverGetVersion")),
    }
}

#[cfg(test)]
mod tests {
    use super::{find, has};
    use crate::failure::Failure;
    use crate::open_error::OpenError;

    #[test]
    fn b35_a_machine_without_a_driver_gets_an_error_that_says_what_to_do() {
        let Err(error) = find(&["libdrystone-none.so", "libdrystone-none.so.1"]) else {
            panic!("a library of that name exists");
        };
        let text = error.to_string();
        assert!(matches!(error, OpenError::NoLibrary { .. }));
        assert!(text.contains("libdrystone-none.so, libdrystone-none.so.1"), "{text}");
        assert!(text.contains("install the NVIDIA driver"), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn b35_a_library_that_is_no_driver_names_the_missing_function() {
        let Err(error) = find(&["libc.so.6"]) else { panic!("the C library is a CUDA driver") };
        assert_eq!(error, OpenError::MissingSymbol { name: "cuDriverGetVersion" });
    }

    #[test]
    fn what_a_driver_says_when_it_cannot_start_is_told_apart() {
        let error = |number| Failure { number, name: "NAME" }.at_open("cuInit");
        assert_eq!(error(34), OpenError::StubLibrary);
        assert_eq!(error(100), OpenError::NoDevice);
        assert_eq!(error(803), OpenError::Driver { call: "cuInit", name: "NAME", number: 803 });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn symbols_are_found_where_they_are() {
        // SAFETY: the C library is there already.
        let library = unsafe { super::Library::new("libc.so.6") }.unwrap();
        assert!(has(&library, "malloc"));
        assert!(!has(&library, "cuInit"));
    }
}
