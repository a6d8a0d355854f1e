//! Memory for cudarc programs, on the simulated libcuda; skipped where that is not built.
//!
//! Each test is a process of its own: what it needs of the device is asked for before the driver
//! is first called. The example an engine would copy is run here, too.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod across;
mod as_preloaded;
mod graphs;
mod growable;
mod hostile;
mod installed;
mod probes;
mod random;
mod slices;
mod streams;

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DeviceRepr};
use drystone::{Backend, Options};
use drystone_cudarc::{Alloc, DeviceMemory, PooledSlice, StreamMemory};
use drystone_testkit::SimCuda;

const MIB: usize = 1 << 20;
const CHILD: &str = "DRYSTONE_TYPED_TEST";
const PASSED: &str = "the test has run";

/// Runs a test's body in a process whose device is as `conf` says.
fn on_a_device(name: &str, conf: &str, body: fn()) {
    if env::var_os(CHILD).is_some() {
        body();
        println!("{PASSED}");
        return;
    }
    if env::var_os("DRYSTONE_SIMCUDA").is_none() {
        eprintln!("{name} skipped: no simulated libcuda; `cargo xtask test` builds it");
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    let output = child.env("SIMCUDA_CONF", format!("strict:true,{conf}")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(PASSED), "{name}: {said}\n{errors}");
}

fn memory(options: &Options) -> StreamMemory {
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    DeviceMemory::new(stream.context(), options).unwrap().on(&stream).unwrap()
}

fn each_source(test: impl Fn(StreamMemory)) {
    for backend in [Backend::Vmm, Backend::Malloc, Backend::Async] {
        test(memory(&Options::default().with_backend(backend)));
    }
}

/// Numbers nobody has written.
fn alloc<T: DeviceRepr>(memory: &StreamMemory, len: usize) -> PooledSlice<T> {
    // SAFETY: the tests ask for numbers, which may hold any bytes.
    unsafe { memory.alloc(len) }.unwrap()
}

/// A kernel of a module that the simulated driver makes up.
fn kernel(stream: &Arc<CudaStream>) -> CudaFunction {
    let module = stream.context().load_module(cudarc::nvrtc::Ptx::from_src(".version 8.0"));
    module.unwrap().load_function("add").unwrap()
}

/// How often each function of the simulated driver was called.
fn counts() -> BTreeMap<String, u64> {
    let stats = SimCuda::find().unwrap().stats_json();
    let rows = stats.lines().filter_map(|line| line.trim().split_once(": {\"calls\": "));
    rows.map(|(name, rest)| {
        let calls = rest.split(',').next().unwrap().parse().unwrap();
        (name.trim_matches('"').to_owned(), calls)
    })
    .collect()
}

fn count(name: &str) -> u64 {
    counts().get(name).copied().unwrap_or(0)
}
