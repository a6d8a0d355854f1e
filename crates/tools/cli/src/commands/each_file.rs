//! What the subcommands that take several files have in common: files in, tables or JSON out.
//!
//! Invariant: a file that cannot be used is told at once, with one line on standard error, and the
//! others are reported all the same, in the order of the files.

use anyhow::Result;

use crate::args::Files;
use crate::input::{self, Input};
use crate::jobs::{self, Progress};
use crate::output;
use crate::report::json::{self, Failed};

#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    pub command: &'a str,
    pub json: bool,
    /// Steps of work per file, for the progress bar.
    pub steps_per_file: usize,
}

impl Tables<'_> {
    /// Works through the files and prints what `text` makes of each report, as early as the order
    /// allows. Returns the reports and the files that failed.
    pub fn run<R: Send + serde::Serialize>(
        &self,
        files: &Files,
        work: impl Fn(&Input, &Progress) -> Result<Vec<R>> + Sync,
        text: impl Fn(&R) -> String,
    ) -> Result<(Vec<R>, Vec<Failed>)> {
        let (inputs, failures) = input::expand(&files.files);
        let mut errors = Vec::new();
        for failure in failures {
            tell(&mut errors, format!("{failure:#}"));
        }
        let progress = Progress::new((inputs.len() * self.steps_per_file) as u64);
        let mut reports = Vec::new();
        let mut printed = Ok(());
        let work = |input: &_| work(input, &progress);
        jobs::run(&inputs, files.jobs(), &progress, work, |_, result| match result {
            Ok(more) => {
                for report in more {
                    if !self.json && printed.is_ok() {
                        printed = output::print(&text(&report));
                    }
                    reports.push(report);
                }
            }
            Err(error) => tell(&mut errors, format!("{error:#}")),
        });
        drop(progress);
        printed?;
        if self.json {
            output::print(&json::render(self.command, &reports, &errors)?)?;
        }
        Ok((reports, errors))
    }
}

/// Tells of a file that cannot be used and remembers it.
fn tell(errors: &mut Vec<Failed>, message: String) {
    output::complain(&message);
    errors.push(Failed { message });
}

/// How a command ended, apart from errors that end it at once. Its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All files were used; nothing ran out of memory.
    Well,
    /// All files were used; an allocator ran out of memory.
    OutOfMemory,
    /// A file could not be used; the others were.
    BadInput,
}

/// How a command with these errors ended.
pub fn ended(errors: &[Failed], out_of_memory: bool) -> Ended {
    match (errors.is_empty(), out_of_memory) {
        (false, _) => Ended::BadInput,
        (true, true) => Ended::OutOfMemory,
        (true, false) => Ended::Well,
    }
}
