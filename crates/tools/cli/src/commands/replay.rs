//! `drystone replay`: traces through one allocator; and `drystone compare`: through Drystone and
//! PyTorch's allocators, side by side.
//!
//! Invariant: report files are opened before any work and written only if there is something in
//! them.

use std::path::Path;

use anyhow::Result;
use drystone_models::{Candidate, NAMES};
use drystone_trace::model::Trace;

use super::each_file::{self, Ended, Tables};
use crate::args::{DeviceArgs, Files, Outputs, Time};
use crate::candidates;
use crate::input;
use crate::jobs::Progress;
use crate::output::{self, Pending};
use crate::report::{html, svg, text};
use crate::runs::{self, Settings, TraceReport};

/// Options of `replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which allocator
    #[arg(short, long, value_name = "NAME", value_parser = NAMES,
          default_value = candidates::DEFAULT)]
    allocator: String,

    /// Its configuration, as DRYSTONE_CONF or PYTORCH_CUDA_ALLOC_CONF would give it
    #[arg(short, long, value_name = "KEY:VALUE,...", default_value = "")]
    conf: String,

    #[command(flatten)]
    replays: Replays,
}

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    #[command(flatten)]
    configurations: candidates::Configurations,

    #[command(flatten)]
    replays: Replays,
}

pub fn run(args: &Args) -> Result<Ended> {
    let candidates = [Candidate::named(&args.allocator, &args.conf)?];
    args.replays.run("replay", &candidates)
}

pub fn compare(args: &CompareArgs) -> Result<Ended> {
    args.replays.run("compare", &candidates::all(&args.configurations)?)
}

#[derive(Debug, clap::Args)]
struct Replays {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    time: Time,

    #[command(flatten)]
    outputs: Outputs,
}

impl Replays {
    /// Replays the files through each candidate and reports it, as a subcommand of this name.
    fn run(&self, command: &str, candidates: &[Candidate]) -> Result<Ended> {
        let targets = [self.outputs.html.as_deref(), self.outputs.svg.as_deref()];
        let targets: Vec<&Path> = targets.into_iter().flatten().collect();
        output::ensure_apart(&targets, &input::expand(&self.files.files).0)?;
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
        let work = |file: &str, trace: Trace, progress: &Progress| {
            runs::examine(file, &trace, candidates, &settings, progress)
        };
        let tables = Tables { command, json: self.outputs.json, replays: candidates.len() };
        let (reports, errors) = tables.run(&self.files, work, text::trace)?;
        if reports.len() > 1 && !self.outputs.json {
            output::print(&text::overall(&reports))?;
        }
        if !reports.is_empty() {
            html_file.map_or(Ok(()), |file| file.finish(html::render(&reports)?.as_bytes()))?;
            svg_file.map_or(Ok(()), |file| file.finish(svg::render(&reports)?.as_bytes()))?;
        }
        Ok(each_file::ended(&errors, reports.iter().any(TraceReport::ran_out_of_memory)))
    }
}
