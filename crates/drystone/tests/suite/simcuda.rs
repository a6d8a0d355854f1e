//! [`TestDevice`] for `CudaDevice`, through cudarc, on the simulated `libcuda.so.1`, with its
//! oracle on. Skipped where the process has another one, or none.
//!
//! All tests share the library. So each test device is a device of it under a number of its own,
//! made fresh and with its own clock: none sees what happens on another.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, LazyLock, Mutex};

use drystone::driver::{CaptureMode, Driver, ErrorCode, Stream};
use drystone_cuda::{CudaDevice, CudaOptions};
use drystone_sim::FaultMode;
use drystone_testkit::{Gpu, SimCuda};

use crate::device::{Fault, FaultyDevice, Made, TestDevice};

/// As many as the library can have.
const DEVICES: u32 = 64;
/// What the tests start from, as on the simulated device.
const WATCHED: &str = "memory:4GiB,oracle:true,own_clock:true";

/// The library, if it is the simulated one.
static LIBRARY: LazyLock<Option<SimCuda>> = LazyLock::new(|| match SimCuda::find() {
    Ok(library) => {
        library.configure(&format!("devices:{DEVICES}")).unwrap();
        Some(library)
    }
    Err(error) => {
        let is_promised = std::env::var_os("DRYSTONE_SIMCUDA").is_some();
        assert!(!is_promised, "DRYSTONE_SIMCUDA is set, but: {error}");
        None
    }
});

/// Numbers of devices that no test has.
static SPARE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

pub fn presence() -> Result<(), &'static str> {
    match *LIBRARY {
        Some(_) => Ok(()),
        None => Err("no simulated libcuda.so.1: `cargo xtask test` builds it and runs on it"),
    }
}

pub fn is_simulated() -> bool {
    LIBRARY.is_some()
}

/// A device of the simulated library.
pub struct CudaOnSim {
    pub library: &'static SimCuda,
    pub ordinal: u32,
    pub gpu: Gpu,
    driver: Arc<CudaDevice>,
    made: Made,
}

pub fn prompt_device() -> Arc<dyn TestDevice> {
    device_with("")
}

/// As the late simulated device.
pub fn late_device() -> Arc<dyn TestDevice> {
    device_with("event_latency_us:20,calls_take_time:true,check_kernel_us:50")
}

/// A fresh device with these settings on top of the usual ones.
pub fn device_with(conf: &str) -> Arc<CudaOnSim> {
    let library = LIBRARY.as_ref().unwrap();
    let ordinal = {
        static NUMBERED: Mutex<u32> = Mutex::new(0);
        let spare = SPARE.lock().unwrap().pop();
        spare.unwrap_or_else(|| {
            let mut numbered = NUMBERED.lock().unwrap();
            *numbered += 1;
            *numbered - 1
        })
    };
    assert!(ordinal < DEVICES, "more than {DEVICES} devices at one time");
    library.reset_device(ordinal, &format!("{WATCHED},{conf}")).unwrap();
    let driver = Arc::new(CudaDevice::open(ordinal, &CudaOptions::default()).unwrap());
    Arc::new(CudaOnSim {
        library,
        ordinal,
        gpu: Gpu::open(ordinal).unwrap(),
        driver,
        made: Made::default(),
    })
}

impl Drop for CudaOnSim {
    fn drop(&mut self) {
        self.library.clear_faults(self.ordinal).unwrap();
        SPARE.lock().unwrap().push(self.ordinal);
    }
}

fn handle(stream: Stream) -> *mut c_void {
    with_exposed_provenance_mut(stream.0 as usize)
}

impl TestDevice for CudaOnSim {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::clone(&self.driver) as Arc<dyn Driver>
    }

    fn create_stream(&self) -> Stream {
        self.made.create_stream(&self.gpu)
    }

    fn destroy_stream(&self, stream: Stream) {
        self.made.destroy_stream(&self.gpu, stream);
    }

    fn work(&self, stream: Stream, duration_us: u64) {
        self.library.launch(self.ordinal, handle(stream), duration_us * 1000).unwrap();
    }

    fn pass(&self, duration_us: u64) {
        self.library.advance_ns(self.ordinal, duration_us * 1000).unwrap();
    }

    fn begin_capture(&self, stream: Stream, mode: CaptureMode) {
        self.gpu.begin_capture(stream, mode).unwrap();
    }

    fn end_capture(&self, stream: Stream) -> bool {
        self.made.end_capture(&self.gpu, stream)
    }

    fn end_graphs(&self) {
        self.made.end_graphs(&self.gpu);
    }

    fn calls(&self) -> u64 {
        self.library.calls(self.ordinal)
    }

    fn handed_out(&self, address: u64, bytes: u64, stream: Stream) {
        self.library.check_alloc(self.ordinal, address, bytes, handle(stream)).unwrap();
    }

    fn used(&self, address: u64, stream: Stream) {
        self.library.check_use(self.ordinal, address, handle(stream)).unwrap();
    }

    fn taken_back(&self, address: u64) {
        self.library.check_free(self.ordinal, address).unwrap();
    }

    fn verdict(&self) -> Result<(), String> {
        match self.library.violations(self.ordinal).first() {
            None => Ok(()),
            Some(first) => {
                let count = self.library.violation_count(self.ordinal);
                Err(format!("{count} violations, the first: {first}"))
            }
        }
    }

    /// The program's own streams go first.
    fn emptiness(&self) -> Result<(), String> {
        self.made.destroy_streams(&self.gpu);
        // The device keeps a stream for copies, once it was found out whether it can move memory.
        let left = self.library.live_objects(self.ordinal).replace("1 streams\n", "");
        let bytes = self.library.physical_bytes(self.ordinal);
        if left.is_empty() && bytes == 0 { Ok(()) } else { Err(format!("{left}{bytes} bytes")) }
    }
}

/// CUDA's number of an error.
fn number(code: ErrorCode) -> i32 {
    match code {
        ErrorCode::OutOfMemory => 2,
        ErrorCode::InvalidValue => 1,
        ErrorCode::InvalidHandle => 400,
        ErrorCode::CapturedEvent => 907,
        ErrorCode::Deinitialized => 4,
        ErrorCode::Other(number) => number,
        code => panic!("no number for {code:?}"),
    }
}

impl FaultyDevice for CudaOnSim {
    fn plan(&self, fault: &Fault) {
        let is_for_ever = fault.mode == FaultMode::Forever;
        let (function, nth, number) = (fault.function, fault.nth, number(fault.code));
        self.library.fail(self.ordinal, function, nth, is_for_ever, number).unwrap();
    }

    fn clear_faults(&self) {
        self.library.clear_faults(self.ordinal).unwrap();
    }

    fn faults_fired(&self) -> u64 {
        self.library.faults_fired(self.ordinal)
    }
}
