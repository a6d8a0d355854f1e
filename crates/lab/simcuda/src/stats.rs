//! Statistics of the process as JSON: calls by function, devices, violations, what stub libraries
//! counted.

use crate::config::DEVICES_MAX;
use crate::device::Device;
use crate::{entry, process};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

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

/// Where stub libraries were given room to work in: microseconds since 1970, and the address.
static WORKSPACES: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// More than any recording has; what comes later is not noted.
const WORKSPACES_MAX: usize = 1 << 20;

/// Notes where a stub library was given room to work in, once as long as it stays the same.
pub(crate) fn workspace(address: u64) {
    let mut workspaces = WORKSPACES.lock();
    let is_same = workspaces.last().is_some_and(|last| last.1 == address);
    if address != 0 && !is_same && workspaces.len() < WORKSPACES_MAX {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        workspaces.push((since.map_or(0, |since| since.as_micros() as u64), address));
    }
}

/// What the largest convolution of this process is likely given to work in, in bytes, and the most
/// that one may be: a stub library asks for the least, since which algorithm a real one takes is
/// not known.
static CONVOLUTION_BYTES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Notes what a convolution is likely given to work in, and the most.
pub(crate) fn convolution(likely: u64, most: u64) {
    for (kept, bytes) in CONVOLUTION_BYTES.iter().zip([likely, most]) {
        kept.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// The most that cuDNN's engines of this process's convolutions ask for, as that library tells
/// where it is installed; zero if it does not.
static ENGINE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Notes what an engine asks for.
pub(crate) fn engine(bytes: u64) {
    ENGINE_BYTES.fetch_max(bytes, Ordering::Relaxed);
}

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

/// What a device counted before the program reset it.
#[derive(Clone, Copy)]
struct Past {
    peak_bytes: u64,
    calls: u64,
    driver_time_us: f64,
    kernels: u64,
    violations: u64,
}

impl Past {
    const NONE: Self =
        Self { peak_bytes: 0, calls: 0, driver_time_us: 0.0, kernels: 0, violations: 0 };

    /// With what the device counted since.
    fn and(self, device: &Device) -> Self {
        let sim = &device.sim;
        Self {
            peak_bytes: self.peak_bytes.max(sim.peak_physical_bytes()),
            calls: self.calls + sim.calls(),
            driver_time_us: self.driver_time_us + sim.driver_time_us(),
            kernels: self.kernels + device.kernels.load(Ordering::Relaxed),
            violations: self.violations + sim.violation_count(),
        }
    }
}

static PAST: Mutex<[Past; DEVICES_MAX]> = Mutex::new([Past::NONE; DEVICES_MAX]);

/// The program is about to reset a device: what it counted is told all the same. A program that
/// releases its context, as it should, ends with a reset.
pub(crate) fn keep(device: &Device) {
    let past = &mut PAST.lock()[device.ordinal];
    *past = past.and(device);
}

/// A test starts a device anew, and counts from there.
pub(crate) fn forget(ordinal: usize) {
    PAST.lock()[ordinal] = Past::NONE;
}

fn devices() -> String {
    let past = *PAST.lock();
    let rows = process::devices().map(|device| {
        let all = past[device.ordinal].and(&device);
        format!(
            "{{\"ordinal\": {}, \"physical_bytes\": {}, \"peak_physical_bytes\": {}, \
             \"context_bytes\": {}, \
             \"calls\": {}, \"driver_time_us\": {:.1}, \"kernels\": {}, \"violations\": {}, \
             \"now_ns\": {}}}",
            device.ordinal,
            device.sim.physical_bytes(),
            all.peak_bytes,
            device.sim.context_bytes(),
            all.calls,
            all.driver_time_us,
            all.kernels,
            all.violations,
            device.sim.now_ns(),
        )
    });
    rows.collect::<Vec<_>>().join(",\n    ")
}

fn functions() -> String {
    let called = entry::all().filter(|function| function.calls() > 0);
    let rows = called.map(|function| {
        let (name, calls, bytes) = (function.name, function.calls(), function.bytes());
        format!("{}: {{\"calls\": {calls}, \"bytes\": {bytes}}}", quoted(name))
    });
    rows.collect::<Vec<_>>().join(",\n    ")
}

pub(crate) fn json() -> String {
    let counted = COUNTED.lock();
    let counted = counted.iter().map(|(name, count)| format!("{}: {count}", quoted(name)));
    let workspaces = WORKSPACES.lock();
    let workspaces = workspaces.iter().map(|(us, address)| format!("[{us}, {address}]"));
    let [likely, most] = CONVOLUTION_BYTES.each_ref().map(|kept| kept.load(Ordering::Relaxed));
    let engine = ENGINE_BYTES.load(Ordering::Relaxed);
    format!(
        "{{\n  \"devices\": [\n    {}\n  ],\n  \"functions\": {{\n    {}\n  }},\n  \"counted\": \
         {{\n    {}\n  }},\n  \"workspaces\": [{}],\n  \"convolution_bytes\": \
         [{likely}, {most}],\n  \"engine_bytes\": {engine}\n}}\n",
        devices(),
        functions(),
        counted.collect::<Vec<_>>().join(",\n    "),
        workspaces.collect::<Vec<_>>().join(", "),
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
    use super::{convolution, count, engine, json, quoted, workspace};

    #[test]
    fn texts_are_quoted_and_counts_are_summed() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
        count("cublasSgemm_v2");
        count("cublasSgemm_v2");
        assert!(json().contains("\"cublasSgemm_v2\": 2"));
    }

    #[test]
    fn of_convolutions_the_most_is_kept() {
        for (likely, most) in [(64, 64), (1024, 4096), (2048, 2048)] {
            convolution(likely, most);
        }
        assert!(json().contains("\"convolution_bytes\": [2048, 4096]"));
        [3, 7, 5].into_iter().for_each(engine);
        assert!(json().contains("\"engine_bytes\": 7"));
    }

    #[test]
    fn a_workspace_is_noted_where_it_changes() {
        [0, 64, 64, 32, 64].into_iter().for_each(workspace);
        let told = json();
        let told = told.split("\"workspaces\": ").nth(1).unwrap();
        let told = told.split("\"convolution_bytes\"").next().unwrap();
        assert_eq!(told.matches(", 64]").count(), 2, "{told}");
        assert_eq!(told.matches(", 32]").count(), 1, "{told}");
        assert!(!told.contains(", 0]"), "{told}");
    }
}
