//! Devices as small tables of results tell of them.

use drystone_driver::{Call, CaptureMode, Driver, ErrorCode, Stream};
use serde_json::{Value, json};

use super::{Measured, Rows};
use crate::config::{NetworkMemory, SimConfig};
use crate::cost::{Cost, CostTable};
use crate::device::SimDevice;
use crate::legality::Legality;

fn measured(steps: &Value) -> Measured {
    Measured::of(&Rows { steps: steps.as_array().unwrap() })
}

fn step(name: &str, data: Value) -> Value {
    json!({"name": name, "status": "passed", "data": data})
}

#[test]
fn costs_are_lines_through_the_first_figure() {
    let growth = json!([
        {"handle MiB": 2, "share": 0.1, "create p50": 30.0, "map p50": 2.5, "access p50": 40.0},
        {"handle MiB": 2, "handles": 9, "ended": "so", "unmap p50": 20.0, "release p50": 5.0},
        {"handle MiB": 20, "share": 0.1, "create p50": 75.0, "map p50": 2.5, "access p50": 130.0},
        {"handle MiB": 20, "handles": 9, "ended": "so", "unmap p50": 20.0, "release p50": 5.0},
    ]);
    let ranges = json!([
        {"handle MiB": 2, "handles": 1, "access p50": 40.0, "unmap p50": 20.0},
        {"handle MiB": 2, "handles": 11, "access p50": 440.0, "unmap p50": 120.0},
        {"handle MiB": 8, "handles": 11, "access p50": 999.0, "unmap p50": 999.0},
    ]);
    let calls = json!([
        {"call": "cuMemMap", "of": "one granule", "us": 1.5},
        {"call": "cuMemAlloc", "of": "2 MiB", "us": 90.0},
        {"call": "cuMemAlloc", "of": "20 MiB", "us": 99.0},
        {"call": "cuMemAllocFromPoolAsync", "of": "2 MiB, kept", "us": 3.0},
        {"call": "cuMemAllocFromPoolAsync", "of": "2 MiB, new", "us": 300.0},
    ]);
    let steps = json!([step("growth", growth), step("ranges", ranges), step("measure", calls)]);
    let measured = measured(&steps);
    let table = measured.costs(CostTable::a100());
    let is = |call, first_us: f64, per_further_2mib_us: f64, within_mapping: f64| {
        let Cost { first_us: first, per_further_2mib_us: further, within_mapping: within } =
            table.get(call);
        let off = [first - first_us, further - per_further_2mib_us, within - within_mapping];
        assert!(off.iter().all(|off| off.abs() < 1e-9), "{call:?}: {:?}", table.get(call));
    };
    is(Call::Create, 30.0, 5.0, 0.0);
    is(Call::Map, 1.5, 0.0, 0.0);
    is(Call::Release, 5.0, 0.0, 0.0);
    is(Call::SetAccess, 40.0, 40.0, 0.25);
    is(Call::Unmap, 20.0, 10.0, 0.0);
    is(Call::Malloc, 90.0, 1.0, 0.0);
    is(Call::MallocAsync, 3.0, 0.0, 0.0);
    // Nobody measured it.
    assert_eq!(table.get(Call::Free), CostTable::a100().get(Call::Free));
    assert!(measured.unpriced().contains(&"cuMemFree"));
}

#[test]
fn limits_are_where_something_was_refused() {
    let probe = json!([
        {"device": "Some GPU", "total MiB": 24_000},
        {"handles": "none", "for RDMA": false, "outcome": "works"},
        {"handles": "none", "for RDMA": true, "device says RDMA": true, "outcome": "999"},
        {"handles": "file descriptor", "for RDMA": false, "outcome": "cuMemCreate returned 801"},
        {"handles": "memory pool", "outcome": "works"},
        {"addresses GiB": 1, "outcome": "works"},
        {"addresses GiB": 32, "outcome": "cuMemAddressReserve returned 2"},
        {"addresses GiB": 128, "outcome": "cuMemAddressReserve returned 2"},
    ]);
    let limits = json!([
        {"limit": "addresses of one handle", "reached": 60_000, "refused": true},
        {"limit": "mappings with access", "reached": 100_000, "refused": false},
        {"limit": "free memory that is refused", "reached": 30 << 20, "refused": true},
        {"call": "cuMemGetInfo", "us p50": 8000.0},
    ]);
    let steps = json!([step("probe", probe), step("limits", limits)]);
    let config = measured(&steps).applied_to(SimConfig::default());
    assert_eq!((config.total_bytes, config.process_limit_bytes), (24_000 << 20, 23_970 << 20));
    assert_eq!((config.has_virtual_memory, config.is_shareable), (true, false));
    assert_eq!(config.network_memory, NetworkMemory::Broken);
    assert_eq!(config.reservation_limit_bytes, (32 << 30) - 1);
    assert_eq!((config.alias_limit, config.mapping_limit), (60_000, 516_000));
    assert_eq!(config.memory_info_ns, 8_000_000);
}

fn rows_of(call: &str, code: impl Fn(&str, &str) -> i32) -> Vec<Value> {
    let mut rows = Vec::new();
    for mode in ["global", "thread-local", "relaxed"] {
        for thread in ["own", "other"] {
            let returned = code(mode, thread);
            rows.push(json!({"call": call, "mode": mode, "thread": thread, "returned": returned,
                             "ended": if returned == 0 { 0 } else { 901 }}));
        }
    }
    rows
}

#[test]
fn what_captures_forbid_is_what_was_seen() {
    let mut rows = rows_of("cuMemUnmap", |_, _| 0);
    rows.extend(rows_of("cuMemCreate", |mode, thread| {
        if mode == "global" || (mode == "thread-local" && thread == "own") { 900 } else { 0 }
    }));
    rows.extend(rows_of("cuEventCreate", |_, thread| if thread == "own" { 900 } else { 0 }));
    rows.extend(rows_of("cuEventRecord, other", |_, _| 0));
    rows.extend(rows_of("cuStreamGetId, captured", |_, _| 900));
    rows.extend(rows_of("cuMemPoolDestroy", |_, _| 400).into_iter().map(|mut row| {
        row["ended"] = json!(0);
        row
    }));
    // One row of a step that was ended.
    rows.push(rows_of("cuMemFree", |_, _| 0)[0].clone());
    let measured = measured(&json!([step("captures", Value::Array(rows))]));
    let of = |function| measured.legality.iter().find(|one| one.0 == function).map(|one| one.1);
    assert_eq!(of("cuMemUnmap"), Some(Legality::Always));
    assert_eq!(of("cuMemCreate"), Some(Legality::Unsafe));
    assert_eq!(of("cuEventCreate"), Some(Legality::Nobody));
    assert_eq!(of("cuEventRecord"), Some(Legality::Captured));
    assert_eq!((of("cuStreamGetId"), of("cuMemFree")), (None, None));
    assert_eq!(of("cuMemPoolDestroy"), None);

    let device = SimDevice::new(measured.applied_to(SimConfig::default()));
    let stream = device.create_stream();
    device.begin_capture(stream, CaptureMode::Global).unwrap();
    let refused = device.create(2 << 20).unwrap_err();
    assert_eq!(refused.code, ErrorCode::CaptureUnsupported);
    assert!(stream != Stream::DEFAULT);
}

#[test]
fn another_file_is_refused_with_what_it_lacks() {
    let folder = std::env::temp_dir();
    let path = folder.join(format!("drystone-measured-{}.json", std::process::id()));
    for (text, why) in
        [("{", "EOF"), ("{}", "no list of steps"), (r#"{"steps": []}"#, "none of its steps")]
    {
        std::fs::write(&path, text).unwrap();
        let error = Measured::read(&path).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("results.json"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(Measured::read(&path).unwrap_err().to_string().contains("cannot read"));
}
