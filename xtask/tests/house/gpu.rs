//! The script that runs a pack on a GPU, `xtask/gpu/run`, on the simulated device: what it measures
//! is what that device is, as the simulated device reads it. All else of it is tested in Python.

use std::fs;
use std::path::Path;
use std::process::Command;

use drystone_sim::{Legality, Measured, Rule, SimConfig};

use super::said;

const STEPS: &str = "probe holds aliases growth ranges captures latency bandwidth limits";

#[test]
fn measurements_run_from_start_to_end_on_the_simulated_device() {
    let Some(libraries) = std::env::var_os("DRYSTONE_SIMCUDA") else {
        eprintln!("skipped: DRYSTONE_SIMCUDA does not name the built libraries");
        return;
    };
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pack-measurements");
    let _ = fs::remove_dir_all(&out);
    let mut run = Command::new("python3");
    run.args(["-B", "xtask/gpu/run", "--out"]).arg(&out).args(STEPS.split(' '));
    run.env("LD_LIBRARY_PATH", libraries);
    run.env("SIMCUDA_CONF", "memory:4GiB,process_limit:4032MiB,strict:false");
    said(&mut run);
    let results = fs::read_to_string(out.join("results.json")).unwrap();
    let passed = results.matches("\"status\": \"passed\"").count();
    assert_eq!(passed, STEPS.split(' ').count(), "{results}");
    is_the_device_it_ran_on(&Measured::read(&out.join("results.json")).unwrap());
}

/// What was measured is what the simulated device is, times apart.
fn is_the_device_it_ran_on(measured: &Measured) {
    let config = measured.applied_to(SimConfig::default());
    assert_eq!((config.total_bytes, config.is_shareable), (4 << 30, true));
    assert_eq!(config.process_limit_bytes, 4032 << 20);
    assert_eq!(config.alias_limit, SimConfig::default().alias_limit);
    let unpriced = measured.unpriced();
    for function in ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"] {
        assert!(!unpriced.contains(&function), "{function} has no price");
    }
    assert!(config.legality.len() > 25, "{:?}", config.legality);
    for (function, legality) in config.legality {
        let assumed = Rule::named(function).unwrap().legality;
        let assumed = if assumed == Legality::Unproven { Legality::Unsafe } else { assumed };
        assert_eq!(legality, assumed, "{function}");
    }
}
