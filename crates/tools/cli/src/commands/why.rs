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

use super::each_file::{self, Ended, Tables};
use crate::args::Files;
use crate::input::{self, Input};
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
