//! `drystone why`: why memory ran out, or where it goes, and what would change it.
//!
//! Below it, bottom first: `refused` (a request that failed, and what was there for it), `held`
//! (what the allocator held when the snapshot was taken), `replayed` (the same program through
//! other allocators), [`Answer`] (all of it), `lines` (in about ten lines).

mod held;
mod lines;
mod refused;
mod replayed;

use anyhow::Result;
use drystone_trace::metrics::{Holder, Summary, holders};
use drystone_trace::model::Trace;

use super::Ended;
use super::each_file::{self, Tables};
use crate::args::Files;
use crate::input::{self, Input};
use crate::jobs::Progress;
use held::Held;
use refused::Refused;
use replayed::Replayed;

/// Options of `why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// Print JSON in place of the lines
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ended> {
    let work = |input: &Input, progress: &Progress| {
        let file = input.name();
        progress.show(&file);
        let reports =
            input::read(input)?.into_iter().map(|trace| Answer::of(&file, trace)).collect();
        progress.step(&file);
        reports
    };
    let tables = Tables { command: "why", json: args.json, steps_per_file: 1 };
    let (_, errors) = tables.run(&args.files, work, lines::text)?;
    Ok(each_file::ended(&errors, false))
}

/// All that is known of one device of one file.
#[derive(Debug, serde::Serialize)]
struct Answer {
    file: String,
    trace: String,
    summary: Summary,
    /// Blocks that were live before recording began.
    live_at_start: u32,
    /// The most memory that the recorded allocator held, in bytes; 0 where that is not recorded.
    peak_reserved_bytes: u64,
    /// Who held the peak, most bytes first; of a snapshot without history, what is live.
    holders: Vec<Holder>,
    /// When the snapshot was taken; absent for a trace.
    held: Option<Held>,
    /// The last request that failed.
    refused: Option<Refused>,
    /// The program through each allocator.
    replayed: Vec<Replayed>,
}

impl Answer {
    fn of(file: &str, mut trace: Trace) -> Result<Self> {
        let summary = Summary::of(&trace);
        let refused = Refused::last_of(&trace);
        let moment = refused.as_ref().map_or(summary.peak_event, |refused| refused.event);
        let holders = holders(&trace, moment);
        let recording = trace.recording.take();
        let held = recording.as_ref().map(|recording| Held::of(recording, refused.as_ref()));
        let capacity_bytes = refused.as_ref().and_then(|refused| refused.device_bytes);
        Ok(Self {
            file: file.to_owned(),
            trace: trace.name.clone(),
            live_at_start: recording.as_ref().map_or(0, |recording| recording.live_at_start),
            peak_reserved_bytes: recording.as_ref().map_or(0, |held| held.peak_reserved_bytes()),
            holders,
            held,
            refused,
            replayed: replayed::all(&trace, capacity_bytes)?,
            summary,
        })
    }
}
