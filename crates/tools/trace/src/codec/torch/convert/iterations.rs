//! Where iterations end, as far as a snapshot tells.
//!
//! PyTorch leaves annotations around profiler steps and around every step of an optimiser.
//! Invariant: one kind and one name of them is used, profiler steps first, so that two optimisers
//! do not count twice.

use serde_json::Value;

/// Times at which iterations end on a device, in microseconds since 1970, ascending.
pub(super) fn ends(annotations: &[Value], device: u32) -> std::vec::IntoIter<i64> {
    let ends: Vec<(&str, i64)> = annotations
        .iter()
        .filter(|note| note["device"].as_u64().is_none_or(|of| of == u64::from(device)))
        .filter(|note| note["stage"] == "END")
        .filter_map(|note| Some((note["name"].as_str()?, note["time_us"].as_i64()?)))
        .collect();
    let is_profiler = |name: &str| name.starts_with("ProfilerStep");
    let is_optimiser = |name: &str| name.starts_with("Optimizer.step");
    let mut times: Vec<i64> = if ends.iter().any(|(name, _)| is_profiler(name)) {
        ends.iter().filter(|(name, _)| is_profiler(name)).map(|(_, time_us)| *time_us).collect()
    } else {
        let first = ends.iter().map(|(name, _)| *name).find(|name| is_optimiser(name));
        ends.iter().filter(|(name, _)| Some(*name) == first).map(|(_, time_us)| *time_us).collect()
    };
    times.sort_unstable();
    times.into_iter()
}
