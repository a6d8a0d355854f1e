//! What calls cost, from the rows of `growth`, `ranges` and `measure`.
//!
//! Medians, in microseconds. What memory costs to create is taken from a device that fills up:
//! memory that was just given back is made anew at less cost. What one call costs over many
//! mappings is from `ranges`, and the rest from `measure`, which has no interpreter between.

use drystone_driver::Call;
use serde_json::Value;

use super::rows::Rows;
use crate::cost::Cost;
use crate::legality::Rule;

/// Steps of 2 MiB beyond the first, and microseconds.
type Point = (f64, f64);

pub(super) fn of(rows: &Rows<'_>) -> Vec<(Call, Cost)> {
    let mut costs = Vec::new();
    let mut note = |call, cost: Option<Cost>| costs.extend(cost.map(|cost| (call, cost)));
    let grown = |what: &str| growth(rows, what);
    note(Call::Create, line(&grown("create p50")));
    let map = timed(rows, Call::Map);
    note(Call::Map, line(&grown("map p50")).map(|grown| shifted(grown, &map)));
    note(Call::Release, level(&grown("release p50")));
    note(Call::SetAccess, over_mappings(rows, "access p50"));
    note(Call::Unmap, over_mappings(rows, "unmap p50"));
    note(Call::Reserve, level(&timed(rows, Call::Reserve)));
    for call in [Call::Malloc, Call::Free, Call::MallocAsync, Call::FreeAsync] {
        note(call, line(&timed(rows, call)));
    }
    for call in [Call::TrimMemoryPool, Call::CreateEvent, Call::Record, Call::Query, Call::Wait] {
        note(call, level(&timed(rows, call)));
    }
    costs
}

/// The same figure for each size of handle: of all tenths of the way, the median.
fn growth(rows: &Rows<'_>, figure: &str) -> Vec<Point> {
    let mut by_size: Vec<(u64, Vec<f64>)> = Vec::new();
    for row in rows.of("growth") {
        let (Some(mib), Some(us)) = (row["handle MiB"].as_u64(), row[figure].as_f64()) else {
            continue;
        };
        match by_size.iter_mut().find(|one| one.0 == mib) {
            Some(one) => one.1.push(us),
            None => by_size.push((mib, vec![us])),
        }
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    by_size.into_iter().map(|(mib, all)| (further(mib as f64), median(all))).collect()
}

/// Steps beyond the first.
fn further(mib: f64) -> f64 {
    (mib / 2.0 - 1.0).max(0.0)
}

/// What `measure` has of a call: its idle median, by size.
fn timed(rows: &Rows<'_>, call: Call) -> Vec<Point> {
    let function = Rule::of(call).function;
    let is_it = |row: &&Value| row["call"] == function;
    // From pools, what is kept there; what is not costs what creating it costs.
    let point = |row: &Value| {
        let of = row["of"].as_str().filter(|of| !of.ends_with("new"))?;
        let mib = of.split(" MiB").next().and_then(|mib| mib.parse().ok()).unwrap_or(2.0);
        Some((further(mib), row["us"].as_f64()?))
    };
    rows.of("measure").filter(is_it).filter_map(point).collect()
}

/// A price that does not depend on the size: the median.
fn level(points: &[Point]) -> Option<Cost> {
    let mut all: Vec<f64> = points.iter().map(|point| point.1).collect();
    all.sort_by(f64::total_cmp);
    let first_us = *all.get(all.len() / 2)?;
    Some(Cost { first_us, ..Cost::default() })
}

/// What the first step costs, as measured, and each further one, so that the sum of squared errors,
/// each as a share of its figure, is least.
fn line(points: &[Point]) -> Option<Cost> {
    let &(least, first_us) = points.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let (mut above, mut below) = (0.0, 0.0);
    for &(step, us) in points.iter().filter(|point| point.0 > least && point.1 > 0.0) {
        let steps = step - least;
        above += steps * (us - first_us) / (us * us);
        below += steps * steps / (us * us);
    }
    let per_further_2mib_us = if below > 0.0 { (above / below).max(0.0) } else { 0.0 };
    Some(Cost { first_us, per_further_2mib_us, within_mapping: 0.0 })
}

/// The same slope from another figure of the first step, if there is one.
fn shifted(cost: Cost, first: &[Point]) -> Cost {
    first.first().map_or(cost, |first| Cost { first_us: first.1, ..cost })
}

/// The price of a call over several mappings, and what a larger one costs beyond a smaller.
fn over_mappings(rows: &Rows<'_>, figure: &str) -> Option<Cost> {
    let ranges = rows
        .of("ranges")
        .filter(|row| row["handle MiB"] == 2)
        .filter_map(|row| Some((row["handles"].as_f64()? - 1.0, row[figure].as_f64()?)));
    let sizes = line(&growth(rows, figure));
    let cost = line(&ranges.collect::<Vec<_>>()).or(sizes)?;
    let within = sizes.map_or(0.0, |sizes| sizes.per_further_2mib_us);
    let share = within / cost.per_further_2mib_us;
    let within_mapping = if share.is_finite() { share.min(1.0) } else { 0.0 };
    Some(Cost { within_mapping, ..cost })
}
