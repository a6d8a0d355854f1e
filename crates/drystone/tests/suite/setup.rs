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
pub const VMM_LATE: Setup = Setup { device: late_device, ..VMM_2MIB };
pub const MALLOC_LATE: Setup = Setup { device: late_device, ..MALLOC };

/// The three sources, on a simulated device that answers at once.
pub const SOURCES: [Setup; 3] = [VMM_2MIB, VMM_8MIB, MALLOC];

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
        if self.is_vmm() { self.granule_bytes } else { 2 * MIB }
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
        mod malloc_late { $(#[test] fn $test() { super::$test(&crate::setup::MALLOC_LATE); })* }
    };
}
pub(crate) use on_every_setup;
