//! The script that runs a pack on a GPU, `xtask/gpu/run`: one failure is not the end of the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use drystone_sim::{Legality, Measured, Rule, SimConfig};
use serde_json::Value;

use super::{root, said};

/// A folder that nothing is in.
fn fresh(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// The script, for a folder of results, without a driver.
fn script(out: &Path, arguments: &[&str]) -> Command {
    let mut run = Command::new("python3");
    run.arg("-B").arg(root().join("xtask/gpu/run")).args(arguments);
    run.arg("--out").arg(out).env("LD_LIBRARY_PATH", "/nowhere");
    run
}

fn run(name: &str, library_path: &Path, arguments: &[&str]) -> (Output, PathBuf) {
    let out = fresh(name);
    let mut run = script(&out, arguments);
    run.env("LD_LIBRARY_PATH", library_path);
    run.env("SIMCUDA_CONF", "memory:4GiB,process_limit:4032MiB,strict:false");
    (run.output().unwrap(), out)
}

/// The steps of results, and what came of each.
fn steps(out: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(out.join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let text = |step: &Value, key: &str| step[key].as_str().unwrap().to_owned();
    let steps = results["steps"].as_array().unwrap().iter();
    steps.map(|step| (text(step, "name"), text(step, "status"))).collect()
}

fn names(out: &Path) -> Vec<String> {
    steps(out).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn every_step_is_tried_and_told_of_where_nothing_can_work() {
    // Neither programs nor a driver: those fail, and what needs the driver says so.
    let (output, out) = run("pack-without-anything", Path::new("/nowhere"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let listed = said(&mut script(&out, &["--list"]));
    assert_eq!(names(&out), listed.lines().collect::<Vec<_>>());
    let told = steps(&out);
    let page = fs::read_to_string(out.join("results.html")).unwrap();
    for (name, status) in &told {
        assert_ne!(status, "passed", "{name}");
        assert!(page.contains(&format!("<h2 id=\"{name}\">")), "{name}");
    }
    assert!(told.contains(&("suite".to_owned(), "failed".to_owned())));
    assert!(told.contains(&("growth".to_owned(), "skipped".to_owned())));
}

#[test]
fn a_run_goes_on_where_one_before_it_ended() {
    let (_, out) = run("pack-in-parts", Path::new("/nowhere"), &["probe", "ranges"]);
    let again = || script(&out, &["--minutes", "0", "probe", "growth"]);
    // One is there already; to the other no time is left.
    let said = said(&mut again());
    assert_eq!(names(&out), ["probe", "ranges"]);
    let (_, missed) = said.split_once("NOT REACHED").unwrap();
    assert!(missed.contains("growth (prices)") && !missed.contains("probe ("), "{said}");
    // Results of another pack, device or driver are no beginning of this one's.
    let file = out.join("results.json");
    let told = fs::read_to_string(&file).unwrap();
    fs::write(&file, told.replace("\"pack\": \"", "\"pack\": \"another ")).unwrap();
    again().output().unwrap();
    assert!(steps(&out).is_empty());
}

/// A step may end the machine: it goes last the second time.
#[test]
fn the_step_that_a_run_ended_in_goes_last() {
    let (_, out) = run("pack-that-ended", Path::new("/nowhere"), &["growth"]);
    let file = out.join("results.json");
    let told = fs::read_to_string(&file).unwrap();
    fs::write(&file, told.replacen('{', "{\"running\": \"probe\",", 1)).unwrap();
    let mut again = script(&out, &["probe", "ranges", "growth"]);
    said(&mut again);
    assert_eq!(names(&out), ["growth", "ranges", "probe"]);
    // What is torn costs what it told, and nothing else.
    fs::write(&file, "{\"steps\": [").unwrap();
    said(&mut again);
    assert_eq!(steps(&out).len(), 3);
}

#[test]
fn results_go_elsewhere_where_nothing_can_be_written() {
    let folder = fresh("pack-elsewhere");
    fs::create_dir_all(&folder).unwrap();
    let mut run = script(Path::new("/dev/null/results"), &["probe"]);
    run.env("TMPDIR", &folder);
    let told = said(&mut run);
    let (_, place) = told.split_once("the results go to ").unwrap();
    let place = Path::new(place.lines().next().unwrap());
    assert!(place.starts_with(&folder), "{told}");
    assert_eq!(steps(place), [("probe".to_owned(), "skipped".to_owned())]);
    assert!(place.join("results.html").exists());
}

/// Where a folder takes files and no longer those of results; the next run finds where they went.
#[test]
fn results_go_on_where_they_went() {
    let folder = fresh("pack-full");
    let (out, other) = (folder.join("out"), folder.join("tmp"));
    fs::create_dir_all(out.join("results.json")).unwrap();
    fs::create_dir_all(&other).unwrap();
    for (step, count) in [("probe", 1), ("ranges", 2)] {
        let mut run = script(&out, &[step]);
        run.env("TMPDIR", &other);
        let told = said(&mut run);
        let (_, place) = told.split_once("results.json and results.html are in ").unwrap();
        let place = Path::new(place.trim_end());
        assert!(place.starts_with(other.canonicalize().unwrap()), "{told}");
        assert_eq!(steps(place).len(), count);
    }
}

#[test]
fn measurements_run_from_start_to_end_on_the_simulated_device() {
    let Some(libraries) = std::env::var_os("DRYSTONE_SIMCUDA") else {
        eprintln!("skipped: DRYSTONE_SIMCUDA does not name the built libraries");
        return;
    };
    let names = "probe holds aliases growth ranges captures latency bandwidth processes limits";
    let names: Vec<_> = names.split(' ').collect();
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
