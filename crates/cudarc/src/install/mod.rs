//! [`install`]: from then on cudarc's own memory, in a program as it is, comes from Drystone.
//!
//! cudarc makes a `CudaSlice` by `cuMemAllocAsync` and frees it by `cuMemFreeAsync`. What serves
//! these, and all that belongs to them, is `drystone-interpose`: here cudarc is led to it. A
//! program that is linked with the driver takes its functions, since they come first; one that
//! looks them up when it runs finds them by `shim`.

mod shim;

use std::{io, ptr};

use drystone::{Allocator, Options};
use drystone_interpose::{self as interpose, driver::LIBRARY};
use drystone_process::registry;
use libloading::os::unix::Library;

/// Why cudarc's memory still comes from the driver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// There is no driver.
    #[error("the CUDA driver cannot be used")]
    NoDriver(#[source] libloading::Error),
    /// The library that stands before the driver's could not be loaded.
    #[error("the library that stands before libcuda.so could not be loaded")]
    Shim(#[source] io::Error),
    /// cudarc calls the driver past it.
    #[error(
        "cudarc has found the driver already: call install before the program first uses CUDA; \
         and a program that is linked with libcuda has to be linked with drystone-cudarc first"
    )]
    TooLate,
    /// It was installed before.
    #[error("installed already; options of later calls would change nothing")]
    Twice,
}

/// From now on every `CudaSlice` of this process, in crates that know nothing of it, is Drystone's
/// memory. To be called first, before anything of CUDA.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
///
/// drystone_cudarc::install(&drystone::Options::default())?;
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let slice = stream.alloc_zeros::<f32>(1 << 20)?; // from Drystone
/// let held = drystone_cudarc::installed(0).map(|allocator| allocator.stats().all.reserved_bytes);
/// # drop((slice, held));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Served is stream-ordered memory of primary contexts: what a library that is preloaded serves, by
/// the same functions, so what programs see of it is the same (`docs/use/preload.md` tells). A
/// stream whose creation cudarc asked for costs the driver no question; about any other it is asked
/// who it is. In a capture memory is the driver's, which makes it the graph's. Streams and captures
/// that come and go past cudarc, by the CUDA runtime say, are not seen.
///
/// Whatever cudarc asks the driver for and is refused for lack of memory (plain memory, modules,
/// launches, graphs) is tried again once Drystone has given back what it holds unused. Libraries
/// that look the driver up themselves, as cuBLAS and NCCL do, are not helped so: that takes
/// preloading.
///
/// # Errors
/// cudarc calls the driver all the same, and why. Nothing has changed for the program.
pub fn install(options: &Options) -> Result<(), InstallError> {
    if interpose::is_serving() {
        return Err(InstallError::Twice);
    }
    // SAFETY: loading the driver runs its initialisers, as in any CUDA program.
    let driver = unsafe { Library::new(LIBRARY) }.map_err(InstallError::NoDriver)?;
    // Never unloaded, as cudarc does not.
    std::mem::forget(driver);
    let functions: Vec<_> =
        interpose::functions().map(|hook| (hook.name, hook.address as usize)).collect();
    shim::load("libcuda.so", LIBRARY, &functions).map_err(InstallError::Shim)?;
    // SAFETY: frees nothing, where it reaches the driver.
    let probe = || _ = unsafe { cudarc::driver::sys::cuMemFreeAsync(0, ptr::null_mut()) };
    if !interpose::is_reached_by(probe) {
        return Err(InstallError::TooLate);
    }
    registry::configure(registry::ALL, Some(*options)).map_err(|_| InstallError::Twice)?;
    interpose::serve();
    Ok(())
}

/// The allocator that serves a device since [`install`]: statistics, trimming, limits, callbacks.
/// `None`: nothing is installed, or the device cannot be served. After a reset of the device it is
/// another.
pub fn installed(ordinal: usize) -> Option<Allocator> {
    interpose::allocator(ordinal)
}
