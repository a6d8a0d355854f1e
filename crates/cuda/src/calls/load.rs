//! Finding the driver: its library, its version, its functions, before cudarc is called.
//!
//! The library is looked for by the names and in the order that cudarc uses, so that what is
//! checked here is what cudarc calls. It is never unloaded.

use std::ffi::c_int;
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;

use super::{Cuda, check};
use crate::failure::Failure;
use crate::open_error::OpenError;
use crate::process;

#[cfg(not(windows))]
const LIBRARIES: &[&str] = &["libcuda.so", "libcuda.so.1"];
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
        cuda.initialize()?;
        Ok(LOADED.get_or_init(|| cuda))
    }

    fn initialize(&self) -> Result<(), OpenError> {
        // SAFETY: flags must be 0.
        let done = check(unsafe { sys::cuInit(0) });
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

/// A complete driver that is new enough; not initialised yet.
fn find(names: &[&str]) -> Result<Cuda, OpenError> {
    let library = open(names)?;
    let found = version(&library)?;
    if found < NEEDED_VERSION {
        return Err(OpenError::DriverTooOld { found, needed: NEEDED_VERSION });
    }
    if let Some(name) = REQUIRED.iter().find(|name| !has(&library, name)) {
        return Err(OpenError::MissingSymbol { name });
    }
    let has_virtual_memory = VIRTUAL_MEMORY.iter().all(|name| has(&library, name));
    let has_memory_pools = MEMORY_POOLS.iter().all(|name| has(&library, name));
    Ok(Cuda { library, has_virtual_memory, has_memory_pools })
}

fn open(names: &[&str]) -> Result<Library, OpenError> {
    let mut reason = String::new();
    for name in names {
        // SAFETY: loading NVIDIA's driver runs its initialisers, which any CUDA program does.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(OpenError::NoLibrary { tried: names.join(", "), reason })
}

fn has(library: &Library, name: &str) -> bool {
    // SAFETY: the symbol is only looked for, not used.
    unsafe { library.get::<*const ()>(name) }.is_ok()
}

/// The newest CUDA that the driver offers, as it writes it: 12040 is 12.4.
fn version(library: &Library) -> Result<u32, OpenError> {
    type Get = unsafe extern "C" fn(*mut c_int) -> u32;
    let missing = OpenError::MissingSymbol { name: "cuDriverGetVersion" };
    // SAFETY: the function has this signature.
    let get = unsafe { library.get::<Get>("cuDriverGetVersion") }.map_err(|_| missing)?;
    let mut version = 0;
    // SAFETY: writes one number, and needs no initialised driver.
    match unsafe { get(&raw mut version) } {
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
        let library = super::open(&["libc.so.6"]).unwrap();
        assert!(has(&library, "malloc"));
        assert!(!has(&library, "cuInit"));
    }
}
