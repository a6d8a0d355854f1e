//! What is asked of Drystone, by the size of the device: nothing to pay where memory is plenty, and
//! nothing refused where it is not.

use std::collections::BTreeSet;

use super::row::{Row, figure};

/// A figure that is to be no more than something on some devices.
struct Goal {
    name: &'static str,
    what: &'static str,
    devices: &'static [&'static str],
    figure: fn(&Row) -> Option<f64>,
    most: f64,
}

/// At least a quarter of the device is free.
const PLENTY: &[&str] = &["ample", "1.34x"];
const ROOMY: &[&str] = &["ample", "1.34x", "1.25x", "1.1x", "1.05x"];
const ALL: &[&str] = &["ample", "1.34x", "1.25x", "1.1x", "1.05x", "1.02x"];
const TIGHT: &[&str] = &["1.02x"];

const GOALS: [Goal; 6] = [
    Goal {
        name: "refused",
        what: "refused requests",
        devices: ALL,
        figure: |row| row.ours["out_of_memory_events"].as_f64(),
        most: 0.0,
    },
    Goal {
        name: "waits",
        what: "waits inserted",
        devices: PLENTY,
        figure: |row| figure(&row.ours, "stream_waits"),
        most: 0.0,
    },
    Goal {
        name: "makespan",
        what: "makespan over that of never waiting",
        devices: PLENTY,
        // Elsewhere start-up is in it, of whose price the time tells.
        figure: |row| {
            let makespan = row.ours["makespan_over_ideal"].as_f64();
            makespan.filter(|_| row.costs == "free")
        },
        most: 1.01,
    },
    Goal {
        name: "time",
        what: "driver time of the whole run over expandable's",
        devices: ROOMY,
        figure: |row| row.over_expandable("driver_time_us"),
        most: 1.0,
    },
    Goal {
        name: "late",
        what: "driver time of the last quarter over expandable's",
        devices: TIGHT,
        figure: |row| row.over_expandable("steady_driver_time_us"),
        most: 0.25,
    },
    Goal {
        name: "calls",
        what: "steady calls over expandable's",
        devices: PLENTY,
        figure: |row| row.over_expandable("steady_driver_calls"),
        most: 1.0,
    },
];

/// Driver time over expandable's in the geometric mean, where memory is plenty.
const MEAN_TIME_MOST: f64 = 0.5;

/// Names of the goals that a row misses. What is not measured is not missed.
pub fn missed(row: &Row) -> Vec<&'static str> {
    let is_missed = |goal: &&Goal| {
        goal.devices.contains(&row.device.as_str())
            && (goal.figure)(row).is_some_and(|figure| figure > goal.most)
    };
    GOALS.iter().filter(is_missed).map(|goal| goal.name).collect()
}

/// How many rows miss each goal, and the means that have goals of their own.
pub fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    for goal in &GOALS {
        let concerned = rows.iter().filter(|row| goal.devices.contains(&row.device.as_str()));
        let concerned = concerned.filter(|row| (goal.figure)(row).is_some()).count();
        let missed = rows.iter().filter(|row| missed(row).contains(&goal.name)).count();
        let (what, most) = (goal.what, goal.most);
        text.push_str(&format!("{missed:>4} of {concerned:>4} rows miss: {what} <= {most}\n"));
    }
    let tables: BTreeSet<&str> = rows.iter().map(|row| row.costs.as_str()).collect();
    for costs in tables {
        for device in ALL {
            let rows = rows.iter().filter(|row| row.device == *device && row.costs == costs);
            let ratios: Vec<f64> =
                rows.filter_map(|row| row.over_expandable("driver_time_us")).collect();
            let Some(mean) = geometric_mean(&ratios) else { continue };
            let is_missed = PLENTY.contains(device) && mean > MEAN_TIME_MOST;
            let mark = if is_missed { format!("! goal {MEAN_TIME_MOST}") } else { String::new() };
            text.push_str(&format!(
                "{costs:>10} {device:>6}: driver time over expandable's {mean:.3}{mark}\n"
            ));
        }
    }
    text
}

/// The mean over what is finite and above zero: nothing has no logarithm.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms = values.iter().filter(|value| value.is_finite() && **value > 0.0);
    let logarithms: Vec<f64> = logarithms.map(|value| value.ln()).collect();
    (!logarithms.is_empty())
        .then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::row::Row;
    use super::{geometric_mean, missed, summary};

    fn cell(allocator: &str, device: &str, refused: u64, time_us: f64, calls: u64) -> Value {
        json!({
            "allocator": allocator, "configuration": "", "device": device,
            "out_of_memory_events": refused, "driver_time_us": time_us,
            "steady_driver_time_us": time_us / 4.0, "steady_driver_calls": calls,
            "reserved_per_requested": 1.25,
        })
    }

    fn rows(device: &str, refused: u64, time_us: f64, calls: u64) -> Vec<Row> {
        let cells = [
            cell("drystone-vmm", device, refused, time_us, calls),
            cell("torch-expandable", device, 0, 1000.0, 8),
            cell("torch-native", device, 1, 500.0, 0),
        ];
        Row::all_of(&json!({ "trace": "t", "cells": cells }), "")
    }

    #[test]
    fn goals_depend_on_the_device() {
        let missed_on = |device| missed(&rows(device, 1, 1500.0, 9)[0]);
        assert_eq!(missed_on("ample"), ["refused", "time", "calls"]);
        assert_eq!(missed_on("1.1x"), ["refused", "time"]);
        assert_eq!(missed_on("1.02x"), ["refused", "late"]);
        assert_eq!(missed_on("80GiB"), [""; 0]);
        assert_eq!(missed(&rows("ample", 0, 1000.0, 8)[0]), [""; 0]);
    }

    #[test]
    fn the_summary_counts_what_is_missed() {
        let summary = summary(&rows("1.34x", 0, 1500.0, 0));
        assert!(summary.contains("   1 of    1 rows miss: driver time of the whole"), "{summary}");
        assert!(summary.contains("   0 of    0 rows miss: waits"), "{summary}");
        let mean = "1.34x: driver time over expandable's 1.500! goal 0.5";
        assert!(summary.contains(mean), "{summary}");
    }

    #[test]
    fn means_pass_over_what_has_no_logarithm() {
        assert_eq!(geometric_mean(&[0.0, f64::INFINITY]), None);
        assert!((geometric_mean(&[2.0, 8.0, 0.0]).unwrap() - 4.0).abs() < 1e-9);
    }
}
