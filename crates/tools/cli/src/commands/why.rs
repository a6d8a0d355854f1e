//! `drystone why`: why memory ran out, or where it goes, and what would change it.
//!
//! Below it, bottom first: `refused` (a request that failed, and what was there for it), `held`
//! (what the allocator held when the snapshot was taken), `replayed` (the same program through
//! other allocators), `answer` (all of it), `lines` (in about ten lines).

mod answer;
mod held;
mod lines;
mod refused;
mod replayed;

use anyhow::Result;
use drystone_trace::model::Trace;

use super::each_file::{self, Ended, Tables};
use crate::args::Files;
use crate::jobs::Progress;

use answer::Answer;

/// Options of `why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// Print JSON in place of the lines
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Ended> {
    let work = |file: &str, trace: Trace, _: &Progress| Answer::of(file, trace);
    let tables = Tables { command: "why", json: args.json, replays: 0 };
    let (_, errors) = tables.run(&args.files, work, lines::text)?;
    Ok(each_file::ended(&errors, false))
}
