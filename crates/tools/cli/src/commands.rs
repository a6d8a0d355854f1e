//! The subcommands, one file each.

pub mod convert;
pub mod demo;
mod each_file;
pub mod fit;
pub mod generate;
pub mod inspect;
pub mod replay;
pub mod sweep;
pub mod why;

use clap::Subcommand;

pub use each_file::Ended;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a program near the end of its GPU: who refuses it, who serves it, at what price
    Demo(demo::Args),
    /// Say why memory ran out, or where it goes, and what would change it
    Why(why::Args),
    /// Replay traces through one allocator
    Replay(replay::Args),
    /// Replay traces through Drystone and PyTorch's allocators, side by side
    Compare(replay::CompareArgs),
    /// Show what is in traces and snapshots
    Inspect(inspect::Args),
    /// Write a trace or snapshot in another format
    Convert(convert::Args),
    /// Find the smallest device memory on which each allocator completes a trace
    Fit(fit::Args),
    /// Replay traces on devices of several sizes, from ample to barely enough
    Sweep(sweep::Args),
    /// Write the trace of a program that is hard on allocators
    Generate(generate::Args),
}

impl Command {
    pub fn run(self) -> anyhow::Result<Ended> {
        match self {
            Command::Demo(args) => demo::run(&args),
            Command::Why(args) => why::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Compare(args) => replay::compare(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Convert(args) => convert::run(&args),
            Command::Fit(args) => fit::run(&args),
            Command::Sweep(args) => sweep::run(&args),
            Command::Generate(args) => generate::run(&args),
        }
    }
}
