//! Kernels: registered by the programs' own start-up code, launched, never run.
//!
//! A launch takes its place in its stream like any other work, so order and captures are right. A
//! kernel is named by the address of its host function, which also serves as every handle to it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::code::Code;
use crate::context::{device, make_current};
use crate::driver::{self, Out, Stream};
use crate::error::{self, Outcome, done};
use crate::export::{Argument, exports};

/// How long a kernel takes of the device's time: what the driver's settings say.
const KERNEL_NS: u64 = u64::MAX;
pub const THREADS_MAX: u64 = 1024;
pub const BLOCK_SHARED_BYTES: u64 = 232_448;

/// A grid's or a block's dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dimensions {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

impl Argument for Dimensions {}

impl Dimensions {
    fn total(self) -> u64 {
        let area = u64::from(self.x).saturating_mul(u64::from(self.y));
        area.saturating_mul(u64::from(self.z))
    }
}

/// What `<<<...>>>` states, between its two calls.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dimensions,
    block: Dimensions,
    shared_bytes: usize,
    stream: Stream,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone)]
struct Kernel {
    /// Its name, as an address: the names are the programs' own and stay.
    name: usize,
    code: Arc<Code>,
}

/// Kernels by the address of their host function.
static KERNELS: LazyLock<Mutex<HashMap<usize, Kernel>>> = LazyLock::new(Mutex::default);

/// Whether a kernel was registered under this host function.
pub fn is_kernel(host: *const c_void) -> bool {
    kernels().contains_key(&host.addr())
}

/// Its name, as an address.
pub fn name(host: *const c_void) -> Option<usize> {
    kernels().get(&host.addr()).map(|kernel| kernel.name)
}

/// The architecture whose code of a kernel runs on a device, if the code says so.
pub fn architecture(host: *const c_void, device: c_int) -> Option<c_int> {
    kernels().get(&host.addr()).and_then(|kernel| kernel.code.runs_on(device))
}

fn kernels() -> MutexGuard<'static, HashMap<usize, Kernel>> {
    KERNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a program's code for the device. The handle is of what is known of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinary(code: *mut c_void) -> *const Code {
    // SAFETY: the program's start-up code passes its code.
    Arc::into_raw(Arc::new(unsafe { Code::read(code) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_binary: *const Code) {}

/// Forgets a program's code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaUnregisterFatBinary(binary: *const Code) {
    if !binary.is_null() {
        // SAFETY: the handle was made by `__cudaRegisterFatBinary` and is given up.
        drop(unsafe { Arc::from_raw(binary) });
    }
}

/// Prepares a program's code.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(_binary: *const Code) -> c_char {
    1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    binary: *const Code,
    host: *const c_void,
    _device: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dimensions: *mut c_void,
    _grid_dimensions: *mut c_void,
    _warp_size: *mut c_int,
) {
    let code = if binary.is_null() {
        Arc::default()
    } else {
        // SAFETY: the handle was made by `__cudaRegisterFatBinary`, and stays the program's.
        unsafe { Arc::increment_strong_count(binary) };
        // SAFETY: the count is one more.
        unsafe { Arc::from_raw(binary) }
    };
    kernels().insert(host.addr(), Kernel { name: name.expose_provenance(), code });
}

/// Keeps what `<<<...>>>` states until the stub of the kernel asks for it.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dimensions,
    block: Dimensions,
    shared_bytes: usize,
    stream: Stream,
) -> c_uint {
    let configuration = Configuration { grid, block, shared_bytes, stream };
    CONFIGURATIONS.with_borrow_mut(|all| all.push(configuration));
    0
}

/// Refuses what no device of this kind can run.
fn check(kernel: *const c_void, configuration: Configuration) -> Outcome {
    let threads = configuration.block.total();
    let shared = u64::try_from(configuration.shared_bytes).unwrap_or(u64::MAX);
    if !is_kernel(kernel) {
        Err(error::INVALID_DEVICE_FUNCTION)
    } else if threads == 0 || threads > THREADS_MAX || configuration.grid.total() == 0 {
        Err(error::INVALID_CONFIGURATION)
    } else if shared > BLOCK_SHARED_BYTES {
        Err(error::INVALID_VALUE)
    } else {
        Ok(())
    }
}

fn launch(counted: &std::ffi::CStr, kernel: *const c_void, with: Configuration) -> Outcome {
    make_current()?;
    check(kernel, with)?;
    // SAFETY: the name is a string.
    unsafe { driver::simcuda_count(counted.as_ptr()) };
    done(driver::simcuda_launch(device(), with.stream, KERNEL_NS))
}

macro_rules! launches {
    ($($(#[$doc:meta])* $name:ident / $per_thread:ident counted as $counted:literal;)*) => {
        exports! {$(
            $(#[$doc])*
            fn $name / $per_thread (
                kernel: *const c_void, grid: Dimensions, block: Dimensions,
                _arguments: *mut *mut c_void, shared_bytes: usize, stream: Stream
            ) {
                launch($counted, kernel, Configuration { grid, block, shared_bytes, stream })
            }
        )*}
    };
}

launches! {
    cudaLaunchKernel / cudaLaunchKernel_ptsz counted as c"cudaLaunchKernel";
    /// Launches a kernel whose blocks wait for each other.
    cudaLaunchCooperativeKernel / cudaLaunchCooperativeKernel_ptsz
        counted as c"cudaLaunchCooperativeKernel";
    /// Launches a kernel by its handle.
    __cudaLaunchKernel / __cudaLaunchKernel_ptsz counted as c"cudaLaunchKernel";
}

/// What `cudaLaunchKernelExC` is told besides the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfiguration {
    grid: Dimensions,
    block: Dimensions,
    shared_bytes: usize,
    stream: Stream,
    attributes: *mut c_void,
    attribute_count: c_uint,
}

unsafe fn stated(configuration: *const LaunchConfiguration) -> Outcome<Configuration> {
    // SAFETY: the caller passes a configuration or null.
    let stated = unsafe { configuration.as_ref() }.ok_or(error::INVALID_VALUE)?;
    let LaunchConfiguration { grid, block, shared_bytes, stream, .. } = *stated;
    Ok(Configuration { grid, block, shared_bytes, stream })
}

exports! {
    /// Gives back what `<<<...>>>` states.
    fn __cudaPopCallConfiguration(
        grid: Out<Dimensions>, block: Out<Dimensions>, shared_bytes: Out<usize>,
        stream: Out<Stream>
    ) {
        let last = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(error::MISSING_CONFIGURATION)?;
        grid.tell(last.grid)?;
        block.tell(last.block)?;
        shared_bytes.tell(last.shared_bytes)?;
        stream.tell(last.stream)
    }

    fn cudaLaunchKernelExC(
        configuration: *const LaunchConfiguration, kernel: *const c_void,
        _arguments: *mut *mut c_void
    ) {
        // SAFETY: the caller passes a configuration or null.
        launch(c"cudaLaunchKernelExC", kernel, unsafe { stated(configuration) }?)
    }

    /// The variant for programs with a default stream for each thread.
    fn cudaLaunchKernelExC_ptsz(
        configuration: *const LaunchConfiguration, kernel: *const c_void,
        _arguments: *mut *mut c_void
    ) {
        // SAFETY: the caller passes a configuration or null.
        let stated = unsafe { stated(configuration) }?;
        let with = Configuration { stream: stated.stream.per_thread(), ..stated };
        launch(c"cudaLaunchKernelExC", kernel, with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_configuration_has_the_layout_of_cuda() {
        assert_eq!(size_of::<LaunchConfiguration>(), 56);
        assert_eq!(std::mem::offset_of!(LaunchConfiguration, stream), 32);
    }
}
