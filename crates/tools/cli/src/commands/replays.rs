//! What `replay` and `compare` have in common: candidates in, reports out.
//!
//! Invariant: report files are opened before any work and written only if there is something in
//! them.

use std::path::Path;

use anyhow::Result;
use drystone_models::Candidate;

use super::each_file::{self, Tables};
use super::ended::Ended;
use crate::args::{DeviceArgs, Files, Outputs, Time};
use crate::input::{self, Input};
use crate::jobs::Progress;
use crate::output::{self, Pending};
use crate::report::{html, svg, text};
use crate::runs::{self, Settings, TraceReport};

/// How the replays are made, and what is reported of them.
#[derive(Debug, clap::Args)]
pub struct Replays {
    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    time: Time,

    #[command(flatten)]
    outputs: Outputs,
}

impl Replays {
    /// Replays the files through each candidate and reports it, as a subcommand of this name.
    pub fn run(&self, command: &str, files: &Files, candidates: &[Candidate]) -> Result<Ended> {
        let targets = [self.outputs.html.as_deref(), self.outputs.svg.as_deref()];
        let targets: Vec<&Path> = targets.into_iter().flatten().collect();
        output::ensure_apart(&targets, &input::expand(&files.files).0)?;
        let html_file = self.outputs.html.as_deref().map(Pending::create).transpose()?;
        let svg_file = self.outputs.svg.as_deref().map(Pending::create).transpose()?;
        if let Some(device) = self.time.profile.device {
            let unpriced = device.unpriced().join(", ");
            output::complain(&format!("{}; priced as a100: {unpriced}", device.name));
        }
        let settings = Settings {
            capacity: self.device.capacity,
            quirks: self.device.quirks,
            time: self.time,
            with_layouts: html_file.is_some(),
            with_processor_time: true,
        };
        let work = |input: &Input, progress: &Progress| {
            runs::examine_file(input, candidates, &settings, progress)
        };
        let tables = Tables { command, json: self.outputs.json, steps_per_file: candidates.len() };
        let (reports, errors) = tables.run(files, work, text::trace)?;
        if reports.len() > 1 && !self.outputs.json {
            output::print(&text::overall(&reports))?;
        }
        if !reports.is_empty() {
            if let Some(file) = html_file {
                file.finish(html::render(&reports)?.as_bytes())?;
            }
            if let Some(file) = svg_file {
                file.finish(svg::render(&reports)?.as_bytes())?;
            }
        }
        Ok(each_file::ended(&errors, reports.iter().any(TraceReport::ran_out_of_memory)))
    }
}
