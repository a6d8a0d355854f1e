//! [`install`]: from then on cudarc's own memory, in a program as it is, comes from Drystone.
//!
//! cudarc makes a `CudaSlice` by `cuMemAllocAsync` and frees it by `cuMemFreeAsync`. `hooks` has
//! functions of these names. Modules, bottom first: `real` (the driver's), `shim` (how a lookup
//! finds ours), `served` (who is served from where), `hooks`.

mod hooks;
mod real;
mod served;
mod shim;

use std::{io, ptr};

use drystone::{Allocator, Backend, Options};
use drystone_cuda::OpenError;

use hooks::{PROBE, Probe, SERVED};
use real::{LIBRARY, Real};
use served::Served;

/// Why cudarc's memory still comes from the driver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The options ask for another backend than virtual memory, behind cudarc's own calls.
    #[error("only backend vmm can serve cudarc's calls: the others make the same calls themselves")]
    OtherBackend,
    /// There is no driver, or it lacks a function.
    #[error("the CUDA driver cannot be used")]
    NoDriver(#[source] libloading::Error),
    /// The driver does not start.
    #[error(transparent)]
    Open(#[from] OpenError),
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
/// Served is stream-ordered memory of primary contexts, on devices with virtual memory. A stream
/// whose creation cudarc asked for costs the driver no question; about any other it is asked who it
/// is. While a stream is captured, memory is the driver's, which makes it the graph's; what is
/// older and freed then is never reused. Memory from a pool that the program names, or by
/// `cuMemAlloc`, stays the driver's. Captures and streams that are begun or ended past cudarc, by
/// the CUDA runtime say, are not seen. `cuDevicePrimaryCtxReset` takes the memory from under the
/// allocator, as from under any other.
///
/// # Errors
/// cudarc calls the driver all the same, and why. Nothing has changed for the program.
pub fn install(options: &Options) -> Result<(), InstallError> {
    if !matches!(options.backend, None | Some(Backend::Vmm)) {
        return Err(InstallError::OtherBackend);
    }
    if SERVED.get().is_some() {
        return Err(InstallError::Twice);
    }
    let real = Real::load().map_err(InstallError::NoDriver)?;
    shim::load("libcuda.so", LIBRARY, &hooks::table()).map_err(InstallError::Shim)?;
    if !is_reached() {
        return Err(InstallError::TooLate);
    }
    let devices = drystone_cuda::device_count()?;
    let served = Served::new(real, *options, devices);
    SERVED.set(served).map_err(|_| InstallError::Twice)
}

/// The allocator that serves a device since [`install`]: statistics, trimming, limits, callbacks.
/// `None`: nothing is installed, or the device cannot be served.
pub fn installed(ordinal: usize) -> Option<Allocator> {
    SERVED.get()?.heap(ordinal).cloned()
}

/// Whether a call of cudarc's comes to us.
fn is_reached() -> bool {
    PROBE.set(Probe::Asked);
    // SAFETY: frees nothing, if it should reach the driver.
    let _ = unsafe { cudarc::driver::sys::cuMemFreeAsync(0, ptr::null_mut()) };
    PROBE.replace(Probe::Idle) == Probe::Reached
}
