//! `--device`: the device as it was measured.

use crate::tool::{drystone, file, folder};

/// Creating costs a microsecond, for any size, on a device of 30 MiB.
const RESULTS: &str = r#"{"steps": [
    {"name": "probe", "data": [{"device": "Some GPU", "total MiB": 30}]},
    {"name": "growth", "data": [
        {"handle MiB": 2, "create p50": 1.0},
        {"handle MiB": 64, "create p50": 1.0}]}]}"#;

#[test]
fn a_measured_device_has_its_memory_and_its_prices() {
    let (folder, path) = folder();
    let results = file(&folder, "results.json");
    std::fs::write(&results, RESULTS).unwrap();
    let run = |more: &[&str]| {
        let arguments = ["replay", "--json", &path].into_iter().chain(more.iter().copied());
        let ran = drystone(arguments).expect(0);
        let trace = ran.json()["traces"][0].clone();
        let driver_us = trace["runs"][0]["driver_time_us"].as_f64().unwrap();
        (trace["capacity_bytes"].as_u64().unwrap(), driver_us, ran.stderr)
    };
    let (_, published_us, quiet) = run(&["--capacity", "30MiB"]);
    let (capacity, measured_us, said) = run(&["--device", &results]);
    assert_eq!((capacity, quiet.as_str()), (30 << 20, ""));
    assert!(measured_us < published_us, "{measured_us} of {published_us}");
    assert!(said.contains("Some GPU") && said.contains("cuMemMap"), "{said}");
    assert!(!said.contains("cuMemCreate"), "{said}");
    let (capacity, ..) = run(&["--device", &results, "--capacity", "1GiB"]);
    assert_eq!(capacity, 1 << 30);

    drystone(["fit", &path, "--device", &results]).expect(0);
    let both = ["compare", &path, "--device", &results, "--costs", "small"];
    assert!(drystone(both).expect(2).stderr.contains("--costs"));
    let other = drystone(["compare", &path, "--device", &path]).expect(2);
    assert!(other.stderr.contains("is no results.json"), "{}", other.stderr);
}
