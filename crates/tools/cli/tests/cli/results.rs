//! What the subcommands find, in tables and in JSON.

use crate::tool::{SMALL, drystone, drystone_with, file, folder, shipped};

const MIB: u64 = 1 << 20;

#[test]
fn compare_sets_drystone_beside_pytorch() {
    let ran = drystone(["compare", &shipped("resnet50_train_eval_amp")]).expect(0);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("resnet50_train_eval_amp: 26\u{2009}488 events, 15 iterations"));
    let heads: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(heads[..3], ["allocator", "reserved", "res/req"]);
    let names: Vec<_> = lines[2..6].iter().filter_map(|l| l.split_whitespace().next()).collect();
    let expected = ["drystone-vmm", "drystone-malloc", "torch-native", "torch-expandable"];
    assert_eq!(names, expected);
    assert!(ran.stdout.is_ascii() || ran.stdout.replace('\u{2009}', "").is_ascii());
}

#[test]
fn compare_shows_how_each_allocator_settles_down() {
    let path = shipped("lstm_train");
    let ran = drystone(["compare", &path]).expect(0);
    let line = |start: &str| {
        let mut lines = ran.stdout.lines().map(str::trim).skip(7);
        lines.find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{}", ran.stdout))
    };
    let groups: Vec<_> = line("calls per iteration").split_whitespace().collect();
    assert!(groups.ends_with(&["23-26", "27-30"]), "{}", ran.stdout);
    let cells: Vec<_> = line("drystone-vmm").split("  ").map(str::trim).collect();
    assert_eq!((cells.first(), cells.last()), (Some(&"drystone-vmm"), Some(&"0.0")));
    assert!(line("granules remapped").split_whitespace().count() == 2 + 8);
    assert!(line("drystone-vmm: ").contains(" granules remapped in all, "));

    for run in drystone(["compare", &path, "--json"]).expect(0).runs() {
        let of = &run["convergence"];
        let column = |name: &str| -> Vec<u64> {
            of[name].as_array().unwrap().iter().map(|cell| cell.as_u64().unwrap()).collect()
        };
        let (calls, granules) = (column("driver_calls"), column("harvested_granules"));
        assert_eq!((calls.len(), &of["is_by_iteration"]), (30, &true.into()));
        assert!(calls.iter().sum::<u64>() <= run["driver_calls"].as_u64().unwrap());
        let is_ours = run["allocator"] == "drystone-vmm";
        assert_eq!(granules.iter().sum::<u64>() > 0, is_ours, "{run}");
        assert_eq!(run["aliases"].as_u64() > Some(0), is_ours);
        let remapped = run["harvested_granules"].as_u64();
        assert!(remapped >= run["lent_granules"].as_u64());
    }
}

#[test]
fn json_has_every_figure_with_its_unit() {
    let ran = drystone(["compare", &shipped("llama_1b_fsdp2_8way"), "--json"]).expect(0);
    let json = ran.json();
    assert_eq!((&json["schema"], &json["command"]), (&1.into(), &"compare".into()));
    let trace = &json["traces"][0];
    assert_eq!(trace["summary"]["peak_requested_bytes"], 7_806_625_584u64);
    assert_eq!(trace["summary"]["streams"].as_array().map(Vec::len), Some(3));
    let runs = ran.runs();
    assert_eq!(runs.len(), 5);
    for run in &runs {
        for key in [
            "peak_requested_bytes",
            "peak_allocated_bytes",
            "peak_reserved_bytes",
            "driver_calls",
            "steady_driver_calls",
            "out_of_memory_events",
            "operations",
        ] {
            assert!(run[key].is_u64(), "{key}: {run}");
        }
        for key in ["driver_time_us", "cpu_ns_per_operation", "events_per_s"] {
            assert!(run[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {run}");
        }
        let figure = |key: &str| run[key].as_u64().unwrap();
        assert!(figure("peak_requested_bytes") <= figure("peak_allocated_bytes"));
        assert!(figure("peak_allocated_bytes") <= figure("peak_reserved_bytes"));
        assert_eq!(figure("out_of_memory_events"), 0);
        assert!(run["first_out_of_memory"].is_null());
    }
    // The promise of the project, on the trace with several streams.
    let reserved = |index: usize| runs[index]["peak_reserved_bytes"].as_u64().unwrap();
    assert!(reserved(0) < reserved(2), "{} {}", reserved(0), reserved(2));
}

#[test]
fn one_of_a_thing_is_singular() {
    let one = "op,id,bytes,stream,time_ns\na,0,512,0,0\n";
    let ran = drystone_with(["replay", "-"], one.as_bytes()).expect(0);
    assert!(ran.stdout.starts_with("<stdin>: 1 event, 0 iterations, 1 stream;"), "{ran:?}");
    let ran = drystone_with(["inspect", "-"], one.as_bytes()).expect(0);
    assert!(ran.stdout.contains("  1 different size\n"), "{ran:?}");
}

#[test]
fn help_names_every_allocator() {
    for command in ["replay", "convert"] {
        let help = drystone([command, "--help"]).expect(0).stdout;
        for name in [
            "drystone-vmm",
            "drystone-malloc",
            "drystone-async",
            "torch-native",
            "torch-expandable",
            "torch-async",
        ] {
            assert!(help.contains(name), "{command}: {name}");
        }
    }
}

/// Two ways to the driver's own pools: both leave to it what is held.
#[test]
fn the_drivers_own_pools_are_compared() {
    let (_folder, path) = folder();
    let compared = drystone(["compare", &path, "--json"]).expect(0).runs();
    assert_eq!(compared[4]["allocator"], "torch-async");
    let own = ["replay", &path, "--json", "--allocator", "drystone-async"];
    let alone = drystone(own).expect(0).runs();
    for run in [&compared[4], &alone[0]] {
        // Every allocation and every free is a call, and the pool grows by 32 MiB.
        let [operations, calls, reserved] = ["operations", "driver_calls", "peak_reserved_bytes"]
            .map(|key| run[key].as_u64().unwrap());
        assert!(calls >= operations && run["out_of_memory_events"] == 0, "{run:?}");
        assert_eq!(reserved % (32 << 20), 0);
    }
}

#[test]
fn idle_times_are_kept_unless_they_are_to_be_shortened() {
    let idle = "op,id,bytes,stream,time_ns\na,0,512,0,0\nf,0,512,0,0\na,0,512,0,500000000\n";
    let makespan_us = |more: &[&str]| {
        let arguments = ["replay", "-", "--json"].iter().chain(more);
        let runs = drystone_with(arguments, idle.as_bytes()).expect(0).runs();
        runs[0]["device_time"]["makespan_us"].as_f64().unwrap()
    };
    assert!(makespan_us(&[]) > 500_000.0);
    assert!(makespan_us(&["--gaps", "shorten"]) < 50_000.0);
}

#[test]
fn further_configurations_get_rows_of_their_own() {
    let (_folder, path) = folder();
    let confs = ["max_split_size_mb:64", "expandable_segments:True,max_split_size_mb:128"];
    let ran = drystone(["compare", &path, "--torch-conf", confs[0], "--torch-conf", confs[1]]);
    let stdout = ran.expect(0).stdout;
    assert!(stdout.contains("torch-native (max_split_size_mb:64)"), "{stdout}");
    assert!(stdout.contains("torch-expandable (expandable_segments:True,max_split"), "{stdout}");
}

#[test]
fn too_small_a_device_is_reported_and_ends_with_1() {
    let arguments = ["replay", "-", "--capacity", "8MiB", "--json"];
    let json = drystone_with(arguments, SMALL.as_bytes()).expect(1).json();
    let run = &json["traces"][0]["runs"][0];
    // The two 8 MiB blocks do not fit beside the 4 MiB one; everything else is served.
    assert_eq!(run["out_of_memory_events"], 2);
    assert_eq!(run["first_out_of_memory"]["event"], 1);
    assert_eq!(json["traces"][0]["capacity_bytes"], 8 * MIB);
    let ran = drystone_with(&arguments[..4], SMALL.as_bytes()).expect(1);
    assert!(ran.stdout.contains("drystone-vmm, event 1: "), "{ran:?}");
}

#[test]
fn means_are_over_the_traces_that_every_allocator_served() {
    let (folder, path) = folder();
    let fits = file(&folder, "fits.csv");
    std::fs::write(&fits, "op,id,bytes,stream,time_ns\na,0,2097152,0,0\n").unwrap();
    let ran = drystone(["replay", &path, &fits]).expect(0);
    assert!(ran.stdout.contains("all 2 traces: geometric means and worst, else sums\n"), "{ran:?}");
    let ran = drystone(["replay", &path, &fits, "--capacity", "8MiB"]).expect(1);
    let (_, overall) = ran.stdout.split_once("all 2 traces: ").unwrap();
    assert!(overall.contains("worst over the 1 that every allocator served whole"), "{overall}");
    // The ratio of the trace that ran out of memory is below one half; it takes no part.
    let row: Vec<_> = overall.lines().last().unwrap().split_whitespace().collect();
    assert_eq!((row[1], row[2], row.last()), ("1.0000", "1.0000", Some(&"2")), "{overall}");
    let ran = drystone(["replay", &path, &path, "--capacity", "8MiB"]).expect(1);
    let row: Vec<_> = ran.stdout.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row[1..4], ["-", "-", "-"], "{ran:?}");
}

#[test]
fn a_factor_of_capacity_follows_the_trace() {
    let arguments = ["replay", "-", "--capacity", "1.5x", "--json"];
    let json = drystone_with(arguments, SMALL.as_bytes()).expect(0).json();
    assert_eq!(json["traces"][0]["capacity_bytes"], 18 * MIB);
}

/// The smallest device for a recorded program, over its peak of requests.
fn fits(trace: &str, withheld: &str) -> f64 {
    let arguments = ["fit", &shipped(trace), "--withheld", withheld, "--json"];
    let json = drystone(arguments).expect(0).json();
    let fits = json["traces"][0]["fits"].as_array().unwrap();
    fits.iter().find(|fit| fit["allocator"] == "drystone-vmm").unwrap()["capacity_per_needed"]
        .as_f64()
        .unwrap()
}

#[test]
fn a_device_that_does_not_give_what_it_says_is_free_need_not_be_much_larger() {
    // 1.0750 where what it refuses is not remembered.
    let much = fits("graphsage_neighbor_sampling", "1TiB");
    assert!(much < 1.035, "{much}");
}

#[test]
fn fit_finds_a_size_that_works_next_to_one_that_does_not() {
    let (_folder, path) = folder();
    let json = drystone(["fit", &path, "--json"]).expect(0).json();
    let fits = json["traces"][0]["fits"].as_array().unwrap();
    assert_eq!(fits.len(), 5);
    for fit in fits {
        let (name, bytes) = (fit["allocator"].as_str().unwrap(), fit["capacity_bytes"].as_u64());
        let bytes = bytes.unwrap();
        assert!(bytes >= 12 * MIB && bytes % (2 * MIB) == 0, "{fit}");
        let replay = |bytes: u64| {
            let capacity = bytes.to_string();
            drystone(["replay", &path, "--allocator", name, "--capacity", &capacity])
        };
        replay(bytes).expect(0);
        replay(bytes - 2 * MIB).expect(1);
    }
}

/// Each larger size that `fit` may have tried works from there on.
#[test]
fn fit_tells_from_where_on_every_larger_size_works() {
    let path = shipped("lstm_train");
    let json = drystone(["fit", &path, "--json"]).expect(0).json();
    let report = &json["traces"][0];
    let peak = report["peak_requested_bytes"].as_u64().unwrap();
    for fit in report["fits"].as_array().unwrap() {
        let [fits, from] = ["capacity_bytes", "served_from_bytes"].map(|key| fit[key].as_u64());
        match from {
            Some(from) => assert!(fits.unwrap() <= from && from <= peak * 104 / 100, "{fit}"),
            None => assert!(fits.unwrap() + 2 * MIB > peak * 104 / 100, "{fit}"),
        }
    }
    let text = drystone(["fit", &path]).expect(0).stdout;
    assert!(text.contains("served from"), "{text}");
}

#[test]
fn inspect_tells_what_is_in_a_trace() {
    let ran = drystone_with(["inspect", "-"], SMALL.as_bytes()).expect(0);
    for part in
        ["4 allocations, 4 frees, 3 iterations", "peak requested 12.00 MiB at event 1", "to 8 MiB"]
    {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
}

#[test]
fn inspect_of_a_real_snapshot_names_who_holds_the_peak() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../../shared/snapshots/resnet50_train.pickle");
    if !path.exists() {
        println!("skipped: needs ../shared/snapshots");
        return;
    }
    let ran = drystone(["inspect".as_ref(), path.as_os_str()]).expect(0);
    assert!(ran.stdout.contains("from models/resnet.py:154 forward"), "{ran:?}");
    assert!(ran.stdout.contains("recorded   peak reserved 3.354 GiB"), "{ran:?}");
}

#[test]
fn replays_repeat_themselves_exactly() {
    let path = shipped("graphsage_neighbor_sampling");
    let once = || {
        let mut json = drystone(["compare", &path, "--json"]).expect(0).json();
        for run in json["traces"][0]["runs"].as_array_mut().unwrap() {
            for key in ["cpu_ns_per_operation", "events_per_s"] {
                assert!(run.as_object_mut().unwrap().remove(key).is_some());
            }
        }
        json
    };
    assert_eq!(once(), once());
}

#[test]
fn driver_time_follows_the_prices_and_calls_do_not() {
    let path = shipped("graphsage_neighbor_sampling");
    let of = |costs| drystone(["compare", &path, "--json", "--costs", costs]).expect(0).runs();
    let [dear, middle, cheap] = ["a100", "vattention", "small"].map(of);
    // All but torch-native and drystone-malloc, which make no call of virtual memory.
    for index in [0, 3] {
        let time = |runs: &[serde_json::Value]| runs[index]["driver_time_us"].as_f64().unwrap();
        assert!(time(&dear) > time(&middle) && time(&middle) > time(&cheap));
        assert_eq!(dear[index]["driver_calls"], cheap[index]["driver_calls"]);
        let worst = &dear[index]["per_malloc"]["driver_time_us"];
        let figure = |key: &str| worst[key].as_f64().unwrap();
        assert!(figure("p50") <= figure("p99") && figure("p99") <= figure("max"), "{worst}");
        assert!(figure("max") > 193.0, "somebody paid for a creation: {worst}");
    }
}

#[test]
fn time_is_told_beside_bytes_unless_kernels_are_off() {
    let path = shipped("llama_1b_fsdp2_8way");
    let compare = |more: &[&str]| drystone([&["compare", &path], more].concat()).expect(0);
    for run in compare(&["--json"]).runs() {
        let over_ideal = run["makespan_over_ideal"].as_f64().unwrap();
        assert!(over_ideal >= 1.0, "nothing is faster than the ideal: {run}");
        let time = &run["device_time"];
        let ours = run["allocator"].as_str().unwrap().starts_with("drystone");
        assert!(ours || time["stream_waits"] == 0, "PyTorch makes no stream wait: {time}");
    }
    let free = compare(&["--json", "--costs", "free"]).runs();
    let native = free.iter().find(|run| run["allocator"] == "torch-native").unwrap();
    assert_eq!(native["device_time"]["host_waits"], 0, "{native}");
    assert_eq!(native["makespan_over_ideal"], 1.0, "it waits for nothing, and calls are free");
    assert!(compare(&[]).stdout.contains("/ideal"));
    let off = compare(&["--kernels", "off"]);
    assert!(off.stdout.contains("malloc p99") && !off.stdout.contains("/ideal"), "{off:?}");
    assert!(compare(&["--json", "--kernels", "off"]).runs()[0]["device_time"].is_null());
}
