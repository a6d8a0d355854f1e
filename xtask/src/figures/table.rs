//! [`Row`]s as lines of text and as JSON, with marks at what misses a goal.

use serde_json::{Value, json};

use super::goals;
use super::row::{Row, figure};

/// Heads and widths of the columns.
const COLUMNS: [(&str, usize); 11] = [
    ("trace", 31),
    ("prices", 10),
    ("device", 7),
    ("refused", 12),
    ("waits", 17),
    ("makespan", 28),
    ("time/exp", 9),
    ("late/exp", 9),
    ("steady calls", 23),
    ("res/req", 28),
    ("driver time", 12),
];

/// The line above the rows.
pub fn heads() -> String {
    line(COLUMNS.map(|(head, _)| head.to_owned()))
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let mut line = String::new();
    for (cell, (head, width)) in cells.iter().zip(COLUMNS) {
        // Names and sizes are words, all else figures.
        match head {
            "trace" | "prices" | "device" => line.push_str(&format!("{cell:<width$} ")),
            _ => line.push_str(&format!("{cell:>width$} ")),
        }
    }
    line.trim_end().to_owned()
}

/// As text, with a mark at each figure that misses its goal.
pub fn row(row: &Row) -> String {
    let missed = goals::missed(row);
    let marked = |name: &str, text: String| {
        if missed.contains(&name) { format!("{text}!") } else { text }
    };
    let all = |field: &str, show: fn(f64) -> String| {
        let each = [&row.ours, &row.expandable, &row.native, &row.pool];
        each.map(|run| figure(run, field).map_or("-".into(), show)).join("/")
    };
    let ratio = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let whole = |value: f64| format!("{value}");
    let time_us = row.ours["driver_time_us"].as_f64().unwrap_or_default();
    line([
        row.trace.clone(),
        row.costs.clone(),
        row.device.clone(),
        marked("refused", all("out_of_memory_events", whole)),
        marked("waits", all("stream_waits", whole)),
        marked("makespan", all("makespan_over_ideal", |value| format!("{value:.3}"))),
        marked("time", ratio(row.over_expandable("driver_time_us"))),
        marked("late", ratio(row.over_expandable("steady_driver_time_us"))),
        marked("calls", all("steady_driver_calls", whole)),
        all("reserved_per_requested", |value| format!("{value:.3}")),
        format!("{:.1} ms", time_us / 1e3),
    ])
}

/// As JSON, with the names of the goals that it misses.
pub fn json(row: &Row) -> Value {
    json!({
        "trace": row.trace,
        "costs": row.costs,
        "device": row.device,
        "missed": goals::missed(row),
        "drystone": row.ours,
        "expandable": row.expandable,
        "native": row.native,
        "pool": row.pool,
    })
}
