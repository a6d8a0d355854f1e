//! Statistics of the process as JSON: calls by function, devices, violations, what stub libraries
//! counted.

use crate::{api, process};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// What stub libraries counted, by name.
static COUNTED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// Counts a call of a library that is only a stub.
pub(crate) fn count(name: &str) {
    let mut counted = COUNTED.lock();
    match counted.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            counted.insert(name.to_owned(), 1);
        }
    }
}

/// A JSON text.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

fn devices() -> String {
    let rows = process::devices().map(|device| {
        let sim = &device.sim;
        format!(
            "{{\"ordinal\": {}, \"physical_bytes\": {}, \"peak_physical_bytes\": {}, \
             \"calls\": {}, \"driver_time_us\": {:.1}, \"kernels\": {}, \"violations\": {}, \
             \"now_ns\": {}}}",
            device.ordinal,
            sim.physical_bytes(),
            sim.peak_physical_bytes(),
            sim.calls(),
            sim.driver_time_us(),
            device.kernels.load(Ordering::Relaxed),
            sim.violation_count(),
            sim.now_ns(),
        )
    });
    rows.collect::<Vec<_>>().join(",\n    ")
}

fn functions() -> String {
    let called = api::all().filter(|function| function.calls() > 0);
    let rows = called.map(|function| {
        let (name, calls, bytes) = (function.name, function.calls(), function.bytes());
        format!("{}: {{\"calls\": {calls}, \"bytes\": {bytes}}}", quoted(name))
    });
    rows.collect::<Vec<_>>().join(",\n    ")
}

/// All of it.
pub(crate) fn json() -> String {
    let counted = COUNTED.lock();
    let counted = counted.iter().map(|(name, count)| format!("{}: {count}", quoted(name)));
    format!(
        "{{\n  \"devices\": [\n    {}\n  ],\n  \"functions\": {{\n    {}\n  }},\n  \"counted\": \
         {{\n    {}\n  }}\n}}\n",
        devices(),
        functions(),
        counted.collect::<Vec<_>>().join(",\n    "),
    )
}

/// Where the settings want it.
pub(crate) fn write_at_exit() {
    match process::config().stats.as_deref() {
        None => {}
        Some("stderr") => eprint!("{}", json()),
        Some(path) => {
            if let Err(error) = std::fs::write(path, json()) {
                eprintln!("simcuda: cannot write statistics to {path}: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{count, json, quoted};

    #[test]
    fn texts_are_quoted_and_counts_are_summed() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
        count("cublasSgemm_v2");
        count("cublasSgemm_v2");
        assert!(json().contains("\"cublasSgemm_v2\": 2"));
    }
}
