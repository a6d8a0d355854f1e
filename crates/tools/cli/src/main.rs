//! The `drystone` command: replays allocation traces and shows what each allocator makes of them.
//!
//! Results go to standard output, all else to standard error. Exit codes: 0 done; 1 done, but an
//! allocator ran out of memory; 2 a file or an option could not be used.
#![forbid(unsafe_code)]

mod args;
mod candidates;
mod commands;
mod input;
mod jobs;
mod output;
mod report;
mod runs;
mod smallest;
mod sweeps;
mod table;
mod units;

use std::process::ExitCode;

use clap::Parser;

/// Replays GPU memory allocation traces through Drystone and other allocators
#[derive(Debug, Parser)]
#[command(name = "drystone", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  done, but an allocator ran out of memory
  2  a file or an option could not be used; files that could be used were";

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(ended) => (ended as u8).into(),
        Err(error) => {
            output::complain(&format!("{error:#}"));
            (commands::Ended::BadInput as u8).into()
        }
    }
}
