//! [`TestDevice`] for the simulated device, with the oracle on and every illegal call a violation.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use drystone::driver::{CaptureMode, Driver, Stream};
use drystone_sim::{FaultPlan, SimConfig, SimDevice};

use crate::device::{Fault, FaultyDevice, TestDevice};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// What the tests start from: 4 GiB, watched, strict, with events that are ready at once.
pub fn watched() -> SimConfig {
    SimConfig { total_bytes: 4 * GIB, oracle: true, strict: true, ..SimConfig::default() }
}

impl TestDevice for SimDevice {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(self.clone())
    }

    fn create_stream(&self) -> Stream {
        SimDevice::create_stream(self)
    }

    fn destroy_stream(&self, stream: Stream) {
        SimDevice::destroy_stream(self, stream).unwrap();
    }

    fn work(&self, stream: Stream, duration_us: u64) {
        self.launch(stream, duration_us * 1000).unwrap();
    }

    fn pass(&self, duration_us: u64) {
        self.advance_by(duration_us * 1000);
    }

    fn begin_capture(&self, stream: Stream, mode: CaptureMode) {
        SimDevice::begin_capture(self, stream, mode).unwrap();
    }

    fn end_capture(&self, stream: Stream) -> bool {
        SimDevice::end_capture(self, stream).is_ok()
    }

    fn end_graphs(&self) {
        SimDevice::end_graphs(self);
    }

    fn calls(&self) -> u64 {
        SimDevice::calls(self)
    }

    fn handed_out(&self, address: u64, bytes: u64, stream: Stream) {
        self.check_alloc(address, bytes, stream);
    }

    fn used(&self, address: u64, stream: Stream) {
        self.check_use(address, stream);
    }

    fn taken_back(&self, address: u64) {
        self.check_free(address);
    }

    fn verdict(&self) -> Result<(), String> {
        match self.violations().first() {
            None => Ok(()),
            Some(first) => {
                Err(format!("{} violations, the first: {first}", self.violation_count()))
            }
        }
    }

    fn emptiness(&self) -> Result<(), String> {
        let left = self.live_objects();
        let mut bytes = self.physical_bytes();
        // A process that another test starts has a copy of every descriptor until it runs its
        // program: memory that was given to others is kept as long.
        for _ in 0..1000 {
            if !left.is_empty() || bytes == 0 {
                break;
            }
            thread::sleep(Duration::from_millis(1));
            bytes = self.physical_bytes();
        }
        if left.is_empty() && bytes == 0 { Ok(()) } else { Err(format!("{left:?}, {bytes} bytes")) }
    }
}

impl FaultyDevice for SimDevice {
    fn plan(&self, &Fault { function, call, nth, mode, code }: &Fault) {
        let call = call.unwrap_or_else(|| panic!("{function} stands for no call"));
        self.install_fault(FaultPlan { call, nth, mode, code });
    }

    fn clear_faults(&self) {
        SimDevice::clear_faults(self);
    }

    fn faults_fired(&self) -> u64 {
        SimDevice::faults_fired(self)
    }
}
