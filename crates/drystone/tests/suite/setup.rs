//! [`Setup`]: a source and a device to run a test on. A real device joins the suite with a constant
//! here and a line in [`on_every_setup`].

use std::sync::Arc;

use drystone::{Options, Source};
use drystone_sim::{SimConfig, SimDevice};

use crate::device::TestDevice;
use crate::program::Program;
use crate::sim::{MIB, watched};

/// A source on a device.
#[derive(Clone, Copy)]
pub struct Setup {
    pub source: Source,
    pub granule_bytes: u64,
    pub device: fn() -> Arc<dyn TestDevice>,
}

pub const VMM_2MIB: Setup =
    Setup { source: Source::Vmm, granule_bytes: 2 * MIB, device: prompt_device };
pub const VMM_8MIB: Setup = Setup { granule_bytes: 8 * MIB, ..VMM_2MIB };
pub const MALLOC: Setup = Setup { source: Source::Malloc, ..VMM_2MIB };
pub const ASYNC: Setup = Setup { source: Source::Async, ..VMM_2MIB };
pub const VMM_LATE: Setup = Setup { device: late_device, ..VMM_2MIB };
pub const MALLOC_LATE: Setup = Setup { device: late_device, ..MALLOC };

pub const ASYNC_LATE: Setup = Setup { device: late_device, ..ASYNC };

/// The sources, on a simulated device that answers at once.
pub const SOURCES: [Setup; 4] = [VMM_2MIB, VMM_8MIB, MALLOC, ASYNC];

fn prompt_device() -> Arc<dyn TestDevice> {
    Arc::new(SimDevice::new(watched()))
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

impl Setup {
    pub fn options(&self) -> Options {
        Options {
            source: Some(self.source),
            granule_bytes: self.granule_bytes,
            ..Options::default()
        }
    }

    pub fn program(&self) -> Program {
        self.program_with(self.options())
    }

    pub fn program_with_limit(&self, limit_bytes: u64) -> Program {
        self.program_with(Options { limit_bytes: Some(limit_bytes), ..self.options() })
    }

    pub fn program_with(&self, options: Options) -> Program {
        Program::new((self.device)(), options)
    }

    /// What the first small block takes from the device.
    pub fn small_segment_bytes(&self) -> u64 {
        match self.source {
            Source::Vmm => self.granule_bytes,
            Source::Malloc => 2 * MIB,
            Source::Async => self.unit_bytes(),
        }
    }

    /// A size of which the source takes whole multiples from the device for large blocks. Every
    /// other source's divides the driver's pools'.
    pub fn unit_bytes(&self) -> u64 {
        match self.source {
            Source::Vmm => self.granule_bytes,
            Source::Malloc => 2 * MIB,
            Source::Async => 32 * MIB,
        }
    }

    /// Whether freed blocks are kept and served again without a driver call, placed by the rules of
    /// this allocator. Where they are not, the driver does that, and each free is a call.
    pub fn is_caching(&self) -> bool {
        self.source != Source::Async
    }

    /// Driver calls that a free without uses makes.
    pub fn calls_of_a_free(&self) -> u64 {
        u64::from(!self.is_caching())
    }

    pub fn is_vmm(&self) -> bool {
        self.source == Source::Vmm
    }
}

/// Runs functions of a `&Setup` as tests, on every setup.
macro_rules! on_every_setup {
    ($($test:ident),* $(,)?) => {
        mod vmm_2mib { $(#[test] fn $test() { super::$test(&crate::setup::VMM_2MIB); })* }
        mod vmm_8mib { $(#[test] fn $test() { super::$test(&crate::setup::VMM_8MIB); })* }
        mod vmm_late { $(#[test] fn $test() { super::$test(&crate::setup::VMM_LATE); })* }
        mod malloc { $(#[test] fn $test() { super::$test(&crate::setup::MALLOC); })* }
        mod pooled { $(#[test] fn $test() { super::$test(&crate::setup::ASYNC); })* }
        mod pooled_late { $(#[test] fn $test() { super::$test(&crate::setup::ASYNC_LATE); })* }
        mod malloc_late { $(#[test] fn $test() { super::$test(&crate::setup::MALLOC_LATE); })* }
    };
}
pub(crate) use on_every_setup;
