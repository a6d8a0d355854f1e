//! The subcommands, one file each, and the exit codes they share.

pub mod compare;
pub mod convert;
mod each_file;
pub mod fit;
pub mod inspect;
pub mod replay;
mod replays;

use clap::Subcommand;

/// How a command ended, apart from errors that end it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All files were used; nothing ran out of memory.
    Well,
    /// All files were used; an allocator ran out of memory.
    OutOfMemory,
    /// A file could not be used; the others were.
    BadInput,
}

impl Ended {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Ended::Well => 0,
            Ended::OutOfMemory => 1,
            Ended::BadInput => 2,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay traces through one allocator
    Replay(replay::Args),
    /// Replay traces through Drystone and PyTorch's allocators, side by side
    Compare(compare::Args),
    /// Show what is in traces and snapshots
    Inspect(inspect::Args),
    /// Write a trace or snapshot in another format
    Convert(convert::Args),
    /// Find the smallest device memory on which each allocator completes a trace
    Fit(fit::Args),
}

impl Command {
    /// Does it.
    pub fn run(self) -> anyhow::Result<Ended> {
        match self {
            Command::Replay(args) => replay::run(&args),
            Command::Compare(args) => compare::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Convert(args) => convert::run(&args),
            Command::Fit(args) => fit::run(&args),
        }
    }
}
