//! The smallest device that serves each trace whole, and what running just above it costs.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::goals::geometric_mean;
use super::tool::{drystone, report};

/// Who is compared, Drystone first.
const ALLOCATORS: [&str; 4] = ["drystone-vmm", "torch-expandable", "torch-native", "torch-async"];
/// Just above the smallest device.
const BRIM: f64 = 1.005;
/// Smallest device over the peak request, in the geometric mean and at worst.
const MEAN_MOST: f64 = 1.004;
const WORST_MOST: f64 = 1.015;
/// Driver time at the brim over that with ample memory.
const TIME_MOST: f64 = 2.0;
/// Device makespan at the brim over that with ample memory.
const MAKESPAN_MOST: f64 = 1.02;

/// What one trace fits in; each array in the order of [`ALLOCATORS`].
#[derive(Debug)]
pub struct Fit {
    trace: String,
    /// Smallest device over the peak request.
    over_requested: [Option<f64>; 4],
    /// Driver time at the brim over the same allocator's with ample memory.
    time_at_brim: [Option<f64>; 4],
    /// Device makespan, driver calls included, likewise.
    makespan_at_brim: [Option<f64>; 4],
}

impl Fit {
    /// Looks for them, for one file.
    pub fn of(file: &Path, conf: Option<&str>) -> Result<Vec<Self>> {
        let configured = |subcommand: &str| {
            let mut command = drystone();
            command.args([subcommand, "--json"]).arg(file);
            if let Some(conf) = conf {
                command.args(["--drystone-conf", conf]);
            }
            command
        };
        let mut fits = Vec::new();
        for trace in report(configured("fit"))? {
            let found = ALLOCATORS.map(|name| pick(&trace["fits"], name, conf));
            let bytes = found.map(|fit| fit["capacity_bytes"].as_f64());
            let brims = bytes.map(|bytes| format!("{:.0}", bytes.unwrap_or(1.0) * BRIM));
            let mut sweep = configured("sweep");
            sweep.args(["--capacity", &format!("ample,{}", brims.join(","))]);
            let swept = report(sweep)?;
            let is_same = |other: &&Value| other["trace"] == trace["trace"];
            let cells = swept.iter().find(is_same).map(|trace| &trace["cells"]);
            let of_cell = |at: usize, device: &str, figure: &str| {
                let cells = cells?.as_array()?.iter().filter(|cell| cell["device"] == device);
                let cells = Value::Array(cells.cloned().collect());
                pick(&cells, ALLOCATORS[at], conf)[figure].as_f64()
            };
            let over_ample = |at: usize, figure: &str| {
                let ample = of_cell(at, "ample", figure).filter(|ample| *ample > 0.0)?;
                Some(of_cell(at, &brims[at], figure)? / ample)
            };
            fits.push(Self {
                trace: trace["trace"].as_str().unwrap_or_default().to_owned(),
                over_requested: found.map(|fit| fit["capacity_per_requested"].as_f64()),
                time_at_brim: [0, 1, 2, 3].map(|at| over_ample(at, "driver_time_us")),
                makespan_at_brim: [0, 1, 2, 3].map(|at| over_ample(at, "makespan_over_ideal")),
            });
        }
        Ok(fits)
    }

    /// Names of the goals that it misses.
    fn missed(&self) -> Vec<&'static str> {
        let [ours, expandable, ..] = self.over_requested;
        let is_worse = expandable.is_some_and(|theirs| ours.is_none_or(|ours| ours > theirs));
        let is_slow = self.time_at_brim[0].is_some_and(|time| time > TIME_MOST);
        let mut missed = Vec::new();
        if is_worse || ours.is_none_or(|ours| ours > WORST_MOST) {
            missed.push("fit");
        }
        if is_slow {
            missed.push("time at the brim");
        }
        if self.makespan_at_brim[0].is_some_and(|makespan| makespan > MAKESPAN_MOST) {
            missed.push("makespan at the brim");
        }
        missed
    }

    /// As text, with marks at what misses a goal.
    pub fn line(&self) -> String {
        let each = |values: [Option<f64>; 4], goal: &str| {
            let shown = values.map(|value| value.map_or("-".into(), |value| format!("{value:.4}")));
            let mark = if self.missed().contains(&goal) { "!" } else { "" };
            format!("{}{mark}", shown.join("/"))
        };
        let fit = each(self.over_requested, "fit");
        let time = each(self.time_at_brim, "time at the brim");
        let makespan = each(self.makespan_at_brim, "makespan at the brim");
        format!("{:31} {fit:>30} {time:>36} {makespan:>36}", self.trace)
    }

    /// As JSON, with the names of the goals that it misses.
    pub fn json(&self) -> Value {
        json!({
            "trace": self.trace,
            "missed": self.missed(),
            "allocators": ALLOCATORS,
            "capacity_per_requested": self.over_requested,
            "driver_time_at_brim_over_ample": self.time_at_brim,
            "makespan_at_brim_over_ample": self.makespan_at_brim,
        })
    }
}

/// The entry of an allocator; Drystone's in the configuration that was asked for.
fn pick<'a>(entries: &'a Value, allocator: &str, conf: Option<&str>) -> &'a Value {
    let is_ours = allocator == ALLOCATORS[0];
    let configuration = conf.filter(|_| is_ours).unwrap_or_default();
    let is_meant =
        |entry: &&Value| entry["allocator"] == allocator && entry["configuration"] == configuration;
    entries.as_array().into_iter().flatten().find(is_meant).unwrap_or(&Value::Null)
}

/// The line above the rows.
pub fn heads() -> String {
    let (fit, time) = ("fits in, over peak", "driver time at brim/ample");
    format!("{:31} {fit:>30} {time:>36} {:>36}", "trace", "makespan at brim/ample")
}

/// The mean, and how many rows miss each goal.
pub fn summary(fits: &[Fit]) -> String {
    let count = |goal| fits.iter().filter(|fit| fit.missed().contains(&goal)).count();
    let (fit, time, all) = (count("fit"), count("time at the brim"), fits.len());
    let makespan = count("makespan at the brim");
    let mut text = format!(
        "{fit:>4} of {all:>4} traces miss: fits in <= {WORST_MOST} and no more than expandable\n\
         {time:>4} of {all:>4} traces miss: driver time at the brim over ample <= {TIME_MOST}\n\
         {makespan:>4} of {all:>4} traces miss: makespan at the brim over ample \
         <= {MAKESPAN_MOST}\n"
    );
    for (at, name) in ALLOCATORS.iter().enumerate() {
        let values: Vec<f64> = fits.iter().filter_map(|fit| fit.over_requested[at]).collect();
        if let Some(mean) = geometric_mean(&values) {
            let is_missed = at == 0 && mean > MEAN_MOST;
            let mark = if is_missed { format!("! goal {MEAN_MOST}") } else { String::new() };
            text.push_str(&format!("{name:>16}: fits in {mean:.4} of the peak request{mark}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Fit, summary};

    fn fit(ours: Option<f64>, expandable: Option<f64>, time: f64) -> Fit {
        let time_at_brim = [Some(time), Some(9.0), None, None];
        let makespan_at_brim = [Some(time / 2.0), Some(2.0), None, None];
        let over_requested = [ours, expandable, None, None];
        Fit { trace: "t".into(), over_requested, time_at_brim, makespan_at_brim }
    }

    #[test]
    fn a_fit_is_small_and_no_larger_than_that_of_expandable_segments() {
        assert_eq!(fit(Some(1.01), Some(1.01), 2.0).missed(), [""; 0]);
        assert_eq!(fit(Some(1.01), Some(1.009), 2.0).missed(), ["fit"]);
        let all = ["fit", "time at the brim", "makespan at the brim"];
        assert_eq!(fit(Some(1.02), None, 2.5).missed(), all);
        assert_eq!(fit(None, Some(1.3), 1.0).missed(), ["fit"]);
        let line = fit(Some(1.02), Some(1.5), 1.25).line();
        assert!(
            line.contains(" 1.0200/1.5000/-/-! ") && line.contains(" 1.2500/9.0000/-/- "),
            "{line}"
        );
        let summary = summary(&[fit(Some(1.01), Some(1.5), 1.0), fit(Some(1.01), None, 3.0)]);
        assert!(summary.starts_with("   0 of    2 traces miss: fits"), "{summary}");
        assert!(summary.contains("   1 of    2 traces miss: driver time"), "{summary}");
        assert!(
            summary.contains("drystone-vmm: fits in 1.0100 of the peak request! goal"),
            "{summary}"
        );
    }
}
