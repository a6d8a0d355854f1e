//! The script that runs a pack on a GPU, `xtask/gpu/run`: one failure is not the end of the others.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use drystone_sim::{Legality, Measured, Rule, SimConfig};
use serde_json::Value;

fn run(name: &str, library_path: &Path, arguments: &[&str]) -> (Output, PathBuf) {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&out);
    let mut run = Command::new("python3");
    run.arg("-B").arg(common::root().join("xtask/gpu/run")).arg("--out").arg(&out);
    run.args(arguments).env("LD_LIBRARY_PATH", library_path);
    run.env("SIMCUDA_CONF", "memory:4GiB,strict:false");
    (run.output().unwrap(), out)
}

fn steps(out: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(out.join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let steps = results["steps"].as_array().unwrap();
    let text = |step: &Value, key: &str| step[key].as_str().unwrap().to_owned();
    steps.iter().map(|step| (text(step, "name"), text(step, "status"))).collect()
}

#[test]
fn every_step_is_tried_and_told_of_where_nothing_can_work() {
    // Neither programs nor a driver: those fail, and what needs the driver says so.
    let (output, out) = run("pack-without-anything", Path::new("/nowhere"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let mut list = Command::new("python3");
    list.arg("-B").arg(common::root().join("xtask/gpu/run")).arg("--list");
    let names = String::from_utf8(list.output().unwrap().stdout).unwrap();
    let told = steps(&out);
    assert_eq!(
        told.iter().map(|step| &step.0).collect::<Vec<_>>(),
        names.lines().collect::<Vec<_>>()
    );
    let page = fs::read_to_string(out.join("results.html")).unwrap();
    for (name, status) in &told {
        assert_ne!(status, "passed", "{name}");
        assert!(page.contains(&format!("<h2 id=\"{name}\">")), "{name}");
    }
    assert!(told.contains(&("suite".to_owned(), "failed".to_owned())));
    assert!(told.contains(&("growth".to_owned(), "skipped".to_owned())));
}

#[test]
fn results_go_elsewhere_where_nothing_can_be_written() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pack-elsewhere");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut run = Command::new("python3");
    run.arg("-B").arg(common::root().join("xtask/gpu/run")).args(["--out", "/dev/null/results"]);
    run.arg("probe").env("LD_LIBRARY_PATH", "/nowhere").env("TMPDIR", &folder);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    let (_, place) = told.split_once("the results go to ").unwrap();
    let place = Path::new(place.lines().next().unwrap());
    assert!(place.starts_with(&folder), "{told}");
    assert_eq!(steps(place), [("probe".to_owned(), "skipped".to_owned())]);
    assert!(place.join("results.html").exists());
}

#[test]
fn measurements_run_from_start_to_end_on_the_simulated_device() {
    let Some(libraries) = std::env::var_os("DRYSTONE_SIMCUDA") else {
        eprintln!("skipped: DRYSTONE_SIMCUDA does not name the built libraries");
        return;
    };
    let names = [
        "probe",
        "aliases",
        "growth",
        "ranges",
        "captures",
        "latency",
        "bandwidth",
        "processes",
        "limits",
    ];
    let (output, out) = run("pack-measurements", Path::new(&libraries), &names);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(steps(&out).len(), names.len(), "{said}");
    assert!(steps(&out).iter().all(|step| step.1 == "passed"), "{said}");
    is_the_device_it_ran_on(&Measured::read(&out.join("results.json")).unwrap());
}

/// What was measured is what the simulated device is, times apart.
fn is_the_device_it_ran_on(measured: &Measured) {
    let config = measured.applied_to(SimConfig::default());
    assert_eq!((config.total_bytes, config.is_shareable), (4 << 30, true));
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
