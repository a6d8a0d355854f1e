//! What annotations tell: where iterations end, and what PyTorch's recorder has no entry for.
//!
//! PyTorch leaves annotations around profiler steps and around every step of an optimiser.
//! Invariant: one kind and one name of them is used, profiler steps first, so that two optimisers
//! do not count twice. The others are the program's own (`snapshot::Mark`).

use serde_json::Value;

use crate::snapshot::Mark;

#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    /// An iteration ends.
    Iteration,
    /// A mark begins.
    Begin(Mark),
    /// It ends.
    End(Mark),
}

/// All of it on a device, with times in microseconds since 1970, ascending.
pub(super) fn told(annotations: &[Value], device: u32) -> std::vec::IntoIter<(i64, Told)> {
    let mut told: Vec<(i64, Told)> = Vec::new();
    for note in of_device(annotations, device) {
        let mark = note["name"].as_str().and_then(Mark::of);
        let begins = note["stage"] == "START";
        if let (Some(mark), Some(time_us)) = (mark, note["time_us"].as_i64()) {
            told.push((time_us, if begins { Told::Begin(mark) } else { Told::End(mark) }));
        }
    }
    told.extend(ends(annotations, device).into_iter().map(|time_us| (time_us, Told::Iteration)));
    told.sort_by_key(|&(time_us, _)| time_us);
    told.into_iter()
}

fn of_device(annotations: &[Value], device: u32) -> impl Iterator<Item = &Value> {
    let is_own = move |of: u64| of == u64::from(device);
    annotations.iter().filter(move |note| note["device"].as_u64().is_none_or(is_own))
}

fn ends(annotations: &[Value], device: u32) -> Vec<i64> {
    let ends: Vec<(&str, i64)> = of_device(annotations, device)
        .filter(|note| note["stage"] == "END")
        .filter_map(|note| Some((note["name"].as_str()?, note["time_us"].as_i64()?)))
        .collect();
    let is_profiler = |name: &str| name.starts_with("ProfilerStep");
    let is_optimiser = |name: &str| name.starts_with("Optimizer.step");
    if ends.iter().any(|(name, _)| is_profiler(name)) {
        ends.iter().filter(|(name, _)| is_profiler(name)).map(|(_, time_us)| *time_us).collect()
    } else {
        let first = ends.iter().map(|(name, _)| *name).find(|name| is_optimiser(name));
        ends.iter().filter(|(name, _)| Some(*name) == first).map(|(_, time_us)| *time_us).collect()
    }
}
