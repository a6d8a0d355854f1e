//! [`Setup`]: a backend and a device to run a test on, and which of them every test runs on. Where
//! a setup's device is not there, its tests say so once and pass.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};

use drystone::{Backend, Options, Prefer};
use drystone_sim::{Harsh, SimConfig, SimDevice};

use crate::device::TestDevice;
use crate::gpu;
use crate::program::Program;
use crate::sim::{MIB, watched};
use crate::simcuda;

/// A backend on a device.
#[derive(Clone, Copy)]
pub struct Setup {
    pub backend: Backend,
    pub granule_bytes: u64,
    pub device: fn() -> Arc<dyn TestDevice>,
    /// Whether free memory is remapped.
    pub remaps: bool,
    /// Whether there is such a device, or why not.
    pub presence: fn() -> Result<(), &'static str>,
}

pub const VMM_2MIB: Setup = Setup {
    backend: Backend::Vmm,
    granule_bytes: 2 * MIB,
    device: prompt_device,
    remaps: true,
    presence: || Ok(()),
};
/// Memory stays where it was created: then a kernel may begin before the one before it has ended.
pub const VMM_STILL: Setup = Setup { device: early_device, remaps: false, ..VMM_2MIB };
pub const VMM_8MIB: Setup = Setup { granule_bytes: 8 * MIB, ..VMM_2MIB };
pub const MALLOC: Setup = Setup { backend: Backend::Malloc, ..VMM_2MIB };
pub const ASYNC: Setup = Setup { backend: Backend::Async, ..VMM_2MIB };
pub const VMM_LATE: Setup = Setup { device: late_device, ..VMM_2MIB };
pub const MALLOC_LATE: Setup = Setup { device: late_device, ..MALLOC };
pub const ASYNC_LATE: Setup = Setup { device: late_device, ..ASYNC };

/// Through cudarc, on the simulated `libcuda`.
pub const CUDA_VMM: Setup =
    Setup { device: simcuda::prompt_device, presence: simcuda::presence, ..VMM_2MIB };
pub const CUDA_MALLOC: Setup = Setup { backend: Backend::Malloc, ..CUDA_VMM };
pub const CUDA_ASYNC: Setup = Setup { backend: Backend::Async, ..CUDA_VMM };
pub const CUDA_VMM_LATE: Setup = Setup { device: simcuda::late_device, ..CUDA_VMM };
pub const CUDA_MALLOC_LATE: Setup = Setup { device: simcuda::late_device, ..CUDA_MALLOC };
pub const CUDA_ASYNC_LATE: Setup = Setup { device: simcuda::late_device, ..CUDA_ASYNC };
pub const CUDA_SOURCES: [Setup; 3] = [CUDA_VMM, CUDA_MALLOC, CUDA_ASYNC];

/// Through cudarc, on a GPU.
pub const GPU_VMM: Setup = Setup { device: gpu::device, presence: gpu::presence, ..VMM_2MIB };
pub const GPU_MALLOC: Setup = Setup { backend: Backend::Malloc, ..GPU_VMM };
pub const GPU_ASYNC: Setup = Setup { backend: Backend::Async, ..GPU_VMM };

/// The sources, on a simulated device that answers at once.
pub const SOURCES: [Setup; 4] = [VMM_2MIB, VMM_8MIB, MALLOC, ASYNC];

fn prompt_device() -> Arc<dyn TestDevice> {
    Arc::new(SimDevice::new(watched()))
}

fn early_device() -> Arc<dyn TestDevice> {
    Arc::new(SimDevice::new(SimConfig { harsh: Harsh::ALL, ..watched() }))
}

/// Events are late by 20 us, driver calls take their time, kernels run for up to 50 us.
fn late_device() -> Arc<dyn TestDevice> {
    Arc::new(SimDevice::new(SimConfig {
        event_latency_ns: 20_000,
        calls_take_time: true,
        check_kernel_ns: 50_000,
        ..watched()
    }))
}

/// Says once why tests are skipped, past the harness, which shows what failing tests say only.
pub fn skip(reason: &'static str) {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap().insert(reason) {
        let line = format!("skipped: {reason}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

impl Setup {
    /// Runs a test, if there is a device to run it on.
    pub fn run(&self, test: impl FnOnce(&Setup)) {
        match (self.presence)() {
            Ok(()) => test(self),
            Err(reason) => skip(reason),
        }
    }

    pub fn options(&self) -> Options {
        // What serves a request is told exactly where memory is what counts.
        let mut options = Options::default().with_prefer(Prefer::Memory);
        options.remaps = self.remaps;
        options.with_backend(self.backend).with_granule_bytes(self.granule_bytes)
    }

    pub fn program(&self) -> Program {
        self.program_with(self.options())
    }

    pub fn program_with_limit(&self, limit_bytes: u64) -> Program {
        self.program_with(self.options().with_limit_bytes(limit_bytes))
    }

    pub fn program_with(&self, options: Options) -> Program {
        Program::new((self.device)(), options)
    }

    /// What the first small block takes from the device.
    pub fn small_segment_bytes(&self) -> u64 {
        match self.backend {
            Backend::Vmm => self.granule_bytes,
            Backend::Malloc => 2 * MIB,
            _ => self.unit_bytes(),
        }
    }

    /// A size of which the backend takes whole multiples from the device for large blocks. Every
    /// other backend's divides the driver's pools'.
    pub fn unit_bytes(&self) -> u64 {
        match self.backend {
            Backend::Vmm => self.granule_bytes,
            Backend::Malloc => 2 * MIB,
            _ => 32 * MIB,
        }
    }

    /// Whether freed blocks are kept and served again without a driver call, placed by the rules of
    /// this allocator. Where they are not, the driver does that, and each free is a call.
    pub fn is_caching(&self) -> bool {
        self.backend != Backend::Async
    }

    /// Driver calls that a free without uses makes.
    pub fn calls_of_a_free(&self) -> u64 {
        u64::from(!self.is_caching())
    }

    pub fn is_vmm(&self) -> bool {
        self.backend == Backend::Vmm
    }
}

/// Runs functions of a `&Setup` as tests, on every setup.
macro_rules! on_every_setup {
    ($($test:ident),* $(,)?) => {
        crate::setup::on_every_setup! { @($($test)*)
            vmm_2mib: VMM_2MIB, vmm_8mib: VMM_8MIB, vmm_still: VMM_STILL,
            malloc: MALLOC, pooled: ASYNC,
            vmm_late: VMM_LATE, malloc_late: MALLOC_LATE, pooled_late: ASYNC_LATE,
            cuda_vmm: CUDA_VMM, cuda_malloc: CUDA_MALLOC, cuda_pooled: CUDA_ASYNC,
            cuda_vmm_late: CUDA_VMM_LATE, cuda_malloc_late: CUDA_MALLOC_LATE,
            cuda_pooled_late: CUDA_ASYNC_LATE,
            gpu_vmm: GPU_VMM, gpu_malloc: GPU_MALLOC, gpu_pooled: GPU_ASYNC,
        }
    };
    (@$tests:tt $($module:ident: $setup:ident),* $(,)?) => {
        $(crate::setup::on_every_setup! { @@$module $setup $tests })*
    };
    (@@$module:ident $setup:ident ($($test:ident)*)) => {
        mod $module { $(#[test] fn $test() { crate::setup::$setup.run(super::$test); })* }
    };
}
pub(crate) use on_every_setup;
