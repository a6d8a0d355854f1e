//! `drystone sweep`: one trace on devices of several sizes.

use crate::tool::{drystone, file, folder};

#[test]
fn a_sweep_replays_each_allocator_on_each_device() {
    let (_folder, path) = folder();
    // The trace holds 12 MiB, so 8 MiB are too few for its first iteration.
    let sizes = ["--capacity", "ample,2.5x,8MiB"];
    let ran = drystone(["sweep", "--json", &path].iter().chain(&sizes)).expect(1);
    let json = ran.json();
    let cells = json["traces"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3 * 4);
    for (cell, device) in cells.chunks(4).zip(["ample", "2.5x", "8MiB"]) {
        let names: Vec<_> = cell.iter().map(|cell| &cell["allocator"]).collect();
        assert_eq!(names, ["drystone-vmm", "torch-expandable", "torch-native", "torch-async"]);
        for cell in cell {
            assert_eq!(cell["device"], device);
            let is_too_small = device == "8MiB";
            assert_eq!(cell["out_of_memory_events"] != 0, is_too_small, "{cell}");
            assert!(cell["driver_time_us"].as_f64().unwrap() > 0.0, "{cell}");
            // What was refused was not worked on either.
            let makespan = cell["makespan_over_ideal"].as_f64().unwrap();
            assert!(is_too_small || makespan > 1.0, "{cell}");
        }
    }
    assert_eq!(cells[5]["capacity_bytes"], 30 << 20);
    let ran = drystone(["sweep", &path].iter().chain(&sizes)).expect(1);
    let heads = ran.stdout.lines().filter(|line| line.contains("drystone-vmm"));
    let heads: Vec<Vec<_>> = heads.map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(heads, [["a100", "ample"], ["a100", "2.5x"], ["a100", "8MiB"]]);
}

#[test]
fn the_picture_has_a_row_for_each_trace_and_a_line_for_each_allocator() {
    let (folder, path) = folder();
    let out = file(&folder, "sweep.svg");
    drystone(["sweep", "--capacity", "1.1x,1.5x", &path, "--svg", &out]).expect(1);
    let svg = std::fs::read_to_string(&out).unwrap();
    assert_eq!(svg.matches("small, peak 12.00 MiB").count(), 2, "{svg}");
    for name in ["drystone-vmm", "torch-expandable", "torch-native", "torch-async"] {
        assert_eq!(svg.matches(name).count(), 1, "{name}");
    }
    // PyTorch's segments of 20 MiB fit neither device, so two lines have a beginning.
    assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
    let before = drystone(["sweep", &path, "--svg", &path]).expect(2);
    assert!(before.complaint().contains("is read; write to another file"), "{before:?}");
}

#[test]
fn more_configurations_and_prices_are_swept_beside_the_default_ones() {
    let (_folder, path) = folder();
    let options = ["--capacity", "ample", "--costs", "a100,small"];
    let more = ["--drystone-conf", "cross_stream:never"];
    let ran = drystone(["sweep", "--json", &path].iter().chain(&options).chain(&more));
    let json = ran.expect(0).json();
    let cells = json["traces"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2 * 5);
    let time = |at: usize| cells[at]["driver_time_us"].as_f64().unwrap();
    for (at, costs) in [(4, "a100"), (9, "small")] {
        assert_eq!(cells[at]["configuration"], "cross_stream:never");
        assert_eq!(cells[at]["costs"], costs);
    }
    assert!(time(4) > 3.0 * time(9), "{} {}", time(4), time(9));
    let ran = drystone(["sweep", &path, "--capacity", "plenty"]).expect(2);
    assert!(ran.stderr.contains("plenty"), "{ran:?}");
}
