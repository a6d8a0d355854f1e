//! Report files and converted files.

use crate::tool::{SMALL, drystone, drystone_with, file, folder, names, shipped};

#[test]
fn the_page_needs_nothing_but_itself() {
    let (folder, path) = folder();
    let out = file(&folder, "page.html");
    drystone(["compare", &path, "--html", &out]).expect(0);
    let page = std::fs::read_to_string(&out).unwrap();
    for outside in ["http:", "https:", "//cdn", "src=", "<link", "@import", "url(", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("{{"), "a mark of the template is left");
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let runs = data["traces"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5);
    for run in runs {
        let reserved = run["curve"]["reserved"].as_array().unwrap();
        let peak = reserved.iter().filter_map(serde_json::Value::as_u64).max();
        assert_eq!(peak, run["peak_reserved_bytes"].as_u64());
        // The blocks of the map add up to what the allocator held, except the driver's own pool,
        // whose map nobody sees.
        let layout = &run["layout"];
        if run["allocator"] == "torch-async" {
            assert!(layout.is_null());
            continue;
        }
        let bytes: u64 = layout["segments"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|segment| segment[2].as_array().unwrap())
            .filter(|block| block[1] != 3)
            .map(|block| block[0].as_u64().unwrap())
            .sum();
        assert_eq!(Some(bytes), run["peak_reserved_bytes"].as_u64(), "{run}");
    }
    assert_eq!(names(folder.path()), ["page.html", "small.csv"]);
}

#[test]
fn a_hostile_name_cannot_leave_the_data() {
    let (folder, _) = folder();
    let [path, out] = ["<script>alert(1)<!--.csv", "page.html"].map(|name| file(&folder, name));
    std::fs::write(&path, SMALL).unwrap();
    drystone(["replay", &path, "--html", &out]).expect(0);
    let page = std::fs::read_to_string(&out).unwrap();
    assert!(!page.contains("<script>alert"), "{page}");
    assert!(!page.contains("<!--"));
}

#[test]
fn the_picture_is_svg_with_a_line_per_allocator() {
    let (folder, path) = folder();
    let out = file(&folder, "picture.svg");
    drystone(["compare", &path, "--svg", &out]).expect(0);
    let picture = std::fs::read_to_string(&out).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    for name in ["requested", "drystone-vmm", "torch-native", "torch-expandable"] {
        assert!(picture.contains(name), "{name}");
    }
}

#[test]
fn a_trace_survives_every_format() {
    let (folder, _) = folder();
    let source = shipped("llama_1b_fsdp2_8way");
    let figures = |path: &str| {
        let runs = drystone(["replay", path, "--json"]).expect(0).runs();
        let keys = ["events", "peak_requested_bytes", "peak_reserved_bytes", "driver_calls"];
        keys.map(|key| runs[0][key].as_u64().unwrap())
    };
    let expected = figures(&source);
    for ending in ["csv", "csv.zst", "pickle", "json"] {
        let out = file(&folder, &format!("out.{ending}"));
        drystone(["convert", &source, &out]).expect(0);
        assert_eq!(figures(&out), expected, "{ending}");
    }
}

#[test]
fn iterations_survive_a_snapshot() {
    let (folder, path) = folder();
    let out = file(&folder, "out.pickle");
    drystone(["convert", &path, &out]).expect(0);
    let json = drystone(["inspect", &out, "--json"]).expect(0).json();
    let summary = &json["traces"][0]["summary"];
    assert_eq!((&summary["iterations"], &summary["events"]), (&3.into(), &11.into()));
}

#[test]
fn standard_output_takes_a_named_format() {
    let ran = drystone_with(["convert", "-", "-", "--format", "csv"], SMALL.as_bytes()).expect(0);
    assert_eq!(ran.stdout.lines().skip(1).collect::<Vec<_>>(), {
        SMALL.lines().skip(1).collect::<Vec<_>>()
    });
    let ran = drystone_with(["convert", "-", "-"], SMALL.as_bytes()).expect(2);
    assert!(ran.complaint().contains("--format"), "{ran:?}");
}

#[test]
fn a_conversion_that_fails_leaves_nothing() {
    let (folder, _) = folder();
    let bad = file(&folder, "bad.csv");
    std::fs::write(&bad, "hello\n").unwrap();
    for out in ["out.csv.zst", "out.pickle", "out.unknown", "no/such/out.csv"] {
        let ran = drystone(["convert", &bad, &file(&folder, out)]).expect(2);
        assert!(ran.complaint().starts_with("drystone: "));
    }
    assert_eq!(names(folder.path()), ["bad.csv", "small.csv"]);
}

#[test]
fn a_recording_can_be_written_as_another_allocator_would_have_left_it() {
    let (folder, path) = folder();
    let [native, expandable] = ["native.pickle", "expandable.json"].map(|name| file(&folder, name));
    drystone(["convert", &path, &native, "--allocator", "torch-native"]).expect(0);
    drystone(["convert", &native, &expandable, "--allocator", "torch-expandable"]).expect(0);
    let recorded = |path: &str| {
        let json = drystone(["inspect", path, "--json"]).expect(0).json();
        let recorded = &json["traces"][0]["recorded"];
        recorded["peak_reserved_bytes"].as_u64().unwrap()
    };
    // PyTorch's small buffer is 2 MiB, its large one 20 MiB, and large requests round to 2 MiB.
    assert_eq!(recorded(&native), (20 + 2) << 20);
    assert_eq!(recorded(&expandable), (20 + 2) << 20);
}

#[test]
fn a_recording_stays_as_it_is_when_only_its_device_is_named() {
    let (folder, path) = folder();
    let [native, same] = ["native.pickle", "same.pickle"].map(|name| file(&folder, name));
    drystone(["convert", &path, &native, "--allocator", "torch-native"]).expect(0);
    drystone(["convert", &native, &same, "--device", "0"]).expect(0);
    assert_eq!(std::fs::read(&native).unwrap(), std::fs::read(&same).unwrap());
}

#[test]
fn one_device_of_a_recording_is_kept_with_its_addresses() {
    let (folder, path) = folder();
    let [one, both, second] = ["one.json", "both.json", "second.json"].map(|n| file(&folder, n));
    drystone(["convert", &path, &one]).expect(0);
    let read = |path: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let mut json = read(&one);
    let entries = json["device_traces"][0].as_array().unwrap()[1..].to_vec();
    json["device_traces"].as_array_mut().unwrap().push(entries.clone().into());
    let segments = json["segments"].as_array().unwrap().clone();
    for mut segment in segments.clone() {
        segment["device"] = 1.into();
        json["segments"].as_array_mut().unwrap().push(segment);
    }
    std::fs::write(&both, json.to_string()).unwrap();
    drystone(["convert", &both, &second, "--device", "1"]).expect(0);
    let kept = read(&second);
    assert_eq!(kept["device_traces"], serde_json::json!([[], entries]));
    assert_eq!(kept["segments"].as_array().unwrap().len(), segments.len());
    assert!(kept["segments"].as_array().unwrap().iter().all(|segment| segment["device"] == 1));
    let json = drystone(["inspect", &second, "--json"]).expect(0).json();
    assert_eq!(json["traces"].as_array().map(Vec::len), Some(1));
    let ran = drystone(["convert", &both, &second, "--device", "2"]).expect(2);
    assert!(ran.complaint().contains("has no device 2; it has 2"), "{ran:?}");
}

#[test]
fn a_trace_without_allocations_makes_no_snapshot() {
    let marks = "op,id,bytes,stream,time_ns\nm,0,0,0,0\n";
    let arguments = ["convert", "-", "-", "--format", "json"];
    let ran = drystone_with(arguments, marks.as_bytes()).expect(2);
    assert!(ran.complaint().contains("no allocation"), "{ran:?}");
    assert_eq!(ran.stdout, "");
}

#[test]
fn requests_refused_while_a_snapshot_is_made_are_counted() {
    let (folder, path) = folder();
    let out = file(&folder, "out.json");
    let ran = drystone(["convert", &path, &out, "--capacity", "2MiB"]).expect(1);
    assert!(ran.complaint().contains("were refused"), "{ran:?}");
    assert_eq!(names(folder.path()), ["out.json", "small.csv"]);
}

#[test]
fn options_of_a_replay_that_does_not_happen_are_refused() {
    let (folder, path) = folder();
    let recording = file(&folder, "recording.pickle");
    drystone(["convert", &path, &recording]).expect(0);
    for arguments in [
        ["convert", &path, &file(&folder, "out.csv"), "--allocator", "torch-native"],
        ["convert", &path, &file(&folder, "out.csv"), "--capacity", "1GiB"],
        ["convert", &recording, &file(&folder, "out.pickle"), "--conf", "granule:4MiB"],
    ] {
        let ran = drystone(arguments).expect(2);
        assert!(ran.complaint().contains("has no effect here"), "{ran:?}");
    }
    assert_eq!(names(folder.path()), ["recording.pickle", "small.csv"]);
}
