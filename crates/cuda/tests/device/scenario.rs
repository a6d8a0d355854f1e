//! Runs a test in a process of its own.

use std::env;
use std::process::Command;

use drystone_cuda::{CudaDevice, CudaOptions, OpenError, device_count};

const SCENARIO: &str = "DRYSTONE_CUDA_SCENARIO";
/// What the process says at its end, so that one that ran nothing is noticed.
const PASSED: &str = "scenario passed";
const SKIPPED: &str = "scenario skipped";

/// Runs `body` in a process of its own, with at least so many devices, or skips where there are
/// fewer. A simulated device has `conf` on top. Returns what the process said, if one ran.
#[macro_export]
macro_rules! scenario {
    ($devices:expr, $conf:expr, $body:expr) => {{
        fn here() {}
        let _said: Option<String> =
            $crate::scenario::run($devices, $conf, $body, std::any::type_name_of_val(&here));
        _said
    }};
}

/// `place` is the path of a function inside the test.
pub(crate) fn run(devices: u32, conf: &str, body: fn(), place: &str) -> Option<String> {
    let (_, path) = place.split_once("::").unwrap();
    let (name, _) = path.rsplit_once("::").unwrap();
    if env::var_os(SCENARIO).is_some_and(|running| running == name) {
        match device_count() {
            Ok(count) if count >= devices => {
                body();
                println!("{PASSED}");
            }
            Ok(count) => println!("{SKIPPED}: needs {devices} devices, there are {count}"),
            Err(error @ OpenError::NoLibrary { .. }) => println!("{SKIPPED}: {error}"),
            // Not a machine without a driver: no line says passed, and the parent fails.
            Err(error) => println!("{error}"),
        }
        return None;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(SCENARIO, name);
    // Bytes are kept, so that what is copied in can be read back.
    child.env("SIMCUDA_CONF", format!("devices:{devices},memory:1GiB,backing:true{conf}"));
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if let Some(line) = said.lines().find(|line| line.contains(SKIPPED)) {
        let is_simulated = env::var_os("DRYSTONE_SIMCUDA").is_some();
        assert!(!is_simulated, "{name}: {line}, though there is a simulated driver");
        eprintln!("{name}: {line}");
        return None;
    }
    let is_passed = output.status.success() && said.contains(PASSED);
    assert!(is_passed, "{name}: {}\n{said}\n{errors}", output.status);
    Some(said)
}

/// The first device, opened as usual.
pub(crate) fn open() -> CudaDevice {
    open_at(0)
}

pub(crate) fn open_at(ordinal: u32) -> CudaDevice {
    CudaDevice::open(ordinal, &CudaOptions::default()).unwrap()
}
